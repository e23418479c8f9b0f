"""The command line of the jobs: `python -m fuzz run|replay|minimize`.

Exit status: 0 clean, 1 findings, 2 unusable input (one line on stderr, no traceback).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch

from fuzz import options, traces
from fuzz.run import run
from properties.commands import UnusableTrace
from properties.lockstep import EXACT, RENAMED
from properties.seeded import Plan
from properties.subjects import BUILT_IN, UnusableSubject
from properties.systems import SYSTEMS

UNUSABLE = 2
# An error repeats what was given; nobody wants to read a megabyte of it.
LONGEST_MESSAGE = 1000
SUBJECTS = f"{', '.join(BUILT_IN)} or module:factory"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise options.Unusable(message)


def parser() -> Parser:
    """The whole command line."""
    whole = Parser(prog="python -m fuzz", description="Long jobs over the harness.")
    jobs = whole.add_subparsers(dest="job", metavar="JOB")
    doing = "drive systems in lockstep with the reference for a while"
    job = jobs.add_parser("run", help=doing, description=doing)
    job.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(SYSTEMS)}, all")
    job.add_argument("--seconds", type=float, help="how long (default: 20)")
    job.add_argument("--steps", type=int, help="how many steps, instead of --seconds")
    job.add_argument("--subject", default="impl", help=f"what to test: {SUBJECTS}")
    job.add_argument("--seed", type=int, help="repeats a run (default: drawn, and printed)")
    job.add_argument("--level", choices=(EXACT, RENAMED), help="how closely order is compared")
    job.add_argument("--misuse", action="store_true", help="also what must be refused")
    job.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FIELD=V1,V2",
        help="values of a config field",
    )
    for name, doing in (
        ("replay", "run a recorded trace and tell it step by step"),
        ("minimize", "write the shortest trace that breaks the same invariant"),
    ):
        job = jobs.add_parser(name, help=doing, description=doing)
        job.add_argument("file", type=Path, metavar="FILE")
        job.add_argument("--subject", help=f"default: the trace's own; {SUBJECTS}")
    jobs.choices["replay"].add_argument("--level", choices=(EXACT, RENAMED))
    jobs.choices["minimize"].add_argument("-o", dest="out", type=Path, metavar="OUT")
    return whole


def start(args: argparse.Namespace) -> int:
    """Does the job that the arguments ask for; the exit status."""
    if args.job == "replay":
        return traces.replay(args.file, args.subject, args.level)
    if args.job == "minimize":
        return traces.minimize(args.file, args.subject, args.out)
    budget = options.budget(args.seconds, args.steps)
    factory = options.subject(args.subject)
    chosen = options.systems(args.systems, factory)
    limits = options.only(args.only, chosen, factory)
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    plans = [
        Plan(
            system=system,
            factory=factory,
            seed=seed,
            level=args.level or "",
            misuse=True if args.misuse else None,
            limits=limits[system.name],
        )
        for system in chosen
    ]
    return run(plans, budget)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; never shows a traceback for what the user gave."""
    # Pools are tiny: a second thread only costs time, and other jobs want the cores.
    torch.set_num_threads(1)
    # What is loaded now stays; steps make many short-lived lists, which need no early look.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    whole = parser()
    try:
        args = whole.parse_args(arguments)
        if args.job is None:
            whole.print_help()
            return 0
        return start(args)
    except (options.Unusable, UnusableTrace, UnusableSubject) as error:
        line = " ".join(str(error).split())
        print(f"fuzz: {line[:LONGEST_MESSAGE]}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:
        # The reader has gone; what is still buffered has nowhere to go.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return UNUSABLE
