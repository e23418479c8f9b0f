"""The child of `fuzz coverage`: coverage.py first, then everything that it measures.

It reads what to do from standard input, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEASURED = ("impl", "reference")


def main(asked: dict[str, Any]) -> int:
    """Replays the traces and prints the report; the exit status."""
    import coverage

    measured = coverage.Coverage(
        branch=True, source_pkgs=list(MEASURED), data_file=None, config_file=False
    )
    measured.start()
    counts = {"replayed": 0, "not readable": 0}
    try:
        replay([Path(path) for path in asked["traces"]], asked["subject"], counts)
    except KeyboardInterrupt:
        print("interrupted: what follows is of the traces so far", flush=True)
    measured.stop()
    measured.report(file=sys.stdout, show_missing=True, skip_covered=True, precision=1)
    if asked["html"]:
        measured.html_report(directory=asked["html"])
    print(f"traces: {', '.join(f'{n} {what}' for what, n in counts.items())}", flush=True)
    return 0


def replay(paths: Sequence[Path], subject: str, counts: dict[str, int]) -> None:
    """Runs each trace on every backend of a subject, and counts."""
    from fuzz import process
    from fuzz.findings import note
    from fuzz.progress import progress
    from properties.commands import UnusableTrace
    from properties.subjects import backends, load
    from properties.trace import Replay
    from properties.trace import load as trace_of

    process.settle()
    shown = progress()
    try:
        for number, path in enumerate(paths, 1):
            try:
                trace = trace_of(path)
            except UnusableTrace as error:
                note(str(error))
                counts["not readable"] += 1
                continue
            for name in backends(subject, trace.system.name):
                factory = load(name)
                if factory.has(trace.system.name):
                    Replay(trace, factory.make).run()
            counts["replayed"] += 1
            if number % 16 == 0:
                shown.show(f"{number} of {len(paths)} traces")
    finally:
        shown.close()


if __name__ == "__main__":
    status = main(json.load(sys.stdin))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Traced to the end, Triton's bindings complain at length of what they never gave back.
    os._exit(status)
