"""The legal commands that the token and the paged allocator share.

Follows `spec/core.md` §3, §4 and §4a. Commands name requests and numbers of pages, never slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.systems import scoped
from properties.systems.releases import RELEASES
from properties.systems.slot_model import Faults, Side, SlotModel

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
        some = model.available_pages > 0 or model.next_name % 4 == 0 or model.scope is not None
        return some and model.openings > 0

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Alloc:
        free, available = len(model.state["free"]), model.available_pages
        if model.scope is not None:
            return cls(model.next_name, scoped.amount(choices, available))
        if choices.once_in(6):
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


# ---- groups, sorting, life cycle --------------------


@dataclass(frozen=True)
class GroupBegin(Command):
    """Opens a free group."""

    of_pool: ClassVar[bool] = True
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

    of_pool: ClassVar[bool] = True
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

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("merge_and_sort_free",)
    weight: ClassVar[int] = 3

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("merge_and_sort_free")


@dataclass(frozen=True)
class Clear(Command):
    """`clear`: every request is gone, an open group too."""

    of_pool: ClassVar[bool] = True
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

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("resize",)
    weight: ClassVar[int] = 6
    # a pool that owns nothing has no half-filled page; with a group open resize is refused
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {
            ("served", "half-filled page"),
            ("served", "inside a group"),
            ("served", "page shared by two rows"),
        }
    )

    size: int

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return not model.group and not model.side.ledger.owned_pages()

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Resize:
        size = model.page_size
        if model.scope is not None:
            # whole pages; and a rest, where it is all there is
            return cls(choices.pick((*range(0, model.config.size + 1, size), size - 1)))
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

    of_pool: ClassVar[bool] = True
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

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("set_hicache_transfer_done_event",)
    weight: ClassVar[int] = 2

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("set_hicache_transfer_done_event", {"transfer_key": 0, "event": None})


SHARED: tuple[type[Command], ...] = (
    Alloc, *RELEASES, GroupBegin, GroupEnd, Merge, Clear, Resize, AllFreePages, Translate, BackUp,
    Restore, TransferDone,
)  # fmt: skip
