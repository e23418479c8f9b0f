"""The commands of the state slot allocator, legal use and misuse.

Follows `spec/pools_states_sizing.md` §2 and `spec/core.md` §4b. What is done to a pool of single
slots is done as to the token allocator, by the methods that this one has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems import misuse, protocol_misuse, releases, scoped, slots
from properties.systems.slot_model import Faults, Side
from properties.systems.state_slots_model import NONE_PARKED, StateSlotModel

_FREE: tuple[str, ...] = ("free",)
_GROUPS: tuple[str, ...] = ("alloc_group_begin", "alloc_group_end")


class Alloc(slots.Alloc):
    """A new request takes slots; inside a group one alone is taken from what is parked."""

    def demand(self, model: StateSlotModel) -> int:  # type: ignore[override]
        return 0 if self.pages == 1 and model.parked else self.pages


@dataclass(frozen=True)
class AllocOne(Command):
    """A new request takes one slot, as in a group."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    weight: ClassVar[int] = 40
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = slots.Alloc.never

    request: int

    @classmethod
    def enabled(cls, model: StateSlotModel) -> bool:
        return Alloc.enabled(model) or (bool(model.parked) and model.openings > 0)

    @classmethod
    def draw(cls, choices: Choices, model: StateSlotModel) -> AllocOne:
        return cls(model.next_name)

    def applies(self, model: StateSlotModel) -> bool:
        return self._taking.applies(model)

    @property
    def _taking(self) -> Alloc:
        return Alloc(self.request, 1)

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return self._taking.call(model, side)

    def settle(self, model: StateSlotModel, side: Side, value: list[int]) -> Faults:
        return self._taking.settle(model, side, value)

    def demand(self, model: StateSlotModel) -> int:
        return self._taking.demand(model)


class Free(releases.Free):
    """Slots go back, all or some of a few requests'."""

    def plainly(self) -> None:  # type: ignore[override]
        return None


@dataclass(frozen=True)
class FreeNothing(Command):
    """`free` of no slots."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = _FREE

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return Call("free", {"free_index": []})


@dataclass(frozen=True)
class GroupBegin(Command):
    """Opens a group for so many requests; where they aren't all there, an empty one."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = _GROUPS
    weight: ClassVar[int] = 14
    # a group that is open can't be opened
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("served", "inside a group"), ("served", NONE_PARKED)}
    )

    count: int

    @classmethod
    def enabled(cls, model: StateSlotModel) -> bool:
        return not model.in_group

    @classmethod
    def draw(cls, choices: Choices, model: StateSlotModel) -> GroupBegin:
        free = len(model.state["free"])
        if model.scope is not None:
            return cls(scoped.amount(choices, free))
        return cls(choices.integer(0, min(free + 1, 5), (2, free, free + 1)))

    def applies(self, model: StateSlotModel) -> bool:
        return not model.in_group and self.count >= 0

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return Call("alloc_group_begin", {"num_reqs": self.count})


@dataclass(frozen=True)
class GroupEnd(Command):
    """Closes the group; what nobody took goes back."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = _GROUPS
    weight: ClassVar[int] = 14

    @classmethod
    def enabled(cls, model: StateSlotModel) -> bool:
        return model.in_group

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return Call("alloc_group_end")


@dataclass(frozen=True)
class Schedulable(Command):
    """`schedulable_available_size`: on a static pool what is available."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("schedulable_available_size",)
    weight: ClassVar[int] = 2

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return Call("schedulable_available_size")

    def answer_faults(self, model: StateSlotModel, call: Call, value: Any) -> Faults:
        due = len(model.state["free"])
        return (
            [] if value == due else [("I2", f"{value} slots may be planned with, {due} are free")]
        )


LEGAL: tuple[type[Command], ...] = (
    Alloc, AllocOne, Free, FreeNothing, GroupBegin, GroupEnd, slots.Clear, Schedulable,
)  # fmt: skip


# ---- misuse --------------------


class FreeOutOfRange(misuse.FreeOutOfRange):
    """A slot below 0 or above the last."""

    methods: ClassVar[tuple[str, ...]] = _FREE


class FreeReserved(misuse.FreeReserved):
    """Slot 0, where padded lanes write."""

    methods: ClassVar[tuple[str, ...]] = _FREE


class FreeUnissued(misuse.FreeUnissued):
    """A slot that was never handed out since the last clear; a group may have it."""

    methods: ClassVar[tuple[str, ...]] = _FREE
    weight: ClassVar[int] = 16
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()


class FreeAgain(misuse.FreeAgain):
    """A slot that was freed already; a group may have taken it since."""

    methods: ClassVar[tuple[str, ...]] = _FREE


class FreeTooMany(misuse.FreeTooMany):
    """More slots than are out."""

    methods: ClassVar[tuple[str, ...]] = _FREE
    weight: ClassVar[int] = 4

    @classmethod
    def draw(cls, choices: Choices, model: Any) -> FreeTooMany:
        return cls("free")


class FreeTwiceInCall(misuse.FreeTwiceInCall):
    """A slot named twice in one call."""

    methods: ClassVar[tuple[str, ...]] = _FREE


class WrongDtype(protocol_misuse.WrongDtype):
    """Floats where ids or counts belong."""

    methods: ClassVar[tuple[str, ...]] = ("alloc", "free")


class WrongShape(protocol_misuse.WrongShape):
    """A matrix where a list belongs."""

    methods: ClassVar[tuple[str, ...]] = _FREE


class WrongDevice(protocol_misuse.WrongDevice):
    """A tensor on another device."""

    methods: ClassVar[tuple[str, ...]] = _FREE


@dataclass(frozen=True)
class NegativeGroup(misuse.Misuse):
    """A group for a negative number of requests; inside another one that is the smaller fault."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = _GROUPS

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return Call("alloc_group_begin", {"num_reqs": -1})


@dataclass(frozen=True)
class NestedGroup(misuse.Misuse):
    """A group inside a group."""

    of_pool: ClassVar[bool] = True
    weight: ClassVar[int] = 6  # groups are open for a small part of a run
    methods: ClassVar[tuple[str, ...]] = _GROUPS

    count: int

    @classmethod
    def enabled(cls, model: StateSlotModel) -> bool:
        return model.in_group

    @classmethod
    def draw(cls, choices: Choices, model: StateSlotModel) -> NestedGroup:
        return cls(choices.integer(0, 1))

    def applies(self, model: StateSlotModel) -> bool:
        return model.in_group and self.count >= 0

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return Call("alloc_group_begin", {"num_reqs": self.count})


@dataclass(frozen=True)
class EndWithoutGroup(misuse.Misuse):
    """The end of a group that was never begun."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = _GROUPS
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("refused", "inside a group"), ("refused", NONE_PARKED)}
    )

    @classmethod
    def enabled(cls, model: StateSlotModel) -> bool:
        return not model.in_group

    def call(self, model: StateSlotModel, side: Side) -> Call:
        return Call("alloc_group_end")


MISUSE: tuple[type[Command], ...] = (
    misuse.NegativeAlloc, FreeOutOfRange, FreeReserved, FreeUnissued, FreeAgain, FreeTooMany,
    FreeTwiceInCall, WrongDtype, WrongShape, WrongDevice, NegativeGroup, NestedGroup,
    EndWithoutGroup,
)  # fmt: skip
