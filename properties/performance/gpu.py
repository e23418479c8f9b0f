"""Everything that one needs a GPU for, in ten minutes: `python -m properties.performance.gpu`.

Each part runs in a process of its own, with a limit: one that fails, hangs or takes the GPU down
costs no other its result. The report, JSON, is written anew after each. It needs what the tests
need: no pytest-benchmark; and where SGLang isn't installed, ours is timed alone. Exit status: 0 all
parts passed, 1 one didn't, 2 no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

FAILED, UNUSABLE = 1, 2
SCHEMA = 1
# Ten minutes in all, less what starting and killing processes takes.
TOTAL_SECONDS = 570.0
# A part that gets less isn't worth its imports.
LEAST_SECONDS = 15.0
LONGEST_OUTPUT = 4000
#: what `pytest properties` runs on a GPU: each worker has its own context there
WORKERS = 4
SUBJECTS = ("impl",)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A command and how long it may take; the word DETAIL in it becomes a file to write JSON to."""

    name: str
    command: tuple[str, ...]
    limit_seconds: float


DETAIL = "DETAIL"


def parts() -> list[Part]:
    """All parts, those first that are quick and that later figures depend on."""
    checks = (sys.executable, "-m", "properties.performance.gpu_checks")
    found = [
        Part(name=name, command=(*checks, name, DETAIL), limit_seconds=limit)
        for name, limit in (
            ("versions", 30.0),
            ("synchronisation", 55.0),
            ("graph", 40.0),
            ("recovery", 40.0),
            ("kv", 75.0),
            ("benchmark", 125.0),
        )
    ]
    suite = (sys.executable, "-m", "pytest", "properties", "-q", "-n", str(WORKERS), "--subject")
    found += [
        Part(name=f"suite {subject}", command=(*suite, subject), limit_seconds=400.0)
        for subject in SUBJECTS
    ]
    return found


def run_part(part: Part, seconds: float) -> dict[str, Any]:
    """Run one part for at most `seconds`, and say what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        detail = Path(folder) / "detail.json"
        command = [str(detail) if word == DETAIL else word for word in part.command]
        start = time.perf_counter()
        # A group of its own, so that a part's workers end with it.
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
            status = "passed" if process.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = "timed out"
        return {
            "status": status,
            "seconds": round(time.perf_counter() - start, 1),
            "exit_status": process.returncode,
            "detail": _read_detail(detail),
            "output": output[-LONGEST_OUTPUT:],
        }


def _read_detail(path: Path) -> Any:
    """What a part wrote; None when it wrote nothing that is whole."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def run_parts(
    chosen: Sequence[Part],
    out: Path,
    say: Callable[[str], None],
    total_seconds: float = TOTAL_SECONDS,
) -> dict[str, Any]:
    """Run parts one after the other, the report on disk after each."""
    start = time.perf_counter()
    report: dict[str, Any] = {"schema": SCHEMA, "parts": {}}
    for part in chosen:
        left = total_seconds - (time.perf_counter() - start)
        if left < min(LEAST_SECONDS, part.limit_seconds):
            result: dict[str, Any] = {"status": "no time left"}
        else:
            result = run_part(part, min(left, part.limit_seconds))
        report["parts"][part.name] = result
        report["seconds"] = round(time.perf_counter() - start, 1)
        _write(out, report)
        say(f"{part.name}: {result['status']} after {report['seconds']} s")
    return report


def _write(out: Path, report: dict[str, Any]) -> None:
    """Replace the report as a whole: a reader never finds half of one."""
    new = out.with_name(out.name + ".new")
    new.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    new.replace(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for on the GPU."""
    names = [part.name for part in parts()]
    parser = argparse.ArgumentParser(
        prog="python -m properties.performance.gpu",
        description="Run the checks and the benchmark that need a GPU; at most ten minutes.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the JSON report")
    parser.add_argument(
        "--part", action="append", choices=names, metavar="NAME", help=f"only: {', '.join(names)}"
    )
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is false, nothing was run", file=sys.stderr)
        return UNUSABLE
    if not options.out.absolute().parent.is_dir():
        print(f"--out: there is no folder {options.out.absolute().parent}", file=sys.stderr)
        return UNUSABLE
    chosen = [part for part in parts() if not options.part or part.name in options.part]
    report = run_parts(chosen, options.out, lambda line: print(line, flush=True))
    return 0 if all(each["status"] == "passed" for each in report["parts"].values()) else FAILED


if __name__ == "__main__":
    raise SystemExit(main())
