"""Rows, an allocator, a pool of KV and a host tier with tensors as parts of the small engine.

What is read, all requests through the row table, is one gather for each buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch

from impl import MHATokenToKVPool, MLATokenToKVPool, PagedTokenToKVPoolAllocator, PoolError
from impl.host.transfers import Load
from impl.rows import ReqToTokenPool
from properties.commands import Call
from properties.invariants import violation
from properties.subjects.engine import Engine
from properties.subjects.engine_content import PARTS, numbers, poison, source_of
from properties.subjects.engine_graph import FixedStore
from properties.subjects.engine_parts import Token
from properties.subjects.protocol import TensorSubject

INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
#: what commands call
CALLS = frozenset(name for name in dir(Engine) if not name.startswith("_"))


class EngineSubject(TensorSubject):
    """An engine of a config on these parts; `host` is None where there is no host tier."""

    names_kinds: ClassVar[bool] = True
    refusals: ClassVar[tuple[type[Exception], ...]] = (PoolError,)

    def __init__(
        self, config: Any, rows: Any, allocator: Any, pool: Any, host: Any, device: str
    ) -> None:
        super().__init__(allocator, device=device)
        self.config = config
        self.rows, self.allocator, self.pool, self.host = rows, allocator, pool, host
        self.calls = CALLS
        self.dtype = getattr(torch, source_of(config.dtype))
        self.raw = [bits_of(each) for at in config.layer_ids for each in self._buffers(at)]
        self._poison = torch.tensor(poison(config), dtype=self.raw[0].dtype, device=device)
        self._stores: dict[int, FixedStore] = {}
        #: the host's books, as they were last shown and last recounted
        self._shown: dict[str, Any] = {}
        self._audited: dict[str, Any] = {}
        self.engine = Engine(self, config)

    def _buffers(self, layer: int) -> Sequence[torch.Tensor]:
        """A layer's buffers."""
        if self.config.kind == "mla":
            return (self.pool.get_key_buffer(layer),)
        found: tuple[torch.Tensor, ...] = self.pool.get_kv_buffer(layer)
        return found

    def call(self, call: Call) -> Any:
        self.lent, self.passed = [], []
        try:
            value = getattr(self.engine, call.method)(**call.args)
        except PoolError:
            self._recover()
            raise
        for memory, ids in self.passed:
            if memory.tolist() != ids:
                raise violation("I54", f"{call.method} wrote to arguments")
        return value

    def settle(self) -> None:
        """What a call deferred is raised behind it; the parts go on."""
        try:
            self.allocator.check()
            self.pool.check()
        except PoolError:
            self._recover()
            raise

    def _recover(self) -> None:
        self.allocator.recover()
        self.pool.recover()

    def observe(self) -> dict[str, Any]:
        running = self.engine.running
        spans = [(each.handle[0], each.length) for each in running.values()]
        padding, *lines = self.lines([(0, self.config.width), *spans])
        where = self._ids([slot for line in lines for slot in line])
        return {
            **self._books(),
            "padding": any(padding),
            "lines": dict(zip(running, lines, strict=True)),
            "content": [raw.index_select(0, where).tolist() for raw in self.raw],
        }

    def _books(self) -> dict[str, Any]:
        """What is known beside content."""
        self._shown = self.host.snapshot()
        return {
            **self.allocator.snapshot(),
            "available": self.allocator.available_size(),
            "rows": self.rows.snapshot(),
            "host": self._shown,
        }

    def audit(self) -> list[str]:
        found = [*self.allocator.audit(), *self.rows.audit(), *self.pool.audit()]
        if self._shown != self._audited:
            found += self.host.audit()
            self._audited = self._shown
        return found

    # Rows

    def free_rows(self) -> int:
        found: int = self.rows.available_size()
        return found

    def take_row(self, request: Any) -> None:
        self.rows.alloc([request])

    def give_row(self, request: Any) -> None:
        self.rows.free(request)

    def handle(self, row: int) -> tuple[int, int]:
        found: tuple[int, int] = self.rows.handle(row)
        return found

    def is_current(self, handle: tuple[int, int]) -> bool:
        found: bool = self.rows.is_current(handle)
        return found

    def put(self, handle: tuple[int, int], start: int, slots: list[int]) -> None:
        where = (handle[0], slice(start, start + len(slots)))
        self.rows.write(where, self._ids(slots), handle=handle)

    def lines(self, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
        rows = torch.tensor([row for row, _ in spans], dtype=torch.int64, device=self.device)
        found = self.rows.req_to_token[rows].tolist()
        return [line[:length] for line, (_, length) in zip(found, spans, strict=True)]

    # Slots

    def _ids(self, ids: Sequence[int], on_host: bool = False) -> torch.Tensor:
        return self._tensor(list(ids), "int64", on_host)

    def _twice(self, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Lengths on the device and on the host."""
        return self._ids(lengths), self._ids(lengths, on_host=True)

    def extend(self, prefix: int, length: int, last: int) -> list[int] | None:
        found: list[int] | None = self.plain(
            self.allocator.alloc_extend(
                *self._twice([prefix]), *self._twice([length]), self._ids([last]), length - prefix
            )
        )
        return found

    def decode(self, lengths: list[int], lasts: list[int]) -> list[int] | None:
        found = self.allocator.alloc_decode(*self._twice(lengths), self._ids(lasts))
        slots: list[int] | None = self.plain(found)
        return slots

    def free(self, slots: list[int]) -> None:
        self.allocator.free(self._ids(slots))

    def free_slots_left(self) -> int:
        found: int = self.allocator.available_size()
        return found

    def extend_row(self, row: int, prefix: int, length: int) -> list[int] | None:
        ids = [each for n in (row, prefix, length) for each in self._twice([n])]
        slots = self.allocator.alloc_extend_rows(self.rows, *ids, length - prefix)
        found: list[int] | None = self.plain(slots)
        return found

    def decode_rows(self, rows: list[int], lengths: list[int]) -> list[int] | None:
        slots = self.allocator.alloc_decode_rows(
            self.rows, *self._twice(rows), *self._twice(lengths)
        )
        found: list[int] | None = self.plain(slots)
        return found

    def free_row_of(self, handle: tuple[int, int], length: int) -> None:
        self.allocator.free_rows_segment(handle, 0, length, table=self.rows)

    def free_group(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self.allocator.free_group()
        return found

    # Content

    def _values(self, tokens: Sequence[Token]) -> torch.Tensor:
        """Numbers [layer, part, token, …]."""
        config = self.config
        parts = range(len(PARTS[config.kind]))
        rows = [
            numbers(token, layer, part, config.row_width)
            for layer in config.layer_ids
            for part in parts
            for token in tokens
        ]
        shape = (config.layers, len(parts), len(tokens), config.kv_heads, -1)
        return torch.tensor(rows, dtype=self.dtype, device=self.device).view(shape)

    def store(self, slots: list[int], tokens: Sequence[Token]) -> None:
        values = self._values(tokens)
        if self.config.kind == "mla":
            self._store_parts(self._ids(slots), values)
        else:
            self._store(self._ids(slots), values)

    def _store_parts(self, slots: torch.Tensor, values: torch.Tensor) -> None:
        """Latents and rotary numbers, as a prefill has them."""
        sizes = [self.config.rank, self.config.rope]
        for layer, (rows,) in zip(self.config.layer_ids, values, strict=True):
            self.pool.set_mla_kv_buffer(layer, slots, *rows.split(sizes, -1))

    def _store(self, slots: torch.Tensor, values: torch.Tensor) -> None:
        for layer, parts in zip(self.config.layer_ids, values, strict=True):
            self.pool.set_kv_buffer(layer, slots, *parts)

    def _store_through(
        self, rows: torch.Tensor, positions: torch.Tensor, values: torch.Tensor
    ) -> None:
        self._store(self.rows.req_to_token[rows, positions], values)

    def store_lanes(self, lanes: list[tuple[int, int]], tokens: Sequence[Token]) -> None:
        where = torch.tensor(lanes, dtype=torch.int64, device=self.device).T
        values = self._values(tokens)
        if not self.config.captured:
            self._store_through(where[0], where[1], values)
            return
        if len(lanes) not in self._stores:
            self._stores[len(lanes)] = FixedStore(self._store_through, where, values)
        self._stores[len(lanes)](where, values)

    def move(self, target: list[int], source: list[int]) -> None:
        self.pool.move_kv_cache(self._ids(target), self._ids(source))

    def poison(self, slots: Sequence[int]) -> None:
        where = self._ids(slots)
        for raw in self.raw:
            raw.index_copy_(0, where, self._poison.expand(len(slots), -1))

    def copy(self, slots: list[int]) -> Any:
        return self.allocator.get_cpu_copy(self._ids(slots))

    def restore(self, copy: Any, slots: list[int]) -> None:
        self.allocator.load_cpu_copy(copy, self._ids(slots))

    # The host

    def alloc_host(self, count: int) -> list[int] | None:
        found: list[int] | None = self.plain(self.host.slots.alloc(count))
        return found

    def free_host(self, host: list[int]) -> None:
        self.host.slots.free(self._ids(host, on_host=True))

    def backup(self, host: list[int], slots: list[int]) -> None:
        self.host.backup(self._ids(host, on_host=True), self._ids(slots))

    def begin_load(self, host: list[int], slots: list[int]) -> Load:
        found: Load = self.host.start_load(self._ids(host, on_host=True), self._ids(slots))
        return found

    def in_transfer(self, slots: list[int]) -> bool:
        return bool(self.host.in_transfer(self._ids(slots)).any())

    def clear(self) -> None:
        self.host.slots.clear()
        self.allocator.clear()
        self.rows.clear()


def bits_of(buffer: torch.Tensor) -> torch.Tensor:
    """The memory of a buffer [slots, …] as codes [slots, n]."""
    return buffer.view(INTS[buffer.itemsize]).flatten(1)


def make(config: Any, device: str, **options: Any) -> EngineSubject:
    """Our own parts of a config."""
    common: dict[str, Any] = {
        "size": config.size, "page_size": config.page_size, "layer_num": config.layers,
        "dtype": getattr(torch, config.dtype), "device": device, **options,
    }  # fmt: skip
    pool: Any
    if config.kind == "mla":
        pool = MLATokenToKVPool(kv_lora_rank=config.rank, qk_rope_head_dim=config.rope, **common)
    else:
        pool = MHATokenToKVPool(head_num=config.heads, head_dim=config.dim, **common)
    allocator = PagedTokenToKVPoolAllocator(
        config.size, config.page_size, device=device, kvcache=pool, need_sort=config.need_sort,
        **options,
    )  # fmt: skip
    (declared,) = pool.host_pool_decls()
    rows = ReqToTokenPool(config.rows, config.width, device=device)
    return EngineSubject(config, rows, allocator, pool, declared.build(config.host_size), device)
