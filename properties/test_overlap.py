"""Overlapped work: two replicas of a subject in lockstep with the reference."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from properties.checks import check_seeded
from properties.invariants import CATALOGUE
from properties.machine import run_machine
from properties.planted import BY_SLUG
from properties.plugin import UnderTest
from properties.schedules import Runner, every, stale
from properties.seeded import Plan
from properties.subjects import Factory, impl, load
from properties.systems import SYSTEMS
from properties.systems.overlap import CopyBegin, CopyEnd, GiveBack, Release, Take
from properties.systems.paged_rows_growth import ExtendRows
from properties.systems.paged_rows_lines import Admit
from properties.trace import Replay, Trace

OVERLAP = SYSTEMS["overlap"]
pytestmark = pytest.mark.system("overlap")


def plan(factory: Factory) -> Plan:
    return Plan(system=OVERLAP, factory=factory, seed=0, level="exact")


def test_hypothesis(subject: UnderTest) -> None:
    """No sequence of commands that Hypothesis draws tells the subject from the reference."""
    run_machine(subject.plan("overlap"))


def test_seeded(subject: UnderTest) -> None:
    """20,000 seeded steps show no difference, and reach every situation that they claim to."""
    check_seeded(subject.plan("overlap"))


def test_schedules_of_three_actors() -> None:
    """Of all schedules of three actors of three steps those in which a stale handle is used, or
    pages go that are copied, end in a refusal or a violation, and no other."""
    runner = Runner(plan(load("impl:torch")))
    seen = {True: 0, False: 0}
    for schedule in every(3):
        seen[stale(schedule)] += 1
        assert runner.run(schedule).wrong == stale(schedule), schedule
    assert min(seen.values()) > 1000


def test_what_goes_wrong_is_named() -> None:
    """A page that goes while it is copied is I65; a stale handle that isn't refused is I28."""
    runner = Runner(plan(load("impl:torch")))
    found = set()
    for schedule in itertools.islice(every(3), 0, None, 70):
        ran = runner.run(schedule)
        if ran.finding is not None:
            found.add(ran.finding.violation.number)
    assert found == {"I65"}
    with BY_SLUG["a-stale-handle-may-write"].planted():
        runner = Runner(plan(load("impl:torch")))
        findings = (runner.run(schedule).finding for schedule in every(3))
        assert next(f.violation.number for f in findings if f is not None) == "I28"


def test_replicas_must_agree() -> None:
    """A subject that answers by anything but its calls is found: replicas differ."""
    made = itertools.count()

    def make(system: str, config: Any) -> impl.ImplSubject:
        subject = impl.make(system, config, backend="torch")
        if next(made) == 1:
            subject.tables[0].free_slots.reverse()  # type: ignore[attr-defined]
        return subject

    config = OVERLAP.config(page_size=2, num_pages=4, spare=0, need_sort=False, rows=3, width=5)
    with pytest.raises(CATALOGUE["I55"]):
        OVERLAP.lockstep(OVERLAP, config, make)


def test_a_changed_trace_is_no_finding() -> None:
    """A trace that lost the end of a copy waits with what would give its pages back."""
    system, config = OVERLAP, OVERLAP.config(
        page_size=2, num_pages=4, spare=0, need_sort=False, rows=2, width=5
    )  # fmt: skip
    for last in (Release(0, 0, True), GiveBack(1)):
        given = (Admit((0,)), ExtendRows(((0, 3),), False), Take(1, 0), CopyBegin(2, 0), last)
        replay = Replay(Trace(system=system, config=config, commands=given), load("impl").make)
        assert replay.run() is None
        assert replay.executed == list(given[:-1])
        ended = (*given[:-1], CopyEnd(2), last)
        replay = Replay(Trace(system=system, config=config, commands=ended), load("impl").make)
        assert replay.run() is None
        assert replay.executed == list(ended)
