"""The ways to give slots back that the token and the paged allocator share, as commands, legal use.

Follows `spec/core.md` §3, §4 and §4a. Commands name requests and numbers of pages, never slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems import scoped
from properties.systems.slot_model import Faults, Side, SlotModel

Part = tuple[int, int]  # (request, pages): 0 all of it, n > 0 its first pages, n < 0 its last


@dataclass(frozen=True)
class _Release(Command):
    """Gives back parts of requests in one call of `method`."""

    method: ClassVar[str]
    by_slots: ClassVar[bool] = True

    parts: tuple[Part, ...]
    naming: str

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        chosen = cls.draw_names(choices, model)
        parts = tuple((name, draw_pages(choices, model, name)) for name in chosen)
        return cls(parts, choices.pick(cls.scoped_namings(model, parts)))

    @classmethod
    def scoped_namings(cls, model: SlotModel, parts: Sequence[Part]) -> tuple[str, ...]:
        """Those that are tried: in a scope several requests are named in one way."""
        namings = cls.namings(model)
        return namings if model.scope is None or len(parts) < 2 else namings[:1]

    @classmethod
    def draw_names(cls, choices: Choices, model: SlotModel) -> list[int]:
        """Whose slots go back; their order matters where pages aren't sorted anyway."""
        if model.scope is None:
            return choices.subset(model.names, 1, 2)
        most = model.scope.requests
        if cls.by_slots and model.paged:
            return choices.subset(model.names, 1, most)
        return list(scoped.batch(choices, model.names, (), 1, most))

    @classmethod
    def namings(cls, model: SlotModel) -> tuple[str, ...]:
        """How the slots may be named: naming any slot of a page frees the page."""
        return ("all", "reversed", "one", "twice") if model.paged else ("all", "reversed")

    def applies(self, model: SlotModel) -> bool:
        names = [name for name, _ in self.parts]
        return (
            self.naming in self.namings(model)
            and len(set(names)) == len(names)
            and all(name in model.side.rows for name in names)
        )

    def named(self, side: Side) -> list[int]:
        slots = [slot for name, pages in self.parts for slot in side.part(name, pages)]
        match self.naming:
            case "reversed":
                return slots[::-1]
            case "one":
                return list({slot // side.page_size: slot for slot in slots}.values())
            case "twice":
                return slots + slots[:1]
        return slots

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call(self.method, {"free_index": self.named(side)})

    def plainly(self) -> Command:
        return Free(self.parts, self.naming)

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        faults: Faults = []
        for name, pages in self.parts:
            faults += side.give(name, pages, model.group, self.by_slots)
        return faults


def draw_pages(choices: Choices, model: SlotModel, name: int) -> int:
    """All of a request, or some pages from its front or its back."""
    held = -(-len(model.side.rows[name].slots) // model.page_size)
    return choices.integer(1 - held, held - 1, (0, 0)) if held > 1 else 0


class Free(_Release):
    """Slot frees: the distinct pages of the slots go back."""

    methods: ClassVar[tuple[str, ...]] = ("free",)
    method = "free"
    weight: ClassVar[int] = 56


class FreeFull(_Release):
    """`free_full`, on a single pool the same as `free`."""

    methods: ClassVar[tuple[str, ...]] = ("free_full",)
    method = "free_full"
    weight: ClassVar[int] = 6

    @classmethod
    def scoped_namings(cls, model: SlotModel, parts: Sequence[Part]) -> tuple[str, ...]:
        namings = super().scoped_namings(model, parts)
        return namings if model.scope is None else namings[:1]


class FreePageIds(_Release):
    """Exactly these pages, in the order given."""

    methods: ClassVar[tuple[str, ...]] = ("free_page_ids",)
    method = "free_page_ids"
    by_slots: ClassVar[bool] = False
    weight: ClassVar[int] = 50

    @classmethod
    def namings(cls, model: SlotModel) -> tuple[str, ...]:
        return ("all", "reversed")

    def call(self, model: SlotModel, side: Side) -> Call:
        ids = list(dict.fromkeys([slot // side.page_size for slot in self.named(side)]))
        return Call("free_page_ids", {"page_ids": ids})


@dataclass(frozen=True)
class _Segments(Command):
    """Gives back consecutive pages of one request, cut into segments at page boundaries."""

    method: ClassVar[str]
    by_slots: ClassVar[bool] = False
    several: ClassVar[bool] = True

    request: int
    pages: int
    cuts: tuple[int, ...]
    hollow: bool  # an empty segment among them, which is skipped

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        name = choices.pick(model.names)
        pages = draw_pages(choices, model, name)
        count = abs(pages) or -(-len(model.side.rows[name].slots) // model.page_size)
        cuts = choices.subset(range(1, count), 0, 2) if cls.several and count > 1 else []
        hollow = cls.several and not (model.scope and (cuts or pages)) and choices.boolean()
        return cls(name, pages, tuple(cuts), hollow)

    def applies(self, model: SlotModel) -> bool:
        return self.request in model.side.rows and (self.several or not (self.cuts or self.hollow))

    def segments(self, side: Side) -> list[tuple[list[int], int]]:
        row, slots = side.rows[self.request], side.part(self.request, self.pages)
        first = row.length - len(slots) if self.pages < 0 else row.start
        edges = [0, *(cut * side.page_size for cut in sorted(set(self.cuts))), len(slots)]
        edges = [edge for edge in edges if 0 <= edge <= len(slots)]
        found = [(slots[low:high], first + low) for low, high in pairwise(edges) if low < high]
        return [([], first), *found] if self.hollow else found

    def call(self, model: SlotModel, side: Side) -> Call:
        if self.several:
            return Call(self.method, {"segments": self.segments(side)})
        slots, start = self.segments(side)[0]
        return Call(self.method, {"free_index": slots, "start_pos": start})

    def plainly(self) -> Command:
        return Free(((self.request, self.pages),), "all")

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        return side.give(self.request, self.pages, model.group, self.by_slots)


class FreeSegment(_Segments):
    """`free_segment`: consecutive positions from a page-aligned start."""

    methods: ClassVar[tuple[str, ...]] = ("free_segment",)
    method = "free_segment"
    several: ClassVar[bool] = False
    weight: ClassVar[int] = 20


class FreeSegments(_Segments):
    """`free_segments`: several, ascending and page-disjoint."""

    methods: ClassVar[tuple[str, ...]] = ("free_segments",)
    method = "free_segments"
    weight: ClassVar[int] = 12


class FreeFullSegment(_Segments):
    """`free_full_segment`: an alignment check, then a slot free."""

    methods: ClassVar[tuple[str, ...]] = ("free_full_segment",)
    method = "free_full_segment"
    by_slots: ClassVar[bool] = True
    several: ClassVar[bool] = False
    weight: ClassVar[int] = 6


class FreeFullSegments(_Segments):
    """`free_full_segments`: a slot free for each segment."""

    methods: ClassVar[tuple[str, ...]] = ("free_full_segments",)
    method = "free_full_segments"
    by_slots: ClassVar[bool] = True
    weight: ClassVar[int] = 6


@dataclass(frozen=True)
class FreeNothing(Command):
    """Any way to free, of no ids: nothing happens."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = (
        "free", "free_full", "free_page_ids", "free_segment", "free_segments",
        "free_full_segment", "free_full_segments",
    )  # fmt: skip
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 2

    how: str

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> FreeNothing:
        return cls(choices.pick([how for how in cls.methods if how in model.calls]))

    def applies(self, model: SlotModel) -> bool:
        return self.how in self.methods and self.how in model.calls

    def call(self, model: SlotModel, side: Side) -> Call:
        if self.how.endswith("segments"):
            return Call(self.how, {"segments": [([], 0)]})
        if self.how.endswith("segment"):
            return Call(self.how, {"free_index": [], "start_pos": 0})
        return Call(self.how, {"page_ids" if self.how == "free_page_ids" else "free_index": []})


RELEASES: tuple[type[Command], ...] = (
    Free, FreeFull, FreePageIds, FreeNothing, FreeSegment, FreeSegments, FreeFullSegment,
    FreeFullSegments,
)  # fmt: skip
