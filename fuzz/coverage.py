"""`fuzz coverage DIR…`: what of `impl` and `reference` no trace of a corpus reaches.

The traces are replayed in a child process, whose first act is to start coverage.py (with branches):
what a module runs while it is imported counts too. Reports are coverage.py's own.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from fuzz.options import Jobs, Unusable
from properties.subjects import BUILT_IN

CHILD = "fuzz.covered"


def add(jobs: Jobs) -> None:
    """The arguments of `coverage`."""
    doing = "tell which lines and branches of impl and reference no trace of a corpus reaches"
    job = jobs.add_parser("coverage", help=doing, description=doing)
    job.set_defaults(start=lambda args: coverage(args.directories, args.subject, args.out))
    job.add_argument("directories", nargs="+", type=Path, metavar="DIR")
    job.add_argument("--subject", default="impl", choices=BUILT_IN, help="default: impl")
    job.add_argument("-o", dest="out", type=Path, metavar="FOLDER", help="an HTML report as well")


def coverage(directories: list[Path], name: str, out: Path | None) -> int:
    """Prints the report; the exit status."""
    if importlib.util.find_spec("coverage") is None:
        raise Unusable("coverage isn't installed: pip install coverage")
    paths = [path for directory in directories for path in _traces(directory)]
    if out is not None and out.exists() and not out.is_dir():
        raise Unusable(f"-o {out}: no folder")
    asked = {
        "traces": [str(path.resolve()) for path in paths],
        "subject": name,
        "html": None if out is None else str(out.resolve()),
    }
    child = subprocess.Popen([sys.executable, "-m", CHILD], stdin=subprocess.PIPE, text=True)
    try:
        child.communicate(json.dumps(asked))
    except KeyboardInterrupt:
        child.wait()  # it heard that too, and reports what there is
    return child.returncode


def _traces(directory: Path) -> list[Path]:
    """The traces of a corpus, or of a folder that holds nothing else."""
    folder = directory / "traces" if (directory / "traces").is_dir() else directory
    found = sorted(folder.glob("*.json"))
    if not found:
        raise Unusable(f"{directory}: no traces; a corpus, or a folder of traces, is wanted")
    return found
