"""The legal commands that the token and the paged allocator share.

Follows `spec/core.md` §3, §4 and §4a. Commands name requests and numbers of pages, never slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.systems.slot_model import MOST_REQUESTS, Faults, Side, SlotModel

# ---- allocation --------------------


@dataclass(frozen=True)
class Alloc(Command):
    """A new request takes whole pages with `alloc`."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    weight: ClassVar[int] = 66
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    request: int
    pages: int

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        # from an empty pool only now and then: every second step would be one that moves nothing
        some = model.available_pages > 0 or model.next_name % 4 == 0
        return some and len(model.side.rows) < MOST_REQUESTS

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Alloc:
        free, available = len(model.state["free"]), model.available_pages
        if choices.integer(0, 5) == 0:
            edges = (0, 1, free, free + 1, available, available + 1)
            return cls(model.next_name, choices.pick(edges))
        most = 3 if model.paged else max(4, available // 2)
        return cls(model.next_name, choices.integer(1, max(1, min(most, available))))

    def applies(self, model: SlotModel) -> bool:
        return model.fresh(self.request)

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("alloc", {"need_size": self.pages * model.page_size})

    def settle(self, model: SlotModel, side: Side, value: list[int]) -> Faults:
        model.next_name = max(model.next_name, self.request + 1)
        return side.grow(self.request, value) if value else []

    def demand(self, model: SlotModel) -> int:
        return self.pages

    def chunks(self, model: SlotModel, side: Side) -> Iterator[tuple[int, int, int]]:
        yield 0, self.pages * model.page_size, -1


# ---- release --------------------

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
        chosen = choices.subset(list(model.side.rows), 1, 2)
        return cls(
            tuple((name, draw_pages(choices, model, name)) for name in chosen),
            choices.pick(cls.namings(model)),
        )

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
        return cls(name, pages, tuple(cuts), cls.several and choices.boolean())

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


# ---- groups, sorting, life cycle --------------------


@dataclass(frozen=True)
class GroupBegin(Command):
    """Opens a free group."""

    methods: ClassVar[tuple[str, ...]] = ("free_group_begin", "free_group_end")
    weight: ClassVar[int] = 6
    # a group that is open can't be opened
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("served", "inside a group")})

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return not model.group

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("free_group_begin")


@dataclass(frozen=True)
class GroupEnd(Command):
    """Closes the group; what was parked is released."""

    methods: ClassVar[tuple[str, ...]] = ("free_group_begin", "free_group_end")
    weight: ClassVar[int] = 14

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return model.group

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("free_group_end")

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        side.end_group()
        return []


@dataclass(frozen=True)
class Merge(Command):
    """`merge_and_sort_free`."""

    methods: ClassVar[tuple[str, ...]] = ("merge_and_sort_free",)
    weight: ClassVar[int] = 3

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("merge_and_sort_free")


@dataclass(frozen=True)
class Clear(Command):
    """`clear`: every request is gone, an open group too."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)
    weight: ClassVar[int] = 3

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("clear")

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        model.cleared = True
        side.reset()
        return []


@dataclass(frozen=True)
class Resize(Command):
    """`resize` of a pool that owns nothing."""

    methods: ClassVar[tuple[str, ...]] = ("resize",)
    weight: ClassVar[int] = 6
    # a pool that owns nothing has no half-filled page; with a group open resize is refused
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("served", "half-filled page"), ("served", "inside a group")}
    )

    size: int

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return not model.side.rows and not model.group

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Resize:
        size = model.page_size
        most = max(model.config.size, 2 * size)
        return cls(choices.integer(0, most, (0, size - 1, size, 2 * size, model.config.size)))

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("resize", {"config": SimpleNamespace(max_total_num_tokens=self.size)})

    def absorbed(self, config: Any) -> Any:
        return config.resized(self.size)

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        side.reset(self.size // side.page_size)
        return []


# ---- queries --------------------


@dataclass(frozen=True)
class AllFreePages(Command):
    """`get_all_free_pages`: free, then staged."""

    methods: ClassVar[tuple[str, ...]] = ("get_all_free_pages",)
    weight: ClassVar[int] = 2

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("get_all_free_pages")

    def answer_faults(self, model: SlotModel, call: Call, value: Any) -> Faults:
        if len(value) != model.available_pages:
            return [("I2", f"{len(value)} free pages are listed, {model.available_pages} are due")]
        return []


@dataclass(frozen=True)
class _OfRequest(Command):
    """A query about the slots of one request."""

    weight: ClassVar[int] = 2

    request: int

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        return cls(choices.pick(model.names))

    def applies(self, model: SlotModel) -> bool:
        return self.request in model.side.rows


class Translate(_OfRequest):
    """`translate_kv_indices_for_transfer`: the identity on a static pool."""

    methods: ClassVar[tuple[str, ...]] = ("translate_kv_indices_for_transfer",)

    def call(self, model: SlotModel, side: Side) -> Call:
        slots = list(side.rows[self.request].slots)
        return Call("translate_kv_indices_for_transfer", {"kv_indices": slots})

    def answer_faults(self, model: SlotModel, call: Call, value: Any) -> Faults:
        wanted = call.args["kv_indices"]
        return [] if value == wanted else [("I37", f"{wanted} became {value}")]


class BackUp(_OfRequest):
    """`get_cpu_copy`, forwarded to the storage pool."""

    methods: ClassVar[tuple[str, ...]] = ("get_cpu_copy",)

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("get_cpu_copy", {"indices": list(side.rows[self.request].slots)})

    def answer_faults(self, model: SlotModel, call: Call, value: Any) -> Faults:
        wanted = call.args["indices"]
        return [] if value == wanted else [("I38", f"{wanted} came back as {value}")]


class Restore(_OfRequest):
    """`load_cpu_copy`, forwarded to the storage pool."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_copy",)

    def call(self, model: SlotModel, side: Side) -> Call:
        slots = list(side.rows[self.request].slots)
        return Call("load_cpu_copy", {"kv_cache_cpu": slots, "indices": slots})


@dataclass(frozen=True)
class TransferDone(Command):
    """`set_hicache_transfer_done_event`: nothing on a static pool."""

    methods: ClassVar[tuple[str, ...]] = ("set_hicache_transfer_done_event",)
    weight: ClassVar[int] = 2

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("set_hicache_transfer_done_event", {"transfer_key": 0, "event": None})


SHARED: tuple[type[Command], ...] = (
    Alloc, Free, FreeFull, FreePageIds, FreeNothing, FreeSegment, FreeSegments, FreeFullSegment,
    FreeFullSegments, GroupBegin, GroupEnd, Merge, Clear, Resize, AllFreePages, Translate, BackUp,
    Restore, TransferDone,
)  # fmt: skip
