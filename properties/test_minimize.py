"""The minimiser on planted bugs: what comes out is short, stable, and breaks the same invariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from properties.commands import Command
from properties.invariants import Violation
from properties.minimize import minimize
from properties.seeded import Plan, run_steps
from properties.subjects import Factory, impl
from properties.systems import SYSTEMS
from properties.systems.growth import Decode, Extend
from properties.systems.paged import PagedConfig
from properties.systems.protocol_misuse import NestedGroup
from properties.systems.releases import Free, FreeFull
from properties.systems.row_commands import Admit, Clear, TakeRows
from properties.systems.rows import RowsConfig
from properties.systems.slots import Alloc, GroupBegin
from properties.systems.token import TokenConfig
from properties.trace import Replay, Trace

Plant = Callable[[Any], None]


def lossy(target: Any) -> None:
    """Loses what `free` gives back."""
    target.free = lambda free_index: None


def timid(target: Any) -> None:
    """`alloc` leaves the last page of the pool alone."""
    honest = target.alloc
    target.alloc = lambda need_size: (
        None if need_size and need_size == target.available_size() else honest(need_size)
    )


def nesting(target: Any) -> None:
    """A group inside a group is quietly accepted."""
    honest = target.free_group_begin
    target.free_group_begin = lambda: None if target.snapshot()["group"] else honest()


def resetting(target: Any) -> None:
    """`clear` sets the generations of rows back to 0."""
    honest = target.clear

    def clear() -> None:
        honest()
        target.req_generation.zero_()

    target.clear = clear


def of(plant: Plant, misuse: bool = False, **options: Any) -> Factory:
    """Our own allocators with a planted bug."""

    def make(system: str, config: Any) -> Any:
        subject = impl.make(system, config)
        plant(subject.target)
        # A trace that grows its pool by `resize` has two sizes to shrink at once: not our theme.
        subject.calls -= {"resize"}
        return subject

    return Factory(name=plant.__name__, make=make, level="exact", misuse=misuse, **options)


def found(system: str, factory: Factory, seed: int = 0) -> Trace:
    """What the seeded driver finds, long as it is."""
    plan = Plan(system=SYSTEMS[system], factory=factory, seed=seed)
    _, finding = run_steps(plan, 5000)
    assert finding is not None
    return finding.trace


ONE_PAGE = PagedConfig(page_size=1, num_pages=1, spare=0, need_sort=False)
ONE_SLOT = TokenConfig(size=1, need_sort=False)
ALL = ((0, 0),)
LOST = (Free, FreeFull)  # both end in `free`
# Every way to write the minimal trace; which of them comes out depends on what was found.
PLANTED: list[tuple[str, Plant, str, Any, list[tuple[Command, ...]]]] = [
    ("token", lossy, "I2", ONE_SLOT, [(Alloc(0, 1), give(ALL, "all")) for give in LOST]),
    (
        "paged",
        lossy,
        "I2",
        ONE_PAGE,
        [
            (first, give(ALL, "all"))
            for give in LOST
            for first in (Alloc(0, 1), Decode((0,), False), Extend(((0, 1),), False, False))
        ],
    ),
    ("paged", timid, "I11", ONE_PAGE, [(Alloc(0, 1),)]),
    ("token", nesting, "I21", ONE_SLOT, [(GroupBegin(), NestedGroup())]),
    (
        "rows",
        resetting,
        "I28",
        RowsConfig(size=1, width=1),
        [(first, Clear()) for first in (TakeRows((0,)), Admit((0,)))],
    ),
]
IDS = [f"{plant.__name__} {system}" for system, plant, *_ in PLANTED]


@pytest.mark.parametrize(("system", "plant", "number", "config", "ways"), PLANTED, ids=IDS)
def test_minimal_trace_of_a_planted_bug(
    system: str, plant: Plant, number: str, config: Any, ways: list[tuple[Command, ...]]
) -> None:
    """Whatever the seed, a planted bug comes down to a trace that a person would write."""
    factory = of(plant, misuse=plant is nesting)
    for seed in range(3):
        trace = found(system, factory, seed)
        minimal = minimize(trace, factory)
        assert (trace.invariant, minimal.invariant) == (number, number)
        assert minimal.config == config
        assert minimal.commands in ways


@pytest.mark.parametrize(("system", "plant"), [each[:2] for each in PLANTED], ids=IDS)
def test_minimising_is_idempotent(system: str, plant: Plant) -> None:
    """A minimal trace stays as it is, and its last command breaks its invariant."""
    factory = of(plant, misuse=plant is nesting)
    minimal = minimize(found(system, factory), factory)
    assert minimize(minimal, factory) == minimal
    replay = Replay(minimal, factory.make)
    violation = replay.run()
    assert isinstance(violation, Violation)
    assert violation.number == minimal.invariant
    assert tuple(replay.executed) == minimal.commands
