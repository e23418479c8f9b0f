"""The ways in which a planted bug is looked for; each says by which invariant it was found.

As its system's test does it, by a campaign from an empty corpus, by its trace in the museum, and by
a walk over all states of the smallest pool that shows it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis.stateful import run_state_machine_as_test

import fuzz
from fuzz.findings import note
from properties.checks import STEPS
from properties.exhaust import Searched, search
from properties.invariants import Violation
from properties.machine import machine
from properties.minimize import minimize
from properties.museum import Exhibit
from properties.planted import Bug
from properties.plugin import profile
from properties.scope import Scope
from properties.seeded import Finding, Plan, Tally, rounds
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.trace import Replay, Trace
from properties.trace import load as load_trace

# What a child may take beyond its budget, to start, to minimise and to tell.
GRACE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """A bug that was found: what it was called, how soon, and how short its trace is."""

    invariant: str
    seconds: float
    commands: int

    def __str__(self) -> str:
        return f"{self.invariant} {self.seconds:.1f} s"


def plan_of(bug: Bug) -> Plan:
    """What its system's test would run, were the bug in `impl`; that of kernels narrows it."""
    return Plan(system=bug.narrowed(), factory=load(f"planted:{bug.slug}"), seed=0)


def by_tests(bug: Bug, budget_seconds: float) -> Found | None:
    """The seeded run of its system's test, then the state machine, up to the first violation."""
    plan, begun = plan_of(bug), time.monotonic()
    end = begun + budget_seconds
    tally = Tally()
    seeded = rounds(plan, tally, lambda: tally.steps < STEPS and time.monotonic() < end)
    finding = next(seeded, None)
    if finding is None and time.monotonic() < end:
        finding = _of_machine(plan)
    if finding is None:
        return None
    seconds = time.monotonic() - begun
    short = minimize(finding.trace, plan.factory)
    return Found(invariant=finding.violation.number, seconds=seconds, commands=len(short.commands))


def _of_machine(plan: Plan) -> Finding | None:
    made = machine(plan)
    try:
        run_state_machine_as_test(made, settings=profile())
    except Violation as violation:
        return Finding(violation, made.failure) if made.failure is not None else None
    return None


def by_run(bug: Bug, budget_seconds: float) -> Found | None:
    """`fuzz run` with one worker and nothing to start from, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="kvledger-mutants-") as corpus:
        begun = time.monotonic()
        arguments = (
            bug.system, "--subject", f"planted:{bug.slug}", "--seconds", str(budget_seconds),
            "--workers", "1", "--corpus", corpus, "--until-found",
        )  # fmt: skip
        with _child("run", *arguments) as child:
            try:
                _, told = child.communicate(timeout=budget_seconds + GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                told = "it did not end"
        seconds = time.monotonic() - begun
        short = min(_findings(Path(corpus)), key=lambda trace: len(trace.commands), default=None)
    if short is None:
        if child.returncode not in (0, 1):
            note(f"{bug.slug}: fuzz run failed: {(told.splitlines() or ['nothing said'])[-1]}")
        return None
    return Found(invariant=str(short.invariant), seconds=seconds, commands=len(short.commands))


def _findings(corpus: Path) -> list[Trace]:
    return [load_trace(path) for path in sorted((corpus / "findings").glob("*.json"))]


@contextlib.contextmanager
def _child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A job in a process of its own, which ends when the block does."""
    root = str(Path(fuzz.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen(
        [sys.executable, "-m", "fuzz", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def in_scope(bug: Bug, scope: Scope, budget_seconds: float) -> Found | None:
    """All command sequences in a tiny pool: first those without groups, then all."""
    # the limits are there to make a run meet the bug soon; a walk meets it wherever it is
    factory = replace(load(f"planted:{bug.slug}"), limits={})
    begun = time.monotonic()
    for groups in (False, True):
        end = time.monotonic() + budget_seconds

        def more(searched: Searched, end: float = end) -> bool:
            return time.monotonic() < end

        finding = search(SYSTEMS[bug.system], scope, factory, groups=groups, more=more).finding
        if finding is not None:
            seconds, trace = time.monotonic() - begun, finding.trace
            return Found(
                invariant=finding.violation.number, seconds=seconds, commands=len(trace.commands)
            )
    return None


def in_museum(exhibit: Exhibit) -> Found | None:
    """The exhibit's trace, replayed."""
    begun, trace = time.monotonic(), exhibit.trace()
    violation = Replay(trace, load(trace.subject).make).run()
    if violation is None:
        return None
    seconds = time.monotonic() - begun
    return Found(invariant=violation.number, seconds=seconds, commands=len(trace.commands))
