"""All schedules of a few actors, and which of them must go wrong.

Each actor is a script of steps with a yield point behind each; a schedule says whose step is next.
`stale` follows a schedule with a row count and a few flags, knowing nothing of allocators: whether
somebody uses what is gone, through a handle or by copying. Run on a subject (`run`) exactly those
schedules must end in a refusal or a violation. Spec: `spec/core.md` §2, §5a.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product, takewhile
from typing import Any

from properties.choices import Choices
from properties.commands import Command
from properties.invariants import Violation
from properties.lockstep import Lockstep
from properties.memento import Memento, can_be_saved
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


@dataclass
class _Run:
    """One run, and how to come back to points of it: the next schedule mostly begins alike."""

    rows: int
    lock: Lockstep
    #: whether a memento can hold it; if not, every schedule has a run of its own
    saves: bool
    refused: bool = False
    given: list[Command] = field(default_factory=list)
    #: number of commands → how it was behind them, and whether one of them was refused
    points: dict[int, tuple[Memento, bool]] = field(default_factory=dict)

    def step(self, command: Command) -> None:
        """Runs a command if it applies."""
        self.given.append(command)
        if command.applies(self.lock.model):
            outcome = self.lock.step(command)
            self.refused = self.refused or (outcome is not None and outcome.kind == "refused")

    def back(self, commands: Sequence[Command]) -> None:
        """Back to where these commands part from those of this run."""
        pairs = zip(self.given, commands, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.points = {count: point for count, point in self.points.items() if count <= alike}
        if self.points:
            nearest = max(self.points)
            memento, self.refused = self.points[nearest]
            memento.restore()
            del self.given[nearest:]
        for command in commands[len(self.given) : alike]:
            self.step(command)
        # Where two schedules part a third one mostly does.
        if self.saves and alike not in self.points:
            self.points[alike] = Memento(self.lock), self.refused


class Runner:
    """Runs schedules on a plan's subject; those that come to the same commands once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._ran: dict[tuple[int, tuple[Command, ...]], Ran] = {}
        self._last: _Run | None = None

    @property
    def distinct(self) -> int:
        """How many were really run."""
        return len(self._ran)

    def run(self, schedule: Schedule) -> Ran:
        """How a schedule goes."""
        key = (schedule.rows, tuple(commands(schedule)))
        if key not in self._ran:
            self._ran[key] = self._run(*key)
        return self._ran[key]

    def _run(self, rows: int, given: Sequence[Command]) -> Ran:
        """Runs commands to their end or to the first violation."""
        run: _Run | None = None
        try:
            run = self._begun(rows)
            run.back(given)
            for command in given[len(run.given) :]:
                run.step(command)
            run.lock.close()
        except Violation as violation:
            lock = None if run is None else run.lock
            trace = trace_of(self.plan, lock, violation, _config(rows))
            return Ran(run is not None and run.refused, Finding(violation, trace))
        return Ran(run.refused, None)

    def _begun(self, rows: int) -> _Run:
        """The last run if it has as many rows, else a new one."""
        last = self._last
        if last is None or last.rows != rows or not last.saves:
            make, level = self.plan.factory.make, self.plan.judged()[0]
            lock = OVERLAP.lockstep(OVERLAP, _config(rows), make, level)
            lock.model.waits = False
            self._last = last = _Run(rows, lock, can_be_saved(lock))
        return last


def _config(rows: int) -> Any:
    """A pool that is large enough for every schedule."""
    return OVERLAP.config(
        page_size=4, num_pages=MOST_PAGES, spare=0, need_sort=False, rows=rows, width=2 * TOKENS,
    )  # fmt: skip
