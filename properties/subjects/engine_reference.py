"""The reference's rows, allocator, pools of KV and host tier as parts of the small engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from properties.commands import Call
from properties.subjects.engine import Engine
from properties.subjects.engine_content import PARTS, codes, poison, source_of
from properties.subjects.engine_parts import Token
from reference import PagedTokenToKVPoolAllocator, ReqToTokenPool
from reference.host import HostPool, Load
from reference.storage import MHATokenToKVPool, MLATokenToKVPool
from reference.storage.floats import size_bytes


class EngineReference:
    """An engine of a config, on lists."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.rows = ReqToTokenPool(config.rows, config.width)
        self.pool = _pool(config)
        self.slots = PagedTokenToKVPoolAllocator(
            config.size, config.page_size, need_sort=config.need_sort, kvcache=self.pool
        )
        names = PARTS[config.kind]
        #: the rows of all slots, for each layer and part
        self.content = [self.pool.content[name][at] for at in config.layer_ids for name in names]
        row_bytes = config.row_width * size_bytes(config.dtype)
        self.host = HostPool(
            config.host_size, config.page_size,
            [(name, at, row_bytes) for at in config.layer_ids for name in names],
            config.size, config.layer_ids,
        )  # fmt: skip
        self.host.device = self.content  # its device's bytes are what the pool has
        self.engine = Engine(self, config)

    @property
    def target(self) -> EngineReference:
        """What a model reads: all of it."""
        return self

    def call(self, call: Call) -> Any:
        return getattr(self.engine, call.method)(**call.args)

    def snapshot(self) -> dict[str, Any]:
        return self.observe()

    def observe(self) -> dict[str, Any]:
        running = self.engine.running
        lines = self.lines([(each.handle[0], each.length) for each in running.values()])
        flat = [slot for line in lines for slot in line]
        host = self.host.slots.snapshot()
        written = dict.fromkeys(self.host.device_written, -1)
        return {
            **self.slots.snapshot(),
            "available": self.slots.available_size(),
            "rows": self.rows.snapshot(),
            "host": {**host, "device_pinned": written},
            "lines": dict(zip(running, lines, strict=True)),
            "content": [[rows[slot] for slot in flat] for rows in self.content],
            "padding": any(self.rows.req_to_token[0]),
        }

    # Rows

    def free_rows(self) -> int:
        return self.rows.available_size()

    def take_row(self, request: Any) -> None:
        self.rows.alloc([request])

    def give_row(self, request: Any) -> None:
        self.rows.free(request)

    def handle(self, row: int) -> tuple[int, int]:
        return self.rows.handle(row)

    def is_current(self, handle: tuple[int, int]) -> bool:
        return self.rows.is_current(handle)

    def put(self, handle: tuple[int, int], start: int, slots: list[int]) -> None:
        where = (handle[0], slice(start, start + len(slots)))
        self.rows.write(where, slots, handle=handle)

    def lines(self, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
        return [self.rows.req_to_token[row][:length] for row, length in spans]

    # Slots

    def extend(self, prefix: int, length: int, last: int) -> list[int] | None:
        lens = ([prefix], [prefix], [length], [length])
        return self.slots.alloc_extend(*lens, [last], length - prefix)

    def decode(self, lengths: list[int], lasts: list[int]) -> list[int] | None:
        return self.slots.alloc_decode(lengths, lengths, lasts)

    def free(self, slots: list[int]) -> None:
        self.slots.free(slots)

    def free_slots_left(self) -> int:
        return self.slots.available_size()

    def extend_row(self, row: int, prefix: int, length: int) -> list[int] | None:
        lens = ([prefix], [prefix], [length], [length])
        return self.slots.alloc_extend_rows(self.rows, [row], [row], *lens, length - prefix)

    def decode_rows(self, rows: list[int], lengths: list[int]) -> list[int] | None:
        return self.slots.alloc_decode_rows(self.rows, rows, rows, lengths, lengths)

    def free_row_of(self, handle: tuple[int, int], length: int) -> None:
        self.slots.free_rows_segment(handle, 0, length, table=self.rows)

    @contextmanager
    def free_group(self) -> Iterator[None]:
        self.slots.free_group_begin()
        yield
        self.slots.free_group_end()

    # Content

    def store(self, slots: list[int], tokens: Sequence[Token]) -> None:
        config, source = self.config, source_of(self.config.dtype)
        for layer in config.layer_ids:
            parts = [
                [codes(token, layer, part, config.row_width, source) for token in tokens]
                for part in range(len(PARTS[config.kind]))
            ]
            self.pool.set_kv_buffer(layer, slots, *parts, source)

    def store_lanes(self, lanes: list[tuple[int, int]], tokens: Sequence[Token]) -> None:
        self.store([self.rows.req_to_token[row][at] for row, at in lanes], tokens)

    def move(self, target: list[int], source: list[int]) -> None:
        self.pool.move_kv_cache(target, source)

    def poison(self, slots: Sequence[int]) -> None:
        for rows in self.content:
            for slot in slots:
                rows[slot] = poison(self.config)

    def copy(self, slots: list[int]) -> Any:
        return self.slots.get_cpu_copy(slots)

    def restore(self, copy: Any, slots: list[int]) -> None:
        self.slots.load_cpu_copy(copy, slots)

    # The host

    def alloc_host(self, count: int) -> list[int] | None:
        return self.host.slots.alloc(count)

    def free_host(self, host: list[int]) -> None:
        self.host.slots.free(host)

    def backup(self, host: list[int], slots: list[int]) -> None:
        self.host.backup(host, slots)

    def begin_load(self, host: list[int], slots: list[int]) -> Load:
        return Load(self.host, host, slots)

    def in_transfer(self, slots: list[int]) -> bool:
        return any(self.host.in_transfer(slots))

    def clear(self) -> None:
        self.host.slots.clear()
        self.slots.clear()
        self.rows.clear()


def _pool(config: Any) -> Any:
    common = (config.size, config.page_size, config.dtype)
    if config.kind == "mla":
        return MLATokenToKVPool(*common, config.rank, config.rope, config.layers)
    return MHATokenToKVPool(*common, config.heads, config.dim, config.layers)
