"""Misuse of the slot allocators as commands: each must be refused, and change nothing.

One command for each kind of `spec/core.md` §4b (and each way to commit it). The expected kind comes
from the reference, or from the command itself where plain lists can't carry the fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.slot_model import Side, SlotModel

PAGE_METHODS = ("free_page_ids",)
SLOT_METHODS = ("free", "free_full", "free_full_segment", "free_full_segments")
SEGMENT_METHODS = ("free_segment", "free_segments", "free_full_segment", "free_full_segments")
RELEASES = ("free", "free_full", "free_page_ids", *SEGMENT_METHODS)
GROWING = ("alloc_extend", "alloc_decode")
ROW_CALLS = ("alloc_extend_rows", "alloc_decode_rows", "free_rows_segment")


def release_call(how: str, pages: list[int], size: int) -> Call:
    """A call of release method `how` that names these pages; a lone segment holds whole ones."""
    if how in PAGE_METHODS:
        return Call(how, {"page_ids": pages})
    if how.endswith("segment"):
        slots = [page * size + offset for page in pages for offset in range(size)]
        return slot_call(how, slots, size)
    return slot_call(how, [page * size for page in pages], size)


def slot_call(how: str, slots: list[int], size: int) -> Call:
    """A call of a slot-taking release method; segments get one piece for each page."""
    if how.endswith("segments"):
        return Call(how, {"segments": [([slot], i * size) for i, slot in enumerate(slots)]})
    if how.endswith("segment"):
        return Call(how, {"free_index": slots, "start_pos": 0})
    return Call(how, {"free_index": slots})


@dataclass(frozen=True)
class Misuse(Command):
    """Base: misuse is rare beside legal use, and its outcome is a refusal."""

    misuse: ClassVar[bool] = True
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 2
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)


def grow_call(how: str, args: dict[str, Any], total: int) -> Call:
    """`alloc_extend`, or `alloc_decode` with the arguments that it takes."""
    if how == "alloc_decode":
        del args["prefix_lens"], args["prefix_lens_cpu"]
        return Call(how, args)
    return Call(how, {**args, "extend_num_tokens": total})


def open_ways(ways: tuple[str, ...], model: SlotModel) -> list[str]:
    """Those ways to commit a misuse that the subject has a method for."""
    return [how for how in ways if how in model.calls]


# ---- sizes --------------------


@dataclass(frozen=True)
class NegativeAlloc(Misuse):
    """`alloc` of a negative number of pages."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    pages: int

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> NegativeAlloc:
        return cls(choices.integer(1, 2 if model.scope is None else 1))

    def applies(self, model: SlotModel) -> bool:
        return self.pages > 0

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("alloc", {"need_size": -self.pages * model.page_size})


@dataclass(frozen=True)
class UnalignedAlloc(Misuse):
    """`alloc(n)` where n is not a multiple of the page size."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    tokens: int

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return model.page_size > 1

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> UnalignedAlloc:
        size = model.page_size
        most = 2 if model.scope is None else 1
        return cls(choices.integer(0, most) * size + choices.integer(1, size - 1))

    def applies(self, model: SlotModel) -> bool:
        return self.tokens > 0 and self.tokens % model.page_size > 0

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("alloc", {"need_size": self.tokens})


# ---- ids that may not be freed --------------------


@dataclass(frozen=True)
class _BadRelease(Misuse):
    """Names ids that may not be freed, through release method `how`."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = RELEASES
    ways: ClassVar[tuple[str, ...]] = RELEASES

    how: str
    index: int

    @classmethod
    def candidates(cls, model: SlotModel, side: Side, how: str) -> list[int]:
        """Pages on this side that make the fault."""
        raise NotImplementedError

    @classmethod
    def different(cls, model: SlotModel, found: list[int]) -> list[int]:
        """Which candidates are tried in a scope, where others are like them; all, unless told."""
        return list(range(len(found)))

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        # with nothing owned any id is one too many, and that is another kind
        return bool(model.side.ledger.owned_pages()) and bool(
            cls.candidates(model, model.side, "free_page_ids")
        )

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        ways = open_ways(cls.ways, model)
        fitting = [how for how in ways if cls.candidates(model, model.side, how)]
        how = choices.pick(fitting or ways)
        found = cls.candidates(model, model.side, how) or [0]
        if model.scope is not None:
            return cls(how, choices.pick(cls.different(model, found)))
        return cls(how, choices.integer(0, len(found) - 1))

    def applies(self, model: SlotModel) -> bool:
        found = self.candidates(model, model.side, self.how)
        return (
            self.how in open_ways(self.ways, model)
            and type(self).enabled(model)
            and 0 <= self.index < len(found)
        )

    def call(self, model: SlotModel, side: Side) -> Call | None:  # type: ignore[override]
        found = self.candidates(model, side, self.how)
        if not found:
            return None
        return release_call(self.how, [found[self.index % len(found)]], model.page_size)


class FreeOutOfRange(_BadRelease):
    """A page below 0 or above the last."""

    @classmethod
    def candidates(cls, model: SlotModel, side: Side, how: str) -> list[int]:
        last = model.num_pages
        return [last + 1, last + 2, -1, -2, 2**31 // model.page_size]

    @classmethod
    def different(cls, model: SlotModel, found: list[int]) -> list[int]:
        return [0, 2]  # above and below


class FreeReserved(_BadRelease):
    """Page 0, the padding page."""

    @classmethod
    def candidates(cls, model: SlotModel, side: Side, how: str) -> list[int]:
        return [0]


class FreeUnissued(_BadRelease):
    """A page that was never handed out since the last clear."""

    weight: ClassVar[int] = 6  # soon after a start or a clear there is no such page any more
    # such a page is in the free list, so the pool is not full and not all of it staged
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("refused", "exactly full"), ("refused", "everything staged")}
    )

    @classmethod
    def candidates(cls, model: SlotModel, side: Side, how: str) -> list[int]:
        return sorted(side.ledger.available_pages() - side.ledger.issued_pages())


class FreeAgain(_BadRelease):
    """A page that was freed already: it is free, staged, or parked in a way that can't repeat."""

    # three places where a page may lie dead, seven ways to free it
    weight: ClassVar[int] = 4

    @classmethod
    def candidates(cls, model: SlotModel, side: Side, how: str) -> list[int]:
        dead = (
            side.ledger.available_pages() & side.ledger.issued_pages()
        ) | side.ledger.parked_pages()
        if how in SLOT_METHODS and model.paged:
            dead = dead - set(side.parked_by_slots)
        return sorted(dead)

    @classmethod
    def different(cls, model: SlotModel, found: list[int]) -> list[int]:
        """The first of each place where a page may lie dead."""
        free, staged = set(model.state["free"]), set(model.state["staged"])
        places = [(page in free, page in staged) for page in found]
        return [places.index(place) for place in dict.fromkeys(places)]

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(cls.candidates(model, model.side, "free_page_ids"))


@dataclass(frozen=True)
class FreeTooMany(Misuse):
    """More ids than are out."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = RELEASES

    how: str

    @classmethod
    def others(cls, model: SlotModel, side: Side) -> list[int]:
        """Pages that nobody owns, without those that a slot free may name again."""
        pages = set(range(1, model.num_pages + 1)) - side.ledger.owned_pages()
        return sorted(pages.difference(side.parked_by_slots))

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(cls.others(model, model.side))

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> FreeTooMany:
        return cls(choices.pick(open_ways(RELEASES, model)))

    def applies(self, model: SlotModel) -> bool:
        return self.how in open_ways(RELEASES, model) and type(self).enabled(model)

    def call(self, model: SlotModel, side: Side) -> Call:
        pages = sorted(side.ledger.owned_pages()) + self.others(model, side)[:1]
        return release_call(self.how, pages, model.page_size)


@dataclass(frozen=True)
class FreeTwiceInCall(Misuse):
    """One page named twice in a call where that isn't legal."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = RELEASES

    how: str
    index: int

    @classmethod
    def ways(cls, model: SlotModel) -> list[str]:
        once = ("free_page_ids", "free_segment", "free_segments", "free_full_segments")
        return open_ways(once if model.paged else RELEASES, model)

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return len(model.side.ledger.owned_pages()) >= 2 and bool(cls.ways(model))

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> FreeTwiceInCall:
        owned = len(model.side.ledger.owned_pages())
        return cls(choices.pick(cls.ways(model)), choices.integer(0, owned - 1))

    def applies(self, model: SlotModel) -> bool:
        return self.how in self.ways(model) and type(self).enabled(model)

    def call(self, model: SlotModel, side: Side) -> Call:
        owned, size = sorted(side.ledger.owned_pages()), model.page_size
        page = owned[self.index % len(owned)]
        return release_call(self.how, [page, page], size)


# ---- segments --------------------


@dataclass(frozen=True)
class _BadSegment(Misuse):
    """A segment of a live request with something wrong about it."""

    methods: ClassVar[tuple[str, ...]] = SEGMENT_METHODS
    ways: ClassVar[tuple[str, ...]] = SEGMENT_METHODS

    how: str
    request: int
    amount: int

    @classmethod
    def fits(cls, model: SlotModel, name: int) -> bool:
        raise NotImplementedError

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return any(cls.fits(model, name) for name in model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        names = [name for name in model.side.rows if cls.fits(model, name)]
        most = max(1, model.page_size - 1)
        how = choices.pick(open_ways(cls.ways, model))
        return cls(how, choices.pick(names), choices.integer(1, most))

    def applies(self, model: SlotModel) -> bool:
        return (
            self.how in open_ways(self.ways, model)
            and self.request in model.side.rows
            and self.fits(model, self.request)
            and self.amount > 0
        )

    def build(self, *segments: tuple[list[int], int]) -> Call:
        if self.how.endswith("s"):
            return Call(self.how, {"segments": list(segments)})
        slots, start = segments[0]
        return Call(self.how, {"free_index": slots, "start_pos": start})


class MisalignedSegment(_BadSegment):
    """A segment that starts inside a page."""

    @classmethod
    def fits(cls, model: SlotModel, name: int) -> bool:
        return model.page_size > 1 and len(model.side.rows[name].slots) > 1

    def applies(self, model: SlotModel) -> bool:
        return super().applies(model) and self.amount % model.page_size > 0

    def call(self, model: SlotModel, side: Side) -> Call:
        row = side.rows[self.request]
        skip = min(self.amount, len(row.slots) - 1) % model.page_size or 1
        return self.build((row.slots[skip:], row.start + skip))


class NegativeStart(_BadSegment):
    """A segment that starts before position 0."""

    @classmethod
    def fits(cls, model: SlotModel, name: int) -> bool:
        return True

    def call(self, model: SlotModel, side: Side) -> Call:
        slots = side.rows[self.request].slots
        return self.build((list(slots), -self.amount * model.page_size))


class OverlappingSegments(_BadSegment):
    """Two segments of different pages that claim one page of positions."""

    ways: ClassVar[tuple[str, ...]] = ("free_segments", "free_full_segments")

    @classmethod
    def fits(cls, model: SlotModel, name: int) -> bool:
        return len(model.side.rows[name].slots) > model.page_size

    def call(self, model: SlotModel, side: Side) -> Call:
        row, size = side.rows[self.request], model.page_size
        return self.build((row.slots[:size], row.start), (row.slots[size:], row.start))


class ScrambledSegment(_BadSegment):
    """A segment whose slots are not consecutive."""

    ways: ClassVar[tuple[str, ...]] = ("free_segment", "free_segments")

    @classmethod
    def fits(cls, model: SlotModel, name: int) -> bool:
        return model.page_size > 1 and len(model.side.rows[name].slots) > 1

    def call(self, model: SlotModel, side: Side) -> Call:
        row = side.rows[self.request]
        return self.build(([row.slots[1], row.slots[0], *row.slots[2:]], row.start))


SHARED: tuple[type[Command], ...] = (
    NegativeAlloc, FreeOutOfRange, FreeReserved, FreeUnissued, FreeAgain, FreeTooMany,
    FreeTwiceInCall, NegativeStart, OverlappingSegments,
)  # fmt: skip
PAGED: tuple[type[Command], ...] = (UnalignedAlloc, MisalignedSegment, ScrambledSegment)
