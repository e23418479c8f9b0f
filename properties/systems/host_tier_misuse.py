"""Misuse of the host slots as commands: each must be refused, and nothing changes.

Follows `spec/interleave_hisparse_host_prefix.md` §4.4, §4.11 and `spec/core.md` §4b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.host_tier_model import HostModel, HostSide

#: so many faults of one kind are told apart by a number, and one less
MOST_KINDS = 11


@dataclass(frozen=True)
class Misuse(Command):
    """Base: `amount` tells apart what is alike."""

    misuse: ClassVar[bool] = True
    weight: ClassVar[int] = 3
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)

    amount: int

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Any:
        return cls(choices.integer(0, MOST_KINDS))

    def applies(self, model: HostModel) -> bool:
        return self.amount >= 0 and type(self).enabled(model)

    def pick(self, options: list[Any]) -> Any:
        return options[self.amount % len(options)]


class AllocNegative(Misuse):
    """Fewer slots than none."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("alloc", {"need_size": -1 - self.amount})


class AllocPartOfPage(Misuse):
    """Slots that aren't whole pages."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.config.page_size > 1)

    def call(self, model: HostModel, side: HostSide) -> Call:
        size = model.config.page_size
        return Call("alloc", {"need_size": self.amount * size + 1 + self.amount % (size - 1)})


class _OfFree(Misuse):
    """Base: a free that has a fault."""

    methods: ClassVar[tuple[str, ...]] = ("free",)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        """The slots; none where this side has nothing of the kind."""
        raise NotImplementedError

    def call(self, model: HostModel, side: HostSide) -> Call | None:  # type: ignore[override]
        slots = self.slots(model, side)
        return Call("free", {"free_index": slots}) if slots else None

    def page(self, model: HostModel, slots: set[int]) -> list[int]:
        """One of the pages of these slots."""
        size = model.config.page_size
        firsts = sorted(slot for slot in slots if slot % size == 0)
        return list(range(first := self.pick(firsts), first + size)) if firsts else []


class _OfHeld(_OfFree):
    """Base: beside the slots of somebody who has some."""

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.host)

    def held(self, model: HostModel, side: HostSide) -> list[int]:
        return list(side.host[self.pick(model.names)])


class FreeOutside(_OfHeld):
    """Slots below 0 or beyond the last, as many as a page has."""

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        config = model.config
        first = (-config.page_size, config.size, 2**31)[self.amount % 3]
        slots = self.held(model, side)[: -config.page_size or None]
        return slots + list(range(first, first + config.page_size))


class FreeUnissued(_OfFree):
    """A page that was never handed out since the last clear."""

    # it is free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return len(model.side.issued) < int(model.config.size)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        return self.page(model, set(range(model.config.size)) - side.issued)


class FreeAgain(_OfFree):
    """A page that has been freed already."""

    # it is free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.freed)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        return self.page(model, side.freed)


class FreeTwiceInCall(_OfHeld):
    """A page named twice in one call."""

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        slots = self.held(model, side)
        return slots + slots[: model.config.page_size]


class FreePartOfPage(_OfHeld):
    """Pages of which slots are left out, or others named in their place."""

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return super().enabled(model) and model.config.page_size > 1

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        slots = self.held(model, side)
        others = [slot for slot in side.owned() if slot not in slots]
        # a slot too few, one of a page twice, one of somebody else's
        return [slots[1:], [*slots[:-1], slots[0]], [*slots[:-1], *(others or slots)[:1]]][
            self.amount % 3
        ]


class FreeTooMany(_OfFree):
    """Every slot that there is, while not all are out."""

    # some are free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return model.free_pages > 0

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        return list(range(model.config.size))


class FreeInTransfer(_OfFree):
    """Slots that a load reads, or a backup writes."""

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.transfers)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        names = sorted(each.request for each in side.transfers.values())
        return list(side.host[self.pick(names)])


class ClearInTransfer(Misuse):
    """`clear` while a transfer is under way."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.transfers)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("clear")


MISUSE: tuple[type[Command], ...] = (
    AllocNegative, AllocPartOfPage, FreeOutside, FreeUnissued, FreeAgain, FreeTwiceInCall,
    FreePartOfPage, FreeTooMany, FreeInTransfer, ClearInTransfer,
)  # fmt: skip
