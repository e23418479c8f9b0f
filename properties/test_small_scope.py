"""Every command sequence on tiny pools: the search closes, counts rightly, and finds bugs."""

from __future__ import annotations

from typing import Any

import pytest

from properties import exhaust
from properties.choices import TooManyChoices
from properties.exhaust import Endless, Searched, Unwalked, configs, probe, search
from properties.planted import BY_SLUG
from properties.scope import Scope
from properties.seeded import Plan
from properties.subjects import load
from properties.systems import SYSTEMS

IMPL = load("impl")
ONE = Scope(pages=1, page_size=1, requests=1)


def searched(system: str, pages: int, page_size: int, requests: int, **options: Any) -> Searched:
    scope = Scope(pages=pages, page_size=page_size, requests=requests)
    options = {"groups": True, **options}
    return search(SYSTEMS[system], scope, options.pop("factory", IMPL), **options)


@pytest.mark.parametrize(
    ("system", "pages", "page_size", "requests"),
    [("paged", 1, 2, 2), ("token", 2, 1, 1), ("rows", 1, 1, 1)],
)
def test_nothing_wrong_is_reachable(system: str, pages: int, page_size: int, requests: int) -> None:
    """No command sequence on these pools tells our allocators from the reference."""
    found = searched(system, pages, page_size, requests)
    assert found.finding is None
    assert found.closed


def test_states_of_one_slot() -> None:
    """A slot is never issued, owned or free; with sorting staged too; and the pool may be empty.

    Each of these with a group open as well, and then the slot may be parked, in two ways.
    """
    states = {False: 0, True: 0}
    for groups in states:
        states[groups] = searched("token", 1, 1, 1, groups=groups).states
    plain, sorting = 3 + 1, 4 + 1
    assert states[False] == plain + sorting
    assert states[True] == 2 * plain + 2 + 2 * sorting + 2


def test_states_of_one_row() -> None:
    """A row is free or held, for the first time or again; it and the padding row are written on."""
    never, held, free, held_again = 1, 4, 4, 4  # any of two positions, once it was handed out
    padding = 3  # from its first position on
    assert searched("rows", 1, 1, 1).states == padding * (never + held + free + held_again)


def test_groups_have_states_of_their_own() -> None:
    """With the commands that open groups there is more to reach."""
    without, with_groups = (searched("paged", 1, 2, 1, groups=groups) for groups in (False, True))
    assert without.closed
    assert with_groups.closed
    assert with_groups.states > without.states
    assert with_groups.edges > without.edges


def test_a_bounded_search_is_not_closed() -> None:
    """Where a depth cuts a search off it says so, and where nothing lies behind it doesn't."""
    whole = searched("token", 1, 1, 1)
    for depth in range(1, whole.depth + 1):
        part = searched("token", 1, 1, 1, depth=depth)
        assert not part.closed
        assert part.depth == depth
    assert part.states == whole.states
    assert searched("token", 1, 1, 1, depth=whole.depth + 1).closed


def test_a_search_may_be_ended() -> None:
    """Who is asked for more and wants none gets what there is."""
    asked: list[int] = []

    def more(so_far: Searched) -> bool:
        asked.append(so_far.states)
        return len(asked) < 3

    found = searched("token", 1, 1, 1, groups=False, more=more)
    assert not found.closed
    assert found.finding is None
    assert asked[0] == 1


@pytest.mark.parametrize(
    ("slug", "pages", "commands"),
    [("staged-slots-are-ignored-by-alloc", 1, 3), ("a-group-frees-page-ids-at-once", 1, 3)],
)
def test_a_planted_bug_is_found_by_its_shortest_trace(slug: str, pages: int, commands: int) -> None:
    """The trace has as many commands as it takes: no sequence of fewer shows the bug."""
    bug = BY_SLUG[slug]
    with bug.planted():
        found = searched(bug.system, pages, 1, 1)
        assert found.finding is not None
        assert found.finding.violation.number == bug.invariant
        assert len(found.finding.trace.commands) == commands
        fewer = searched(bug.system, pages, 1, 1, depth=commands - 1)
        assert fewer.finding is None


def test_groups_are_needed_for_a_bug_of_groups() -> None:
    """Without the commands that open groups a bug of theirs isn't met."""
    with BY_SLUG["a-group-frees-page-ids-at-once"].planted():
        assert searched("paged", 1, 1, 1, groups=False).closed


def test_a_bug_at_construction_is_a_finding() -> None:
    """What is wrong before the first command is found without any."""
    with BY_SLUG["available-size-counts-all-rows"].planted():
        found = searched("rows", 1, 1, 1)
    assert found.finding is not None
    assert found.finding.violation.number == "I2"


def test_calls_are_not_made_again_for_nothing() -> None:
    """Made anew in every state, as on the renamed level, they lead to the same states."""
    known, anew = (
        searched("paged", 1, 2, 2, groups=False, level=level) for level in ("exact", "renamed")
    )
    assert known.closed
    assert known.finding is anew.finding is None
    assert (known.states, known.depth) == (anew.states, anew.depth)


def test_what_cannot_be_saved_is_reached_by_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject of unknown parts is walked too: each state by its path, with the same result."""
    saved = searched("token", 1, 1, 1)
    monkeypatch.setattr(exhaust, "can_be_saved", lambda lock: False)
    assert searched("token", 1, 1, 1) == saved


def test_what_would_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice of too many values is refused by the command's name, a huge space by its size."""
    large = Scope(pages=40, page_size=2, requests=1)
    (config, _) = configs(SYSTEMS["paged"], large, IMPL)
    with pytest.raises(TooManyChoices, match="extend: "):
        probe(Plan(system=SYSTEMS["paged"], factory=IMPL, seed=0), config, large)
    monkeypatch.setattr(exhaust, "MOST_STATES", 5)
    with pytest.raises(Endless, match="over 5 states"):
        searched("token", 2, 1, 1)


def test_what_a_snapshot_does_not_tell_is_not_walked() -> None:
    """Faults under way are in no snapshot: such a system is refused, not walked in part."""
    with pytest.raises(Unwalked, match="token_deferred"):
        configs(SYSTEMS["token_deferred"], ONE, IMPL)
