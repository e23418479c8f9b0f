"""Jobs of pools of KV: a batch's keys and values written, moved, there and back.

Beside SGLang's pool where that runs, and beside what torch needs for the same bytes.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

from properties.performance.cases import Case
from properties.performance.engines import (
    DTYPE,
    HEADS,
    PLAIN,
    SGLANG,
    WIDTH,
    Engine,
    Plain,
    has_sglang,
)
from properties.performance.timing import Work

PAGE_SIZE = 16
STORED_TOKENS = (1, 64, 4096)
# So many that what a run costs beside its calls is spread thin.
STORE_LAYERS = 8
MOVED_SLOTS, MOVE_LAYERS = 1024, 32
COPIED_TOKENS, COPY_LAYERS = 8192, 2


def slots(engine: Engine | Plain, size: int, count: int) -> torch.Tensor:
    """`count` slots of a pool of `size`, scattered."""
    shuffled = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    return (shuffled[:count] + PAGE_SIZE).to(engine.device)


def store(count: int, beside: str) -> Case:
    """`set_kv_buffer` of `count` tokens, for one layer after the other."""

    def start(engine: Engine | Plain) -> Work:
        size = 2 * max(STORED_TOKENS)
        pool = engine.heads(size, PAGE_SIZE, STORE_LAYERS)
        loc = slots(engine, size, count)
        keys = torch.ones(count, HEADS, WIDTH, dtype=DTYPE, device=engine.device)
        values = keys + 1
        layers = [SimpleNamespace(layer_id=at) for at in range(STORE_LAYERS)]

        def run() -> None:
            with engine.writing():
                for layer in layers:
                    pool.set_kv_buffer(layer, loc, keys, values)

        return Work(run=run, calls=STORE_LAYERS)

    group = f"set_kv_buffer, {HEADS} heads of {WIDTH}, bfloat16, beside {beside}"
    return Case(group=group, name=f"{count} tokens", start=start, beside=beside)


def move(beside: str) -> Case:
    """`move_kv_cache` of scattered slots to other ones."""

    def start(engine: Engine | Plain) -> Work:
        pool = engine.heads(2 * MOVED_SLOTS, PAGE_SIZE, MOVE_LAYERS)
        target, source = slots(engine, 2 * MOVED_SLOTS, 2 * MOVED_SLOTS).chunk(2)
        return Work(run=lambda: pool.move_kv_cache(target, source))

    name = f"{MOVED_SLOTS} slots, {MOVE_LAYERS} layers"
    return Case(group=f"move_kv_cache, beside {beside}", name=name, start=start, beside=beside)


def round_trip() -> Case:
    """`get_cpu_copy` and `load_cpu_copy`; beside it `index_select` and `index_copy_`."""

    def start(engine: Engine | Plain) -> Work:
        pool = engine.heads(2 * COPIED_TOKENS, PAGE_SIZE, COPY_LAYERS)
        loc = slots(engine, 2 * COPIED_TOKENS, COPIED_TOKENS)
        return Work(run=lambda: pool.load_cpu_copy(pool.get_cpu_copy(loc), loc))

    name = f"{COPIED_TOKENS} tokens, {COPY_LAYERS} layers"
    group = "get_cpu_copy and load_cpu_copy, beside index_select and index_copy_"
    return Case(group=group, name=name, start=start, beside=PLAIN)


def kv_cases(device: torch.device) -> list[Case]:
    """All of them; SGLang's pool of KV runs behind stand-ins, on a CPU alone."""
    rivals = [SGLANG, PLAIN] if device.type == "cpu" and has_sglang() else [PLAIN]
    stores = [store(count, beside) for beside in rivals for count in STORED_TOKENS]
    return [*stores, move(rivals[0]), round_trip()]
