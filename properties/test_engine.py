"""The small engine: a subject in lockstep with the reference, and judged from outside."""

from __future__ import annotations

import pytest

from properties.checks import check_seeded
from properties.machine import run_machine
from properties.planted import Bug
from properties.planted.engine import BUGS
from properties.plugin import UnderTest
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS

# A step of everything together takes twice as long as one of a part.
STEPS = 10_000
#: bugs of the engine itself, which is the reference's too
SHARED = [bug for bug in BUGS if "engine:Engine" in bug.place]


@pytest.mark.system("engine")
def test_hypothesis(subject: UnderTest) -> None:
    """No sequence of commands that Hypothesis draws tells the subject from the reference."""
    run_machine(subject.plan("engine"))


@pytest.mark.system("engine")
def test_seeded(subject: UnderTest) -> None:
    """10,000 seeded steps show no difference, and reach every situation that they claim to."""
    check_seeded(subject.plan("engine"), STEPS)


@pytest.mark.parametrize("bug", SHARED, ids=str)
def test_an_engine_is_judged_from_outside(bug: Bug) -> None:
    """A bug that both sides have is found as well: all is held against what was meant."""
    factory = load("impl:torch")
    plan = Plan(system=SYSTEMS["engine"], factory=factory, seed=0, limits=bug.limits)
    with bug.planted():
        finding = run_steps(plan, 5_000)[1]
    assert finding is not None
    assert finding.violation.number in (bug.invariant, *bug.also)
