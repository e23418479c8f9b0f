"""What the minimiser may not do: leave the limits of a subject, the invariant or the command."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from properties.commands import Command
from properties.minimize import MOST_REPLAYS, minimize, variants, weight
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.systems.growth import Decode, Extend
from properties.systems.paged import PagedConfig
from properties.systems.releases import Free, FreeFull
from properties.systems.row_commands import TakeRows
from properties.systems.rows import RowsConfig
from properties.systems.slots import Alloc, GroupBegin, GroupEnd, Merge
from properties.systems.token import TokenConfig
from properties.test_minimize import found, lossy, nesting, of
from properties.trace import Replay, Trace


def test_another_invariant_is_not_taken() -> None:
    """A shorter trace that breaks something else is refused: the invariant is held fixed."""

    def both(target: Any) -> None:
        """Nested groups are accepted, and a group's end loses what was freed."""
        nesting(target)
        target.free_group_end = lambda: target.clear()

    factory = of(both, misuse=True)
    trace = Trace(
        system=SYSTEMS["token"],
        config=TokenConfig(size=3, need_sort=False),
        commands=(Alloc(0, 1), GroupBegin(), GroupEnd()),
        invariant="I34",
    )
    minimal = minimize(trace, factory)
    assert minimal.commands == trace.commands
    assert minimal.config.size == 1
    violation = Replay(minimal, factory.make).run()
    assert violation is not None
    assert violation.number == "I34"


def test_unreproducible_trace_is_left_alone() -> None:
    """A trace that breaks nothing any more, or something else, comes back as it was."""
    trace = found("token", of(lossy))
    assert minimize(trace, of(lambda target: None)) == trace
    wrong = replace(trace, invariant="I71")
    assert minimize(wrong, of(lossy)) == wrong


def test_random_subject_ends() -> None:
    """On a subject that fails at random minimising ends, with a part of the trace it was given."""
    chance, made = random.Random(0), []

    def moody(target: Any) -> None:
        """Loses one free in three."""
        made.append(target)
        honest = target.free
        target.free = lambda free_index: None if chance.random() < 0.3 else honest(free_index)

    factory = of(moody)
    trace = found("token", factory)
    so_far = len(made)
    minimal = minimize(trace, factory)
    assert len(made) - so_far <= MOST_REPLAYS
    assert minimal.invariant == trace.invariant == "I2"
    assert len(minimal.commands) <= len(trace.commands)
    assert {type(command) for command in minimal.commands} <= {type(c) for c in trace.commands}


def test_no_replay_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of replays is bounded, and what was reached by then is returned."""
    trace = Trace(
        system=SYSTEMS["token"],
        config=TokenConfig(size=16, need_sort=False),
        commands=(Alloc(0, 1), *(Alloc(name, 0) for name in range(1, 32)), Free(((0, 0),), "all")),
        invariant="I2",
    )
    monkeypatch.setattr("properties.minimize.MOST_REPLAYS", 9)
    minimal = minimize(trace, of(lossy))
    assert 2 < len(minimal.commands) < len(trace.commands)
    monkeypatch.setattr("properties.minimize.MOST_REPLAYS", 20_000)
    monkeypatch.setattr("properties.minimize.LONGEST_SECONDS", -1.0)
    assert minimize(trace, of(lossy)) == trace


def test_limits_of_the_subject_hold() -> None:
    """A config is never shrunk to one that the subject doesn't claim to have."""
    seen = []
    limits = {"paged": {"page_size": (3, 4), "num_pages": (5, 8), "need_sort": (True,)}}

    def watching(target: Any) -> None:
        """Loses frees, and notes how it was built."""
        seen.append((target.page_size, target.size // target.page_size, target.need_sort))
        lossy(target)

    factory = of(watching, limits=limits)
    minimal = minimize(found("paged", factory), factory)
    assert minimal.config == PagedConfig(page_size=3, num_pages=5, spare=0, need_sort=True)
    assert set(seen) <= {(size, pages, True) for size in (3, 4) for pages in (5, 8)}
    assert len(minimal.commands) == 2


def test_commands_are_joined() -> None:
    """Two commands of a kind become one that names the requests of both, where that still fails."""
    decoded: list[int] = []

    def tired(target: Any) -> None:
        """`alloc_decode` serves no second token."""
        honest = target.alloc_decode
        decoded.clear()

        def alloc_decode(seq_lens: Any, **others: Any) -> Any:
            decoded.extend(seq_lens.tolist())
            return None if len(decoded) > 1 else honest(seq_lens=seq_lens, **others)

        target.alloc_decode = alloc_decode

    trace = Trace(
        system=SYSTEMS["paged"],
        config=PagedConfig(page_size=4, num_pages=4, spare=1, need_sort=True),
        commands=(Alloc(2, 0), Decode((4,), True), Alloc(6, 1), Decode((7,), False)),
        invariant="I11",
    )
    minimal = minimize(trace, of(tired))
    assert minimal.config == PagedConfig(page_size=1, num_pages=2, spare=0, need_sort=False)
    assert minimal.commands == (Decode((0, 1), False),)


def test_pairs_are_dropped() -> None:
    """Two commands that only together can go do go."""

    def even(target: Any) -> None:
        """`alloc` fails after an even number of merges."""
        honest, merges = target.alloc, [0]

        def merge() -> None:
            merges[0] += 1

        target.merge_and_sort_free = merge
        target.alloc = lambda need_size: honest(need_size) if merges[0] % 2 else None

    trace = Trace(
        system=SYSTEMS["token"],
        config=TokenConfig(size=1, need_sort=False),
        commands=(Merge(), GroupBegin(), Merge(), Alloc(0, 1)),
        invariant="I11",
    )
    assert minimize(trace, of(even)).commands == (Alloc(0, 1),)


def test_same_command_is_kept() -> None:
    """Asked to keep the last command's kind, the minimiser takes no shorter way without it."""

    def loses_second(target: Any) -> None:
        """Loses what comes back from the second slot on."""
        honest, freed = target.free, []

        def free(free_index: Any) -> None:
            freed.extend(free_index.tolist())
            honest(free_index if len(freed) < 2 else free_index[:0])

        target.free = target.free_full = free

    trace = Trace(
        system=SYSTEMS["token"],
        config=TokenConfig(size=6, need_sort=False),
        commands=(Alloc(0, 3), Free(((0, 1),), "all"), FreeFull(((0, -1),), "reversed")),
        invariant="I2",
    )
    factory, parts = of(loses_second), ((0, 0),)
    assert minimize(trace, factory).commands == (Alloc(0, 2), Free(parts, "all"))
    kept = minimize(trace, factory, same_command=True)
    assert kept.commands == (Alloc(0, 2), FreeFull(parts, "all"))


def test_variants_are_lighter() -> None:
    """Every simpler form of a command weighs less than the command, and keeps its kind."""
    for command in (
        Extend(((3, 7), (1, 2)), True, True),
        Free(((2, -3), (5, 1)), "twice"),
        Alloc(4, 9),
        TakeRows((1, 2, 3)),
    ):
        system = SYSTEMS["rows" if isinstance(command, TakeRows) else "paged"]
        config: Any = RowsConfig(size=1, width=1)
        if system.name == "paged":
            config = PagedConfig(page_size=1, num_pages=1, spare=0, need_sort=False)
        whole = Trace(system=system, config=config, commands=(command,))
        found_variants = list(variants(command))
        assert len(found_variants) > 2
        for variant in found_variants:
            assert type(variant) is type(command)
            assert weight(whole.with_commands([variant])) < weight(whole)


def test_a_long_trace_costs_few_commands() -> None:
    """Where the last few commands do, those before them are run a few times, not hundreds."""
    given = (*(Alloc(name, 1) for name in range(400)), Merge(), GroupBegin(), GroupBegin())
    trace = Trace(
        system=SYSTEMS["token"], config=TokenConfig(size=3, need_sort=False), commands=given,
        invariant="I2",
    )  # fmt: skip
    ran: list[int] = []

    def judge(candidate: Trace) -> tuple[str | None, tuple[Command, ...]]:
        """Breaks where two groups are opened."""
        ran.append(len(candidate.commands))
        fails = candidate.commands.count(GroupBegin()) == 2
        return ("I2" if fails else None), tuple(candidate.commands)

    minimal = minimize(trace, load("reference"), judge=judge)
    assert minimal.commands == (GroupBegin(), GroupBegin())
    assert sum(ran) < 1.2 * len(given)
