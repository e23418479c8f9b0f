"""Planted bugs as subjects: `planted:` and a slug, in one process with sound ones."""

from __future__ import annotations

import re
from typing import get_type_hints

import pytest
import torch

from properties.choices import Seeded
from properties.interpreter import kernels_run
from properties.invariants import CATALOGUE
from properties.planted import BUGS, BY_SLUG, ENTRIES, SLOW, WAITING, Bug
from properties.planted.scopes import SCOPES
from properties.seeded import Plan, run_steps
from properties.subjects import UnusableSubject, is_built_in, load
from properties.systems import SYSTEMS
from properties.trace import Replay

EVERY = (*BUGS, *SLOW)
HERE = [bug for bug in EVERY if bug in BUGS or (kernels_run() and not torch.cuda.is_available())]


def plan(bug: Bug) -> Plan:
    """A plan for the bug's system of the bug's own subject."""
    return Plan(system=SYSTEMS[bug.system], factory=load(f"planted:{bug.slug}"), seed=0)


def test_slugs_are_words_of_their_own() -> None:
    """Each planted bug has a slug that no other has, short and plain enough for a command line."""
    assert len(BY_SLUG) == len(EVERY)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) for slug in BY_SLUG)


def test_every_bug_is_a_subject() -> None:
    """Each has a factory that makes its system only, exact and with misuse, within its limits."""
    for bug in HERE:
        factory = load(f"planted:{bug.slug}")
        assert factory.systems == {bug.system}
        assert (factory.level, factory.misuse) == ("exact", True)
        assert not factory.is_ours
        assert set(factory.limits[bug.system]) <= set(get_type_hints(SYSTEMS[bug.system].config))


def test_an_unknown_bug_names_close_ones() -> None:
    """A slug that no bug has is refused in one line, with some that are like it."""
    with pytest.raises(UnusableSubject, match="planted:a-nested-group-is-accepted"):
        load("planted:nested-group-accepted")
    with pytest.raises(UnusableSubject, match="some are planted:"):
        load("planted:")


def test_a_sound_subject_lives_beside() -> None:
    """A bug is there only while its own subject works, and a trace found with it says whose."""
    bug = BY_SLUG["a-nested-group-is-accepted"]
    assert bug.edit is not None
    code = bug.edit.function().__code__
    _, finding = run_steps(plan(bug), 2000)
    assert finding is not None
    assert finding.violation.number == bug.invariant
    assert finding.trace.subject == f"planted:{bug.slug}"
    assert is_built_in(finding.trace.subject)
    assert bug.edit.function().__code__ is code
    assert Replay(finding.trace, load("impl").make).run() is None
    again = Replay(finding.trace, load(finding.trace.subject).make).run()
    assert again is not None
    assert again.number == bug.invariant


def test_entries_are_planted_or_wait() -> None:
    """Each real bug of the list is planted in a system, or waits for one that can have it."""
    planted = {bug.entry for bug in EVERY} - {None}
    assert not planted & set(WAITING)
    assert planted | set(WAITING) == set(ENTRIES)


def test_every_invariant_has_a_bug() -> None:
    """Each invariant that is checked here has a planted bug; those that wait have none."""
    named = {bug.invariant for bug in EVERY}
    assert named == {number for number, cls in CATALOGUE.items() if not cls.waits_for}


def test_faulty_commands_have_their_bug() -> None:
    """Each command of a faulty caller is one bug's, whose invariant it says that it breaks."""
    for name, system in SYSTEMS.items():
        for command in system.faulty:
            (bug,) = [bug for bug in EVERY if (bug.system, bug.faulty) == (name, command.name())]
            assert command.breaks == bug.invariant
            assert not command.misuse
            calls = load("impl").make(name, system.config.draw(Seeded(0), {})).calls
            assert not command.supported(calls)
            assert command.supported(calls | {command.name()})
    assert all((bug.edit is None) == bool(bug.faulty) for bug in EVERY)


def test_upstream_references() -> None:
    """Every reference is a repository and a number; a bug has those of its entry."""
    for entry in ENTRIES.values():
        assert entry.title
        assert entry.upstream
        assert all(re.fullmatch(r"[\w./-]+ #\d+", each) for each in entry.upstream), entry
    assert ENTRIES[1].upstream == ("sglang #17850", "sglang-jax #1008")


def test_scopes_are_of_bugs_that_can_be_walked() -> None:
    """A scope belongs to a planted bug of a system whose states are walked, in a pool it can be."""
    assert set(SCOPES) <= set(BY_SLUG)
    for slug in SCOPES:
        bug = BY_SLUG[slug]
        assert bug.system in ("rows", "token", "paged", "state_slots", "hybrid_rows", "swa")
        assert bug.scope is not None
        assert bug.scope.page_size == 1 or bug.system in ("paged", "swa")
