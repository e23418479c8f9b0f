"""SGLang 0.5.23's own rows, paged allocator and pools of KV, unmodified, under the small engine.

No host tier: requests leave the device as copies of the pool's. What padded lanes leave in the
first page isn't looked at. A row's generation goes up at hand-out only; that it was freed since is
seen in the list of free rows, or late writes would go by a row that is nobody's.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from properties.commands import Call
from properties.subjects import sglang_kv
from properties.subjects.engine_tensors import CALLS, EngineSubject
from properties.subjects.sglang_kv_pools import alone, captured_nowhere
from properties.subjects.sglang_standins import pool_class

#: configs that it has: page size 1 is another class's there
LIMITS: dict[str, tuple[Any, ...]] = {
    "page_size": (2, 3, 4),
    "host_pages": (0,),
    "by_rows": (False,),
}
#: misuse that it accepts: command → invariant
MISUSE: dict[str, str] = {
    "free_again": "I4",
    # the table takes any row; generations are for readers to compare
    "write_by_old_row": "I28",
    "copy_nobodys": "I4",
    "load_elsewhere": "I4",
}
#: what there is nothing of without a host tier
OF_HOSTS = frozenset(
    {
        "retract_to_host", "begin_resume", "load_layer", "drain", "free_host_slots", "backup_slots",
    }
)  # fmt: skip


class SglangEngine(EngineSubject):
    """An engine on SGLang's parts; `books` is the adapter that shows the allocator's lists."""

    names_kinds: ClassVar[bool] = False
    refusals: ClassVar[tuple[type[Exception], ...]] = (Exception,)

    def __init__(self, config: Any, rows: Any, books: Any, pool: Any) -> None:
        self._of_allocator = books
        with captured_nowhere(), alone():
            super().__init__(config, rows, books.target, pool, None, "cpu")
        self.calls = CALLS - OF_HOSTS

    def call(self, call: Call) -> Any:
        with captured_nowhere(), alone():
            return super().call(call)

    def settle(self) -> None:
        """Nothing is deferred."""

    def audit(self) -> list[str]:
        return []

    def _recover(self) -> None:
        """Nothing is deferred."""

    def _books(self) -> dict[str, Any]:
        rows, shown = self.rows, self._of_allocator.observe()
        shown["rows"] = {
            "size": rows.size,
            "max_context_len": rows.max_context_len,
            "free": list(rows.free_slots),
            "generations": rows.req_generation.tolist(),
            "held": [row for row in range(1, rows.size + 1) if row not in rows.free_slots],
        }
        found: dict[str, Any] = shown
        return found

    def handle(self, row: int) -> tuple[int, int]:
        return row, int(self.rows.req_generation[row])

    def is_current(self, handle: tuple[int, int]) -> bool:
        return handle[0] not in self.rows.free_slots and self.handle(handle[0]) == handle

    def put(self, handle: tuple[int, int], start: int, slots: list[int]) -> None:
        where = (handle[0], slice(start, start + len(slots)))
        self.rows.write(where, self._ids(slots).to(torch.int32))

    def clear(self) -> None:
        self.allocator.clear()
        self.rows.clear()

    @contextmanager
    def free_group(self) -> Iterator[None]:
        self.allocator.free_group_begin()
        yield
        self.allocator.free_group_end()

    def _store_parts(self, slots: torch.Tensor, values: torch.Tensor) -> None:
        """From two parts is a kernel's alone there."""
        self._store(slots, values)

    def _store(self, slots: torch.Tensor, values: torch.Tensor) -> None:
        for layer, (keys, *others) in zip(self.config.layer_ids, values, strict=True):
            values_of = others[0] if others else None
            self.pool.set_kv_buffer(SimpleNamespace(layer_id=layer), slots, keys, values_of)


def make(config: Any) -> SglangEngine:
    """SGLang's parts of a config, on the CPU."""
    # both are adapters beside this one
    from properties.subjects.sglang import SglangSubject
    from properties.systems.kv_pools import KINDS, KVPoolsConfig

    own = KVPoolsConfig(
        family=KINDS.index(config.kind), stored=config.stored, page_size=config.page_size,
        pages=config.pages, layers=config.layers, start=0, heads=config.heads, dim=config.dim,
        v_dim=config.rope if config.kind == "mla" else config.dim, marked=False, tame=True,
    )  # fmt: skip
    pool = sglang_kv.make(own).target
    pool.layer_transfer_counter = None  # nobody loads layer by layer
    paged = importlib.import_module("sglang.srt.mem_cache.allocator.paged")
    allocator = paged.PagedTokenToKVPoolAllocator(
        config.size, config.page_size, dtype=pool.dtype, device="cpu", kvcache=pool,
        need_sort=config.need_sort,
    )  # fmt: skip
    allocator.use_triton_kernels = False
    rows = pool_class("ReqToTokenPool")(
        size=config.rows, max_context_len=config.width, device="cpu", enable_memory_saver=False
    )
    return SglangEngine(config, rows, SglangSubject(allocator, "paged"), pool)


def known_pairs() -> frozenset[tuple[str, str]]:
    """(system, command) of all misuse that isn't refused."""
    return frozenset(("engine", name) for name in MISUSE)
