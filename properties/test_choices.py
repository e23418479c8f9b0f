"""The three sources of choices: bounds, repeatability, completeness; and every command drawn of them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties.choices import MOST_ENUMERATED, Choices, Every, FromHypothesis, Seeded
from properties.choices import TooManyChoices as TooMany
from properties.commands import Command, from_json
from properties.lockstep import Lockstep
from properties.seeded import Picker
from properties.subjects import impl
from properties.systems import SYSTEMS
from properties.systems.paged import PagedConfig
from properties.systems.rows import RowsConfig
from properties.systems.token import TokenConfig

# ---- bounds --------------------


def decisions(choices: Choices) -> list[Any]:
    """One of each kind of decision, each checked against its bounds."""
    low = choices.integer(-3, 3)
    high = low + choices.integer(0, 4, (0, 4, 9, -9))
    assert -3 <= low <= high <= low + 4
    wild = choices.integer(low, high, (low - 1, high + 1))
    assert low <= wild <= high
    flag = choices.boolean()
    assert isinstance(flag, bool)
    options = list(range(high - low))
    picked = choices.pick(("a", "b", "c"))
    assert picked in ("a", "b", "c")
    least = min(1, len(options))
    part = choices.subset(options, least, 2)
    assert part == sorted(set(part))
    assert set(part) <= set(options)
    assert least <= len(part) <= 2
    whole = choices.subset(options)
    assert whole == sorted(set(whole))
    assert set(whole) <= set(options)
    return [low, high, wild, flag, picked, part, whole]


def test_seeded_stays_inside() -> None:
    """Whatever the seed, a seeded decision lies within its bounds, and the edges come up."""
    seen = [decisions(Seeded(seed)) for seed in range(2000)]
    assert {each[0] for each in seen} == set(range(-3, 4))
    assert {each[1] - each[0] for each in seen} == set(range(5))
    assert {each[3] for each in seen} == {False, True}
    assert {len(each[5]) for each in seen} == {0, 1, 2}
    assert {len(each[6]) for each in seen} == set(range(5))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_hypothesis_stays_inside(data: st.DataObject) -> None:
    """Whatever Hypothesis draws, a decision lies within its bounds."""
    decisions(FromHypothesis(data.draw))


@pytest.mark.parametrize("most", [None, 0, 1, 3, 9])
def test_subset_of_few(most: int | None) -> None:
    """A subset asked to be larger than its options is all of them; one of nothing is empty."""
    for source in (Seeded(0), Seeded(1)):
        assert source.subset([], 2, most) == []
        assert source.subset([5], 4, most) in ([5], [])
        assert len(source.subset([5, 6, 7], 2, 3)) in (2, 3)


def test_same_seed_same_draws() -> None:
    """A seed, number or word, gives the same decisions again; another seed gives others."""
    for seed in (0, 7, "paged/7/0"):
        one, two = Seeded(seed), Seeded(seed)
        assert [decisions(one) for _ in range(20)] == [decisions(two) for _ in range(20)]
    assert [decisions(Seeded(0)) for _ in range(3)] != [decisions(Seeded(1)) for _ in range(3)]


def test_favoured_values_are_favoured() -> None:
    """A favoured value comes up more often than another, and the others still do."""
    source = Seeded(3)
    counts = Counter(source.integer(0, 99, (17,)) for _ in range(4000))
    assert counts[17] > 1000
    assert len(counts) == 100


# ---- enumeration --------------------


def walked(draw: Callable[[Choices], Any]) -> list[Any]:
    return list(Every("a test").walk(draw))


def test_every_walks_all_combinations_once() -> None:
    """The enumeration gives each combination of choices exactly once."""

    def draw(choices: Choices) -> tuple[int, bool, str]:
        return choices.integer(2, 4, (3,)), choices.boolean(), choices.pick("xy")

    found = walked(draw)
    assert len(found) == len(set(found)) == 3 * 2 * 2
    assert set(found) == set(itertools.product((2, 3, 4), (False, True), "xy"))


def test_every_walks_choices_that_depend_on_choices() -> None:
    """Later choices may depend on earlier ones; each path comes once."""

    def draw(choices: Choices) -> tuple[int, ...]:
        return tuple(choices.integer(0, n) for n in range(choices.integer(0, 3)))

    found = walked(draw)
    assert len(found) == len(set(found)) == 1 + 1 + 2 + 2 * 3
    assert (0, 1, 2) in found


@pytest.mark.parametrize(("least", "most"), list(itertools.product(range(5), (None, 0, 1, 2, 9))))
def test_every_walks_all_subsets(least: int, most: int | None) -> None:
    """The enumeration of subsets gives exactly those of the sizes asked for."""
    options = (4, 5, 6, 7)
    largest = 4 if most is None else min(most, 4)
    found = [tuple(each) for each in walked(lambda choices: choices.subset(options, least, most))]
    assert len(found) == len(set(found))
    if least <= largest:
        sizes = range(least, largest + 1)
        assert set(found) == {c for n in sizes for c in itertools.combinations(options, n)}


def test_every_without_a_choice() -> None:
    """A draw that decides nothing has one path."""
    assert walked(lambda choices: 5) == [5]
    assert walked(lambda choices: choices.integer(3, 3)) == [3]


def test_every_refuses_large_choices_by_name() -> None:
    """A single choice of more values than the bound is refused, and the message names the command."""
    assert len(walked(lambda choices: choices.integer(1, MOST_ENUMERATED))) == MOST_ENUMERATED
    large: list[Callable[[Choices], Any]] = [
        lambda choices: choices.integer(0, MOST_ENUMERATED),
        lambda choices: choices.pick(range(MOST_ENUMERATED + 1)),
        lambda choices: choices.integer(0, 2**40, (1,)),
    ]
    for draw in large:
        with pytest.raises(TooMany, match=r"free_page_ids: .* allows 64"):
            list(Every("free_page_ids").walk(draw))


def test_every_notices_a_draw_with_a_will_of_its_own() -> None:
    """A draw that isn't a function of its choices is an error, not a wrong enumeration."""
    sizes = iter((2, 3, 4))

    def draw(choices: Choices) -> int:
        return choices.integer(0, 1) + choices.integer(1, next(sizes))

    with pytest.raises(RuntimeError, match="a test"):
        walked(draw)


# ---- commands --------------------

COMMANDS = [(name, kind) for name, system in SYSTEMS.items() for kind in system.commands]
OFTEN = 200
ENOUGH_STATES = 25


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_every_command_can_be_drawn(name: str) -> None:
    """Each command drawn 200 times applies in its state, survives JSON, and makes a call."""
    system, known = SYSTEMS[name], SYSTEMS[name].by_name
    drawn: Counter[type[Command]] = Counter()
    for seed in range(400):
        choices = Seeded(f"draws/{name}/{seed}")
        lock = Lockstep(system, system.config.draw(choices, {}), impl.make)
        picker = Picker([kind for kind in system.commands if not kind.misuse])
        for _ in range(choices.integer(0, 12)):
            if (step := picker.draw(choices, lock.model)) is not None:
                lock.step(step)
        for kind in system.commands:
            if drawn[kind] < OFTEN and kind.enabled(lock.model):
                for _ in range(OFTEN // ENOUGH_STATES):
                    command = kind.draw(choices, lock.model)
                    assert command.applies(lock.model), str(command)
                    data = json.loads(json.dumps(command.to_json()))
                    assert from_json(data, known, "here") == command
                    call = command.call(lock.model, lock.model.side)
                    assert call.method in kind.methods, str(command)
                    drawn[kind] += 1
        if min(drawn[kind] for kind in system.commands) >= OFTEN:
            return
    rare = [kind.name() for kind in system.commands if drawn[kind] < OFTEN]
    pytest.fail(f"never enabled often enough: {rare}")


TINY: dict[str, list[Any]] = {
    "rows": [RowsConfig(size=1, width=1), RowsConfig(size=2, width=1)],
    "token": [TokenConfig(size=n, need_sort=sort) for n in (1, 2) for sort in (False, True)],
    "paged": [
        PagedConfig(page_size=size, num_pages=pages, spare=0, need_sort=sort)
        for size, pages, sort in ((1, 1, True), (1, 2, False), (2, 1, False), (2, 1, True))
    ],
}


def every(kind: type[Command], lock: Lockstep) -> list[Command]:
    """All that the command's own draw can make in this state, once each."""
    if not kind.enabled(lock.model):
        return []
    return list(dict.fromkeys(Every(kind.name()).walk(lambda c: kind.draw(c, lock.model))))


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_every_walk_of_two_steps(name: str) -> None:
    """On pools of one or two pages every command, then every command, passes in lockstep."""
    system, walked_by = SYSTEMS[name], set()
    for config in TINY[name]:
        start = Lockstep(system, config, impl.make)
        for first in [c for kind in system.commands for c in every(kind, start)]:
            lock = replayed(system, config, first)
            for kind in system.commands:
                seconds = every(kind, lock)
                assert all(command.applies(lock.model) for command in seconds)
                for second in seconds[:: max(1, len(seconds) // MOST_SECONDS)]:
                    replayed(system, config, first, second)
                    walked_by.add(kind)
    left = {kind.name() for kind in set(system.commands) - walked_by}
    assert left <= {"free_parked", "trim"}, f"not reached in two steps: {left}"


# Second steps of one kind that are run after each first one, evenly spread over all there are.
MOST_SECONDS = 3


def replayed(system: Any, config: Any, *commands: Command) -> Lockstep:
    lock = Lockstep(system, config, impl.make)
    for command in commands:
        lock.step(command)
    return lock
