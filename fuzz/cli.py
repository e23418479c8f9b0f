"""The command line of the jobs: `python -m fuzz run|replay|minimize|…`.

Exit status: 0 clean, 1 findings, 2 unusable input (one line on stderr, no traceback).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fuzz import (
    coverage,
    doctor,
    exhaust,
    merge,
    mutants,
    options,
    process,
    report,
    run,
    schedules,
    show,
    traces,
)
from properties.commands import UnusableTrace
from properties.subjects import UnusableSubject

UNUSABLE = 2
# An error repeats what was given; nobody wants to read a megabyte of it.
LONGEST_MESSAGE = 1000
JOBS = (run, traces, exhaust, show, report, schedules, merge, doctor, mutants, coverage)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise options.Unusable(message)


def parser() -> Parser:
    """The whole command line: each job adds its own arguments, and says what starts it."""
    whole = Parser(prog="python -m fuzz", description="Long jobs over the harness.")
    jobs = whole.add_subparsers(dest="job", metavar="JOB")
    for module in JOBS:
        module.add(jobs)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; never shows a traceback for what the user gave."""
    process.settle()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    whole = parser()
    try:
        args = whole.parse_args(arguments)
        if args.job is None:
            whole.print_help()
            return 0
        status: int = args.start(args)
        return status
    except (options.Unusable, UnusableTrace, UnusableSubject) as error:
        line = " ".join(str(error).split())
        print(f"fuzz: {line[:LONGEST_MESSAGE]}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:
        # The reader has gone; what is still buffered has nowhere to go.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return UNUSABLE
