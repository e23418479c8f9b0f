"""`fuzz replay` and `fuzz minimize`: what one recorded trace does, and its shortest form.

A trace is data. The subject that it names is taken from it only if it is built in; code of one's
own is imported when the user names it with `--subject`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from fuzz import sandbox
from fuzz.findings import note
from fuzz.options import SUBJECTS, Jobs, Unusable, subject
from properties.invariants import FATAL
from properties.lockstep import EXACT, RENAMED
from properties.minimize import minimize as shorten
from properties.report import describe
from properties.subjects import BUILT_IN, Factory, is_built_in
from properties.trace import Replay, Trace, load

CLEAN, FAILS = 0, 1
# How long a trace gets that was recorded because it didn't end, or ended its process.
LONGEST_SECONDS = 5.0


def add(jobs: Jobs) -> None:
    """The arguments of `replay` and `minimize`."""
    for name, doing, start in (
        (
            "replay",
            "run a recorded trace and tell it step by step",
            lambda args: replay(args.file, args.subject, args.level),
        ),
        (
            "minimize",
            "write the shortest trace that breaks the same invariant",
            lambda args: minimize(args.file, args.subject, args.out),
        ),
    ):
        job = jobs.add_parser(name, help=doing, description=doing)
        job.set_defaults(start=start)
        job.add_argument("file", type=Path, metavar="FILE")
        job.add_argument("--subject", help=f"default: the trace's own; {SUBJECTS}")
        if name == "replay":
            job.add_argument("--level", choices=(EXACT, RENAMED))
        else:
            job.add_argument("-o", dest="out", type=Path, metavar="OUT")


def replay(path: Path, subject_name: str | None, level: str | None) -> int:
    """Prints the trace step by step; the exit status says whether it breaks an invariant."""
    trace, factory = open_trace(path, subject_name, level)
    if trace.invariant in FATAL:
        found = sandbox.fate(trace, factory, LONGEST_SECONDS)
        print(sandbox.told(trace, found), flush=True)
        return CLEAN if found.number is None else FAILS
    fails = Replay(trace, factory.make).run() is not None
    print(describe(trace, factory.make), flush=True)
    return FAILS if fails else CLEAN


def minimize(path: Path, subject_name: str | None, out: Path | None) -> int:
    """Writes the minimal trace beside the file, or to `out`, and prints it."""
    trace, factory = open_trace(path, subject_name, None)
    if trace.invariant in FATAL:
        return _minimize_fatal(trace, factory, path, out)
    violation = Replay(trace, factory.make).run()
    if violation is None:
        print(f"{path}: no longer fails; nothing to minimise", flush=True)
        return CLEAN
    if violation.number != trace.invariant:
        note(f"{path}: recorded for {trace.invariant}, breaks {violation.number} now")
    short = shorten(replace(trace, invariant=violation.number), factory)
    out = path.with_suffix(".min.json") if out is None else out
    _write(short, out)
    print(describe(short, factory.make, out), flush=True)
    return FAILS


def _minimize_fatal(trace: Trace, factory: Factory, path: Path, out: Path | None) -> int:
    """The same for a trace that ends its process, or never does: candidates run in children."""
    short = sandbox.shortened(trace, factory, LONGEST_SECONDS)
    if short is None:
        print(f"{path}: no longer fails; nothing to minimise", flush=True)
        return CLEAN
    out = path.with_suffix(".min.json") if out is None else out
    _write(short, out)
    print(sandbox.told(short, sandbox.fate(short, factory, LONGEST_SECONDS), out), flush=True)
    return FAILS


def open_trace(path: Path, subject_name: str | None, level: str | None) -> tuple[Trace, Factory]:
    """The trace and its subject, checked against each other."""
    if path.exists() and not path.is_file():
        raise Unusable(f"{path}: not a file; a trace is a JSON file")
    trace = load(path)
    if subject_name is None and not is_built_in(trace.subject):
        raise Unusable(
            f"{path}: recorded with subject {trace.subject!r}; a trace can't choose code to run:"
            f" name it with --subject {trace.subject}, or one of {', '.join(BUILT_IN)}"
        )
    factory = subject(subject_name or trace.subject)
    system = trace.system.made
    if not factory.has(system):
        raise Unusable(f"{path}: subject {factory.name} has no system {system}")
    for name, allowed in factory.limits.get(system, {}).items():
        value = getattr(trace.config, name)
        if value not in allowed:
            words = ", ".join(map(str, dict.fromkeys(allowed)))
            raise Unusable(f"{path}: {name} is {value}; subject {factory.name} allows {words}")
    return replace(trace, subject=factory.name, level=level or trace.level), factory


def _write(trace: Trace, path: Path) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(trace.dumps(), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise Unusable(f"{path}: can't be written: {error.strerror or error}") from error
