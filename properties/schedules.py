"""All schedules of a few actors, and which of them must go wrong.

Each actor is a script of steps with a yield point behind each; a schedule says whose step is next.
`stale` follows a schedule with a row count and a few flags, knowing nothing of allocators: whether
somebody uses what is gone, through a handle or by copying. Run on a subject (`run`) exactly those
schedules must end in a refusal or a violation. Spec: `spec/core.md` §2, §5a.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from properties.choices import Choices
from properties.commands import Command
from properties.invariants import Violation
from properties.seeded import Finding, Plan, trace_of
from properties.systems.overlap import (
    OVERLAP,
    CopyBegin,
    CopyEnd,
    GiveBack,
    Release,
    Take,
    Use,
)
from properties.systems.paged_rows_growth import ExtendRows
from properties.systems.paged_rows_lines import Admit, GiveRows

#: name of an actor's part → its steps, for three and for four of them
SCRIPTS = {
    "request": (
        ("admit", "extend", "leave"),
        ("admit", "extend", "extend", "leave"),
    ),
    "burst": (("admit", "extend", "release"), ("admit", "extend", "release", "leave")),
    "reader": (("take", "use", "use"), ("take", "use", "use", "use")),
    "late free": (("take", "wait", "give back"), ("take", "wait", "wait", "give back")),
    "copy": (("begin", "wait", "end"), ("begin", "wait", "wait", "end")),
}
#: the parts of three actors; the first one's request is what the others are about
CASTS = (
    ("request", "request", "reader"),
    ("request", "request", "late free"),
    ("request", "reader", "late free"),
    ("request", "reader", "copy"),
    ("request", "late free", "copy"),
    ("burst", "copy", "request"),
    ("burst", "copy", "copy"),
    ("burst", "copy", "reader"),
)
# With one row the second request waits for the first to leave, and gets its row: reuse.
ROWS = (1, 2)
MOST_PAGES = 24  # more than all requests of a schedule ever have
TOKENS = 5  # of a page size of 4: a page and a half-filled one


@dataclass(frozen=True)
class Schedule:
    """Who the actors are, how many rows there are, and whose steps come in which order."""

    cast: tuple[str, ...]
    rows: int
    order: tuple[int, ...]

    def steps(self) -> Iterator[tuple[int, str]]:
        """(actor, step) in order."""
        length = len(self.order) // len(self.cast)
        done = [0] * len(self.cast)
        for actor in self.order:
            yield actor, SCRIPTS[self.cast[actor]][length - 3][done[actor]]
            done[actor] += 1


def orders(actors: int, steps: int) -> Iterator[tuple[int, ...]]:
    """All ways to interleave so many actors of so many steps each."""
    left = [steps] * actors
    order: list[int] = []

    def more() -> Iterator[tuple[int, ...]]:
        if len(order) == actors * steps:
            yield tuple(order)
            return
        for actor in range(actors):
            if left[actor]:
                left[actor] -= 1
                order.append(actor)
                yield from more()
                order.pop()
                left[actor] += 1

    yield from more()


def every(steps: int) -> Iterator[Schedule]:
    """All schedules of three actors of three or four steps."""
    for cast, rows in product(CASTS, ROWS):
        for order in orders(len(cast), steps):
            yield Schedule(cast, rows, order)


def drawn(choices: Choices, most_actors: int = 6) -> Schedule:
    """A schedule of any number of actors."""
    steps = choices.integer(3, 4)
    cast = (
        "request",
        *(choices.pick(sorted(SCRIPTS)) for _ in range(choices.integer(1, most_actors))),
    )
    left = [actor for actor in range(len(cast)) for _ in range(steps)]
    order = [left.pop(choices.integer(0, len(left) - 1)) for _ in range(len(left))]
    return Schedule(cast, choices.integer(1, len(cast)), tuple(order))


# ---- what must go wrong --------------------


@dataclass
class _World:
    """Who has a row and how much, and who holds on to what of the first one's request."""

    rows: int
    held: set[int] = field(default_factory=set)
    #: how often the request of an actor has grown since it had nothing
    grown: dict[int, int] = field(default_factory=dict)
    #: actor → how much the first request had when it was taken down
    taken: dict[int, int] = field(default_factory=dict)
    copies: set[int] = field(default_factory=set)


def stale(schedule: Schedule) -> bool:
    """Whether somebody uses a handle whose row was given back, or pages go that are copied."""
    world = _World(schedule.rows)
    return any(_goes_wrong(world, actor, step) for actor, step in schedule.steps())


def _goes_wrong(world: _World, actor: int, step: str) -> bool:
    """Follows one step."""
    first = 0 in world.held
    match step:
        case "admit" if len(world.held) < world.rows:
            world.held.add(actor)
        case "extend" if actor in world.held:
            world.grown[actor] = world.grown.get(actor, 0) + 1
        case "leave":
            world.held.discard(actor)
        case "take" if first:
            world.taken[actor] = world.grown.get(0, 0)
        case "use":
            return actor in world.taken and not first
        case "give back" if actor in world.taken:
            # Lands where the request still is what was taken down.
            as_taken = world.taken[actor] == world.grown.get(0, 0)
            return not first or (as_taken and _goes(world, 0))
        case "release" if actor in world.held:
            return _goes(world, actor)
        case "begin" if first and world.grown.get(0):
            world.copies.add(actor)
        case "end":
            world.copies.discard(actor)
    return False


def _goes(world: _World, actor: int) -> bool:
    """An actor's pages go back: wrong while they are copied."""
    return world.grown.pop(actor, 0) > 0 and actor == 0 and bool(world.copies)


# ---- what does --------------------


def commands(schedule: Schedule) -> list[Command]:
    """The schedule as commands; steps that have nothing to do yet are left out."""
    found: list[Command] = []
    names: dict[int, int] = {}
    held: set[int] = set()
    for actor, step in schedule.steps():
        if step == "admit" and len(held) < schedule.rows:
            names[actor] = len(names)
            held.add(actor)
        found += _commands(actor, step, names.get(actor), names.get(0))
        if step == "leave":
            held.discard(actor)
    return found


def _commands(actor: int, step: str, mine: int | None, first: int | None) -> list[Command]:
    if step in ("admit", "extend", "leave", "release"):
        if mine is None:
            return []
        made: dict[str, Command] = {
            "admit": Admit((mine,)),
            "extend": ExtendRows(((mine, TOKENS),), False),
            "leave": GiveRows((mine,)),
            "release": Release(mine, 0, True),
        }
        return [made[step]]
    if step in ("take", "begin"):
        if first is None:
            return []
        return [Take(actor, first) if step == "take" else CopyBegin(actor, first)]
    ends: dict[str, Command] = {
        "use": Use(actor), "give back": GiveBack(actor), "end": CopyEnd(actor),
    }  # fmt: skip
    return [ends[step]] if step in ends else []


@dataclass(frozen=True)
class Ran:
    """How a schedule went: whether a command was refused, and what was violated."""

    refused: bool
    finding: Finding | None

    @property
    def wrong(self) -> bool:
        return self.refused or self.finding is not None


class Runner:
    """Runs schedules on a plan's subject; those that come to the same commands once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._ran: dict[tuple[int, tuple[Command, ...]], Ran] = {}

    @property
    def distinct(self) -> int:
        """How many were really run."""
        return len(self._ran)

    def run(self, schedule: Schedule) -> Ran:
        """How a schedule goes."""
        key = (schedule.rows, tuple(commands(schedule)))
        if key not in self._ran:
            self._ran[key] = _run(schedule.rows, key[1], self.plan)
        return self._ran[key]


def _run(rows: int, given: Sequence[Command], plan: Plan) -> Ran:
    """Runs commands to their end or to the first violation."""
    lock = None
    config = OVERLAP.config(
        page_size=4, num_pages=MOST_PAGES, spare=0, need_sort=False, rows=rows, width=2 * TOKENS,
    )  # fmt: skip
    refused = False
    try:
        lock = OVERLAP.lockstep(OVERLAP, config, plan.factory.make, plan.judged()[0])
        lock.model.waits = False
        for command in given:
            if command.applies(lock.model):
                outcome = lock.step(command)
                refused = refused or (outcome is not None and outcome.kind == "refused")
        lock.close()
    except Violation as violation:
        return Ran(refused, Finding(violation, trace_of(plan, lock, violation, config)))
    return Ran(refused, None)
