"""Rows of KV buffers written and moved by kernels: as in torch, and nothing beside."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch

from impl import DSATokenToKVPool, MHATokenToKVPool, MLATokenToKVPool
from impl.errors import Duplicate, OutOfRange, PoolError, Reserved
from impl.kernels import kv_rows
from impl.kernels.device import load
from impl.kernels.kv_rows import Part
from impl.storage.buffers import KVBuffer, plain
from properties.kernels.fence import beside
from properties.kernels.rig import DEVICE
from properties.subjects.kv_pools import codes
from properties.systems.kv_pools_model import numbers
from reference.storage.floats import plain as one_nan

TYPES = (*kv_rows.FLOATS, *kv_rows.FP8)
#: wider than a program's columns, more lanes than its rows
WIDTH, LANES = 300, 9
GIB = 2**30
#: Linux's MAP_NORESERVE, which not every Python names
NORESERVE = 0x4000


def pool(dtype: torch.dtype, backend: str, **options: Any) -> MHATokenToKVPool:
    """Keys of one row of columns and a half, values of a few."""
    return MHATokenToKVPool(
        12, 3, dtype, 1, WIDTH, 2, v_head_dim=5, device=DEVICE, backend=backend, **options
    )


def values(width: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Edges of all types among numbers that say where they belong, in `dtype`."""
    drawn = numbers(LANES * width, seed, finite=False)
    return torch.tensor(drawn, device=DEVICE).to(dtype).reshape(LANES, 1, width)


def content(of: Any) -> list[Any]:
    """All rows as codes; every NaN is one."""
    of.check()
    name = str(of.dtype).removeprefix("torch.")
    every = torch.arange(of.num_rows, device=DEVICE)
    return [
        [[one_nan(code, name) for code in row] for row in codes(buffer.gather(every), name)]
        for buffer in of.buffers
    ]


@pytest.mark.parametrize("scale", [None, 0.37, 2.0], ids=str)
@pytest.mark.parametrize("source", kv_rows.FLOATS, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_store_is_as_in_torch(
    dtype: torch.dtype, source: torch.dtype, scale: float | None
) -> None:
    """Every type from every type, scaled or not, padded lanes among others, in either layer."""
    slots = torch.tensor([5, -1, 3, 14, 0, 2, 9, 4, 11], device=DEVICE)
    found = []
    for backend in ("torch", "triton"):
        made = pool(dtype, backend)
        for layer in (0, 1):
            keys, others = values(WIDTH, source, layer), values(5, source, layer + 7)
            made.set_kv_buffer(layer, slots, keys, others, scale, scale)
        found.append(content(made))
    assert found[0] == found[1]
    assert any(code for row in found[0][0] for code in row)


def test_a_prefix_is_as_in_torch() -> None:
    """Of each row of slots the first few; int32 slots and limits too."""
    loc = torch.tensor([[3, 4, 99], [-1, 5, 6], [99, 99, 99]], dtype=torch.int32, device=DEVICE)
    lens = torch.tensor([2, 3, 0], dtype=torch.int32, device=DEVICE)
    found = []
    for backend in ("torch", "triton"):
        made = pool(torch.float16, backend)
        keys, others = values(WIDTH, torch.float16, 1), values(5, torch.float16, 2)
        made.set_kv_buffer_prefix_valid(1, loc, lens, keys, others)
        found.append(content(made))
    assert found[0] == found[1]


def test_parts_and_pages_are_as_in_torch() -> None:
    """Two parts in one row of odd width, and index keys of which a page's scales lie together."""
    slots = torch.tensor([4, 7, 2, -5, 8, 5, 6, 9, 10], device=DEVICE)
    found = []
    for backend in ("torch", "triton"):
        options: dict[str, Any] = {"device": DEVICE, "backend": backend}
        latents = MLATokenToKVPool(8, 4, torch.bfloat16, 7, 3, 1, **options)
        nope, rope = values(7, torch.float32, 1), values(3, torch.float32, 2)
        latents.set_mla_kv_buffer(0, slots, nope, rope)
        sparse = DSATokenToKVPool(8, 4, torch.bfloat16, 2, 1, 2, **options)
        keys = torch.arange(LANES * 128, device=DEVICE).reshape(LANES, 128).to(torch.uint8)
        sparse.set_index_k_scale_buffer(1, slots, keys, values(1, torch.float32, 3)[:, 0])
        with beside(*(each.rows for each in sparse.buffers)):
            sparse.move_kv_cache(slots[:2], slots[[1, 0]])
        sparse.check()
        pages = sparse.get_index_k_with_scale_buffer(1).tolist()
        found.append((content(latents), pages, sparse.audit()))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_move_is_as_in_torch(dtype: torch.dtype, count: int) -> None:
    """Slots that pass around in a ring, more of them than a tile has, and padded lanes."""
    found = []
    for backend in ("torch", "triton"):
        made = MHATokenToKVPool(48, 2, dtype, 1, 37, 2, device=DEVICE, backend=backend)
        slots = torch.arange(2, 50, device=DEVICE)
        for layer in (0, 1):
            drawn = torch.tensor(numbers(48 * 37, layer, finite=True), device=DEVICE)
            rows = drawn.to(torch.float32).reshape(48, 1, 37)
            made.set_kv_buffer(layer, slots, rows, rows + 1)
        lanes = torch.tensor([0, -3], device=DEVICE)
        target, source = torch.cat((slots[:count], lanes)), slots[:count].roll(1)
        with beside(*(each.rows for each in made.buffers)):
            made.move_kv_cache(target, torch.cat((source, lanes)))
        found.append(content(made))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("target", "source", "kind", "words"),
    [
        ([3, 15], [4, 4], OutOfRange, r"\[1\] id 15"),
        ([3, 4], [4, 15], OutOfRange, r"\[1\] id 15"),
        ([3, 2, 4], [4, 15, 2], OutOfRange, r"\[1\] id 15"),
        ([3, 4], [4, 2], Reserved, r"\[1\] id 2"),
        ([3, 4, 3, 3], [4, 4, 5, 5], Duplicate, r"\[2\] id 3 was named at 0"),
        ([3, 3, 4], [4, 4, 0], Reserved, r"\[2\] id 0"),
    ],
)
def test_a_faulty_move_moves_nothing(
    target: list[int], source: list[int], kind: type[PoolError], words: str
) -> None:
    """The smallest fault is named, later; the claims are back, and nothing has moved."""
    made = pool(torch.float32, "triton")
    slots = torch.arange(3, 12, device=DEVICE)
    made.set_kv_buffer(0, slots, values(WIDTH, torch.float32, 1), values(5, torch.float32, 2))
    before = content(made)
    with beside(*(each.rows for each in made.buffers)):
        made.move_kv_cache(torch.tensor(target, device=DEVICE), torch.tensor(source, device=DEVICE))
    with pytest.raises(kind, match=words):
        made.check()
    made.recover()
    assert content(made) == before
    assert made.audit() == []


@pytest.mark.parametrize("at", [0, 5, 8])
def test_a_faulty_store_stores_nothing(at: int) -> None:
    """A slot beyond the pool, in whichever program's lane: no lane of any is written."""
    made = pool(torch.bfloat16, "triton")
    slots = torch.arange(3, 12, device=DEVICE)
    slots[at] = 15
    made.set_kv_buffer(1, slots, values(WIDTH, torch.float32, 1), values(5, torch.float32, 2))
    with pytest.raises(OutOfRange, match=rf"\[{at}\] id 15"):
        made.check()
    made.recover()
    assert not any(code for rows in content(made) for row in rows for code in row)


def test_unchecked_slots_beyond_the_pool_are_dropped() -> None:
    """With `validate=False` nothing is said, and nothing written outside."""
    for backend in ("torch", "triton"):
        made = pool(torch.float16, backend, validate=False)
        slots = torch.tensor([15, 3, 999, -7, 14, 2, 1, 0, 2**40], device=DEVICE)
        keys, others = values(WIDTH, torch.float16, 1), values(5, torch.float16, 2)
        made.set_kv_buffer(0, slots, keys, others)
        written = {at for at, row in enumerate(content(made)[0]) if any(row)}
        assert written == {3, 14}
        assert made.audit() == []


@pytest.mark.skipif(DEVICE != "cpu", reason="memory that isn't there is the host's")
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_the_largest_slot_of_a_large_pool(backend: str) -> None:
    """200 GiB of rows of 576 bytes, of which only pages that are written to become real.

    Rows are written whole, and as latents are, from two parts.
    """
    row = 576
    slots = 200 * GIB // row
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NORESERVE
    with mmap.mmap(-1, slots * row, flags=flags) as memory:
        rows = torch.frombuffer(memory, dtype=torch.uint8).view(slots, row)
        buffer = plain("latent", 0, rows)
        last = torch.tensor([slots - 1, slots // 2])
        written = torch.arange(2 * row).reshape(2, row).to(torch.uint8)
        record = torch.zeros(8, dtype=torch.int64)
        whole = [Part(buffer, written, torch.uint8)]
        halves = [
            Part(buffer, written[:, :512] + 1, torch.uint8),
            Part(buffer, written[:, 512:] + 1, torch.uint8, offset=512),
        ]
        target = torch.tensor([5, 6])
        for parts, due in ((whole, written), (halves, written + 1)):
            if backend == "torch":
                kv_rows.store(parts, last, 1, slots)
                kv_rows.move([buffer], last, target, 1, slots)
            else:
                options: dict[str, Any] = {"first": 1, "end": slots, "record": record, "seq": 1}
                move = {"claim": record, "validate": False, **options}
                load().kv_rows.store(parts, last, None, validate=True, **options)
                with beside(buffer.rows):
                    load().kv_rows.move([buffer], last, target, **move)
            assert (rows[last] == due).all()
            assert (rows[target] == due).all()
        assert not rows[[0, 1, slots - 2, slots // 2 + 1, slots // 2 - 1]].any()
        del rows, buffer, whole, halves, parts


def test_words_are_of_any_width() -> None:
    """Rows of odd bytes, and values that begin in the middle of a word."""
    made = KVBuffer("k", 0, torch.zeros(4, 1, 3, dtype=torch.uint8))
    flat = torch.arange(1, 11, dtype=torch.uint8)
    kv_rows.put(Part(made, flat[1:10].reshape(3, 3), torch.uint8), torch.tensor([3, 1, 2]))
    assert made.rows[:, 0].tolist() == [[0, 0, 0], [5, 6, 7], [8, 9, 10], [2, 3, 4]]
