"""Overlapped work: actors with yield points in one thread; the schedule is the trace.

Requests run through their lives while others hold on to what they had: a reader and a deferred free
by (row, generation), a copy in flight that reads pages. Each command is somebody's way to the next
yield point, so the order of commands is the schedule, and shrinks like anything else. Two replicas
of the subject get every call and must agree (I55).

A stale handle must be refused (I28), and is used here as often as a current one. A page with a copy
under way must not become available (I65): who gives it back then is wrong, whatever the subject
says. Schedules that are drawn wait for the copy; `properties.schedules` has those that don't.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from properties.choices import Choices
from properties.commands import Call, Command
from properties.lockstep import Lockstep
from properties.subjects.protocol import Subject
from properties.subjects.replicas import Replicas
from properties.systems.paged_rows import PAGED_ROWS
from properties.systems.paged_rows_growth import TABLE, DecodeRows, ExtendRows
from properties.systems.paged_rows_lines import Admit, GiveRows
from properties.systems.paged_rows_model import Handle, LineModel, LineSide
from properties.systems.paged_rows_release import FreeLine
from properties.systems.slot_model import Faults

MOST_ACTORS = 4  # drawn; a schedule may have more


@dataclass(frozen=True)
class Taken:
    """What an actor took down of a request: its name, its handle, how many tokens it had."""

    request: int
    handle: Handle
    length: int


class OverlapSide(LineSide):
    """One side's requests, and what the actors hold on to."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.taken: dict[int, Taken] = {}
        #: actor → the request, and the pages of it that are being copied
        self.copied: dict[int, tuple[int, frozenset[int]]] = {}

    def is_stale(self, taken: Taken) -> bool:
        """Whether the row was given back since, and to somebody else or not."""
        return self.pool.held.get(taken.request) != taken.handle

    def copy_faults(self) -> Faults:
        """I65: pages that are being copied and that somebody gave back."""
        owned = self.ledger.owned_pages()
        return [
            ("I65", f"pages {sorted(pages - owned)} are available while actor {actor} copies them")
            for actor, (_, pages) in self.copied.items()
            if pages - owned
        ]


class OverlapModel(LineModel):
    """The reference, the requests and the actors."""

    side: OverlapSide
    #: whether pages stay while they are copied; a schedule that says otherwise isn't the subject's
    waits = True

    def new_side(self) -> OverlapSide:
        return OverlapSide(self.config)

    @property
    def settled(self) -> list[int]:
        """The requests that nobody copies from."""
        busy = {name for name, _ in self.side.copied.values()}
        return [name for name in self.side.lines if name not in busy]


class Release(FreeLine):
    """A request gives back pages; drawn, it waits for copies of them."""

    weight: ClassVar[int] = 40

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return any(name in model.settled for name in cls.owners(model))

    @classmethod
    def draw(cls, choices: Choices, model: Any) -> Release:
        name = choices.pick([name for name in cls.owners(model) if name in model.settled])
        return cls(name, 0, True)

    def applies(self, model: Any) -> bool:
        waits: bool = model.waits
        return super().applies(model) and (not waits or self.request in model.settled)

    def settle(self, model: Any, side: Any, value: Any) -> Faults:
        faults: Faults = super().settle(model, side, value) + side.copy_faults()
        return faults


class ReleaseUnderCopy(Release):
    """A faulty caller's: a request gives back pages, and doesn't wait for the copy of them."""

    breaks: ClassVar[str] = "I65"

    @classmethod
    def busy(cls, model: Any) -> list[int]:
        return [name for name in cls.owners(model) if name not in model.settled]

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return bool(cls.busy(model))

    @classmethod
    def draw(cls, choices: Choices, model: Any) -> ReleaseUnderCopy:
        return cls(choices.pick(cls.busy(model)), 0, True)

    def applies(self, model: Any) -> bool:
        return FreeLine.applies(self, model) and self.request in self.busy(model)


# ---- actors --------------------

LOOK = "get_all_free_pages"  # a call that changes nothing, for steps of the harness itself


@dataclass(frozen=True)
class _Actor(Command):
    """What one actor does until its next yield point."""

    actor: int

    @classmethod
    def fitting(cls, model: OverlapModel) -> list[int]:
        """The actors that can do it."""
        raise NotImplementedError

    @classmethod
    def enabled(cls, model: OverlapModel) -> bool:
        return bool(cls.fitting(model))

    @classmethod
    def draw(cls, choices: Choices, model: OverlapModel) -> Any:
        return cls(choices.pick(cls.fitting(model)))

    def applies(self, model: OverlapModel) -> bool:
        return self.actor in type(self).fitting(model)


@dataclass(frozen=True)
class _OfRequest(_Actor):
    """An actor begins something with a request that holds a row."""

    methods: ClassVar[tuple[str, ...]] = (LOOK,)
    weight: ClassVar[int] = 16

    request: int

    @classmethod
    def fitting(cls, model: OverlapModel) -> list[int]:
        return list(range(MOST_ACTORS)) if model.side.lines else []

    @classmethod
    def draw(cls, choices: Choices, model: OverlapModel) -> Any:
        return cls(choices.pick(cls.fitting(model)), choices.pick(model.line_names))

    def applies(self, model: OverlapModel) -> bool:
        return self.actor >= 0 and self.request in model.side.lines

    def call(self, model: OverlapModel, side: OverlapSide) -> Call:
        return Call(LOOK)


class Take(_OfRequest):
    """Somebody takes down a request's (row, generation)."""

    def settle(self, model: OverlapModel, side: OverlapSide, value: Any) -> Faults:
        length = side.lines[self.request].length
        side.taken[self.actor] = Taken(self.request, side.pool.held[self.request], length)
        return []


class Use(_Actor):
    """A reader goes by what it took down: it writes through the handle what stands there."""

    methods: ClassVar[tuple[str, ...]] = ("write",)
    outcomes: ClassVar[tuple[str, ...]] = ("served", "refused")
    weight: ClassVar[int] = 40

    @classmethod
    def fitting(cls, model: OverlapModel) -> list[int]:
        return list(model.side.taken)

    def call(self, model: OverlapModel, side: OverlapSide) -> Call:
        handle = side.taken[self.actor].handle
        values = side.pool.table[handle[0]][:1]
        return Call(
            "write", {"indices": (handle[0], slice(0, 1)), "values": values, "handle": handle}
        )


class GiveBack(_Actor):
    """A deferred free lands: the pages of what was taken down go back, if they are still those."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows_segment",)
    outcomes: ClassVar[tuple[str, ...]] = ("served", "refused")
    weight: ClassVar[int] = 40

    @classmethod
    def fitting(cls, model: OverlapModel) -> list[int]:
        side = model.side
        return [actor for actor, taken in side.taken.items() if cls._as_taken(side, taken)]

    @staticmethod
    def _as_taken(side: OverlapSide, taken: Taken) -> bool:
        if side.is_stale(taken):
            return True
        line = side.lines[taken.request]
        return line.start == 0 and line.length == taken.length

    @classmethod
    def enabled(cls, model: OverlapModel) -> bool:
        return bool(cls._waiting(model))

    @classmethod
    def draw(cls, choices: Choices, model: OverlapModel) -> GiveBack:
        return cls(choices.pick(cls._waiting(model)))

    @classmethod
    def _waiting(cls, model: OverlapModel) -> list[int]:
        """The actors that can do it without giving back what is being copied."""
        side = model.side
        return [
            actor
            for actor in cls.fitting(model)
            if side.is_stale(side.taken[actor]) or side.taken[actor].request in model.settled
        ]

    def applies(self, model: OverlapModel) -> bool:
        return self.actor in (self._waiting if model.waits else self.fitting)(model)

    def call(self, model: OverlapModel, side: OverlapSide) -> Call:
        taken = side.taken[self.actor]
        args = {"handle": taken.handle, "start": 0, "end": taken.length, "table": TABLE}
        return Call("free_rows_segment", args)

    def settle(self, model: OverlapModel, side: OverlapSide, value: Any) -> Faults:
        taken = side.taken.pop(self.actor)
        faults = side.give_line(taken.request, 0, model.group, by_slots=False)
        return faults + side.copy_faults()


class CopyBegin(_OfRequest):
    """A copy of a request's pages is under way."""

    @classmethod
    def fitting(cls, model: OverlapModel) -> list[int]:
        idle = [actor for actor in range(MOST_ACTORS) if actor not in model.side.copied]
        return idle if model.side.lines else []

    def applies(self, model: OverlapModel) -> bool:
        return super().applies(model) and self.actor not in model.side.copied

    def settle(self, model: OverlapModel, side: OverlapSide, value: Any) -> Faults:
        pages = frozenset(side.pages(side.lines[self.request].slots))
        side.copied[self.actor] = (self.request, pages)
        return []


class CopyEnd(_Actor):
    """The copy is done."""

    methods: ClassVar[tuple[str, ...]] = (LOOK,)
    weight: ClassVar[int] = 40

    @classmethod
    def fitting(cls, model: OverlapModel) -> list[int]:
        return list(model.side.copied)

    def call(self, model: OverlapModel, side: OverlapSide) -> Call:
        return Call(LOOK)

    def settle(self, model: OverlapModel, side: OverlapSide, value: Any) -> Faults:
        del side.copied[self.actor]
        return []


class OverlapLockstep(Lockstep):
    """In lockstep with two replicas of the subject."""

    def __init__(self, system: Any, config: Any, make: Any, *args: Any, **more: Any) -> None:
        def twice(name: str, asked: Any) -> Subject:
            return cast(Subject, Replicas(make(name, asked), make(name, asked)))

        super().__init__(system, config, twice, *args, **more)
        self._make = make


OVERLAP = replace(
    PAGED_ROWS,
    name="overlap",
    commands=(
        Admit, GiveRows, ExtendRows, DecodeRows, Release, Take, Use, GiveBack, CopyBegin, CopyEnd,
    ),
    situations=(),
    model=OverlapModel,
    lockstep=OverlapLockstep,
    faulty=(ReleaseUnderCopy,),
    made_as="paged_rows",
    small=None,  # what actors hold on to is in no snapshot
)  # fmt: skip
