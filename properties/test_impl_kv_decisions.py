"""What was decided about the quirks of the KV pools' and the host tier's spec, one test for each.

`interleave_hisparse_host_prefix.md` §8 (IH-Q), `pools_states_sizing.md` §25 (PS-25). Where another
file holds a decision already its test says so.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl import (
    DSATokenToKVPool,
    HostKVPool,
    HostSlots,
    HostStatePool,
    HybridLinearKVPool,
    HybridReqToTokenPool,
    KVWriteLoc,
    MHATokenToKOnlyPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    PagedTokenToKVPoolAllocator,
    ReqToTokenPool,
    SWAKVPool,
)
from impl.errors import Duplicate, NotPageMultiple, OutOfRange, Reserved, Unsupported
from impl.kernels.kv_rows import FP8
from properties.hybrid_scene import Scene
from properties.subjects.impl import default_device
from properties.test_backends import require

DEVICE = default_device()
BACKENDS = pytest.mark.parametrize("backend", ["torch", "triton"])
F32 = torch.float32


def slots(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device=DEVICE)


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device=DEVICE)


def heads(backend: str = "auto", **options: Any) -> Any:
    """Two pages of three slots, two layers, heads of two numbers."""
    given: dict[str, Any] = {"dtype": F32, "head_num": 1, "head_dim": 2, "layer_num": 2}
    require("torch" if backend == "auto" else backend)
    return MHATokenToKVPool(6, 3, device=DEVICE, backend=backend, **{**given, **options})


def latents(backend: str = "auto", rope: int = 1, **options: Any) -> Any:
    """The same of latents of two numbers and rotary ones."""
    require("torch" if backend == "auto" else backend)
    return MLATokenToKVPool(6, 3, F32, 2, rope, 1, device=DEVICE, backend=backend, **options)


# ---- slots of padding --------------------


@BACKENDS
@pytest.mark.parametrize("lane", [-1, -2, -9, 0, 2])
def test_padding_is_any_negative_slot_and_the_first_page(backend: str, lane: int) -> None:
    """IH-Q10, PS-25.17: a padded lane is dropped at every door, a live one beside it written."""
    loc, live = slots(lane, 4), [4]
    pools = [heads(backend)]
    pools[-1].set_kv_buffer(0, loc, ones(2, 1, 2), ones(2, 1, 2))
    pools.append(heads(backend))
    padded = torch.stack([loc, loc])
    pools[-1].set_kv_buffer_prefix_valid(0, padded, slots(2, 1), ones(4, 1, 2), ones(4, 1, 2))
    pools.append(MHATokenToKOnlyPool(6, 3, F32, 1, 2, 1, device=DEVICE, backend=backend))
    pools[-1].set_k_buffer(0, loc, ones(2, 1, 2))
    for rope in (0, 1):
        pools.append(latents(backend, rope))
        tail = ones(2, 1, rope) if rope else None
        pools[-1].set_mla_kv_buffer(0, loc, ones(2, 1, 2), tail)
        pools.append(latents(backend, rope))
        pools[-1].set_kv_buffer(0, loc, ones(2, 1, 2 + rope))
    pools.append(DSATokenToKVPool(6, 3, F32, 2, 1, 1, device=DEVICE, backend=backend))
    pools[-1].set_index_k_scale_buffer(0, loc, ones(2, 128).to(torch.uint8), ones(2, 1))
    for pool in pools:
        pool.check()
        written = [rows_written(each) for each in pool.buffers if each.rows.any()]
        assert written, type(pool)
        assert all(each == live for each in written), (type(pool), written)


@BACKENDS
@pytest.mark.parametrize("lane", [-1, -2, -9, 0, 2])
def test_padded_lanes_of_a_move(backend: str, lane: int) -> None:
    """IH-Q10: a move with padding as target writes the other lanes' rows alone."""
    pool = heads(backend)
    pool.set_kv_buffer(0, slots(4), ones(1, 1, 2), ones(1, 1, 2))
    pool.move_kv_cache(slots(lane, 7), slots(4, 4))
    pool.check()
    assert rows_written(pool.buffers[0]) == [4, 7]


@BACKENDS
@pytest.mark.parametrize("lane", [-1, -2, -9, 0, 2])
def test_padded_lanes_of_a_pair(backend: str, lane: int) -> None:
    """IH-Q10: they move no windows either, a window of the pool's last slot least."""
    pool = mapped_pair(backend)
    pool.move_kv_cache(slots(lane, 7), slots(4, 4))
    pool.check()
    assert rows_written(pool.full_kv_pool.buffers[0]) == [4, 7]
    assert rows_written(pool.swa_kv_pool.buffers[0]) == [4, 7]


@BACKENDS
@pytest.mark.parametrize(
    ("target", "source", "kind"),
    [
        ([7, 9], [4, 4], OutOfRange), ([7, 2**40], [4, 4], OutOfRange), ([7, 7], [4, 4], Duplicate),
        ([7, 5], [4, 9], OutOfRange), ([7, 5], [4, 2], Reserved), ([7, 5], [4, -4], Reserved),
    ],
)  # fmt: skip
def test_a_faulty_move_of_a_pair(
    backend: str, target: list[int], source: list[int], kind: type[Exception]
) -> None:
    """Bad input: what is wrong on the full side keeps both from being written, later too."""
    pool = mapped_pair(backend)
    before = pool.snapshot()

    def move() -> None:
        pool.move_kv_cache(slots(*target), slots(*source))
        pool.check()

    with pytest.raises(kind, match="move_kv_cache"):
        move()
    pool.recover()
    pool.check()
    assert pool.snapshot() == before
    pool.move_kv_cache(slots(7), slots(4))
    pool.check()
    assert rows_written(pool.swa_kv_pool.buffers[0]) == [4, 7]


def mapped_pair(backend: str) -> Any:
    """A pair whose windows are as its slots, of which slot 4 has something on both sides."""
    require(backend)
    pool, write = composite(False, backend=backend)
    mapping = torch.arange(10, device=DEVICE)
    mapping[:3], mapping[9] = 0, -1
    pool.register_mapping(mapping)
    for layer in (0, 1):
        write(layer, KVWriteLoc(slots(4), slots(4)))
    return pool


def rows_written(buffer: Any) -> list[int]:
    """The slots of a buffer that hold anything."""
    every = torch.arange(9, device=DEVICE)
    found: list[int] = buffer.gather(every).flatten(1).any(1).nonzero()[:, 0].tolist()
    return found


# ---- the host's slots --------------------


def test_host_slots_begin_at_0() -> None:
    """IH-Q12: the first slot is handed out, and every page with it."""
    made = HostSlots(12, 4)
    found = made.alloc(12)
    assert found is not None
    assert found.tolist() == list(range(12))
    assert made.available_size() == 0


@pytest.mark.parametrize(
    ("freed", "kind"),
    [
        ([0, 1, 2, 3, 0, 1, 2, 3], Duplicate),
        ([0, 1, 2, 2], NotPageMultiple),
        ([0, 1, 2], NotPageMultiple),
        ([0, 1, 4, 5], NotPageMultiple),
    ],
)
def test_host_frees_are_of_whole_pages_once(freed: list[int], kind: type[Exception]) -> None:
    """IH-Q13: a page twice in one call, or in part, is refused, and nothing has come back."""
    made = HostSlots(12, 4)
    made.alloc(8)
    before = made.snapshot()
    with pytest.raises(kind):
        made.free(torch.tensor(freed))
    assert made.snapshot() == before


def test_host_pools_have_one_layout() -> None:
    """IH-Q14: layer first, a stretch of memory for each buffer of a layer; no other is offered."""
    pool = heads()
    host = HostKVPool(pool, 12)
    assert [each.rows.is_contiguous() for each in host.buffers] == [True] * 4
    assert {(each.rows.shape[0], each.row_bytes) for each in host.buffers} == {(12, 8)}
    kinds: list[tuple[Any, Any]] = [(HostKVPool, pool), (HostStatePool, SimpleNamespace())]
    for kind, source in kinds:
        with pytest.raises(TypeError, match="layout"):
            kind(source, 12, layout="page_unified")


# ---- where to write --------------------


def marked(*numbers: int, **companions: torch.Tensor) -> KVWriteLoc:
    return KVWriteLoc(slots(*numbers), physical=True, **companions)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("latent", [False, True])
def test_composites_keep_the_mark(layer: int, latent: bool) -> None:
    """IH-Q17: marked slots are marked for the side that they reach, unmarked ones are refused."""
    pool, write = composite(latent, requires_physical_write_loc=True)
    loc: dict[str, Any] = {"swa_loc": slots(5)}
    with pytest.raises(Unsupported, match="physical=True"):
        write(layer, KVWriteLoc(slots(4), **loc))
    write(layer, marked(4, **loc))
    side = pool.swa_kv_pool if layer else pool.full_kv_pool
    assert rows_written(side.buffers[0]) == [5 if layer else 4]


def composite(latent: bool, **options: Any) -> tuple[Any, Any]:
    """A pair whose layer 1 has windows, and what writes a token to it."""
    given: dict[str, Any] = {"device": DEVICE, "head_num": 1, "head_dim": 2, **options}
    layers: dict[str, Any] = {"swa_attention_layer_ids": [1], "full_attention_layer_ids": [0]}
    if not latent:
        pool = SWAKVPool(6, 6, 3, F32, **layers, **given)
        return pool, lambda at, loc: pool.set_kv_buffer(at, loc, ones(1, 1, 2), ones(1, 1, 2))
    widths: dict[str, Any] = {"kv_lora_rank": 2, "qk_rope_head_dim": 1}
    pool = SWAKVPool(
        6, 6, 3, F32, token_to_kv_pool_class=MLATokenToKVPool, **layers, **widths, **given
    )
    return pool, lambda at, loc: pool.set_mla_kv_buffer(at, loc, ones(1, 1, 2), ones(1, 1, 1))


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_hybrid_writes_where_full_loc_says(is_marked: bool) -> None:
    """PS-25.18, IH-Q17: heads and latents alike, and marked as the location is."""
    loc = KVWriteLoc(slots(4), full_loc=slots(7), physical=is_marked)
    options: dict[str, Any] = {"requires_physical_write_loc": is_marked}
    inner = heads(layer_num=1, **options)
    HybridLinearKVPool(inner, [3]).set_kv_buffer(3, loc, ones(1, 1, 2), ones(1, 1, 2))
    assert [rows_written(each) for each in inner.buffers] == [[7], [7]]
    inner = latents(**options)
    HybridLinearKVPool(inner, [3]).set_mla_kv_buffer(3, loc, ones(1, 1, 2), ones(1, 1, 1))
    assert rows_written(inner.buffers[0]) == [7]


# ---- layers --------------------


@pytest.mark.parametrize("start", [0, 1, 5])
def test_layer_ranges(start: int) -> None:
    """IH-Q24, PS-25.6, PS-25.7: half-open, 0 is a number, and writers count as readers do."""
    pool = heads(start_layer=start)
    assert (pool.start_layer, pool.end_layer) == (start, start + 2)
    keys: Any = MHATokenToKOnlyPool(6, 3, F32, 1, 2, 2, start_layer=start, device=DEVICE)
    for at in range(2):
        pool.set_kv_buffer(start + at, slots(4 + at), ones(1, 1, 2), ones(1, 1, 2))
        keys.set_k_buffer(start + at, slots(4 + at), ones(1, 1, 2))
        for each in (pool, keys):
            assert rows_of(each.get_key_buffer(start + at)) == [4 + at]
    assert heads(start_layer=start, end_layer=start + 2).end_layer == start + 2
    nothing = heads(layer_num=0, start_layer=start, end_layer=start)
    assert (nothing.start_layer, nothing.end_layer) == (start, start)


def rows_of(tensor: torch.Tensor) -> list[int]:
    found: list[int] = tensor.flatten(1).any(1).nonzero()[:, 0].tolist()
    return found


# ---- values --------------------


@BACKENDS
@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_fp8_writes_clamp_and_leave_their_arguments(backend: str, dtype: torch.dtype) -> None:
    """IH-Q18, PS-25.8: the door of prefixes and the plain one do the same to the same values."""
    most, loc = torch.finfo(dtype).max, slots(4, 5)
    given = [torch.tensor([[[9e4, -9e4]], [[2.0, 6.0]]], device=DEVICE) for _ in range(2)]
    kept = [each.clone() for each in given]
    for prefix in (False, True):
        pool = heads(backend, dtype=dtype)
        if prefix:
            pool.set_kv_buffer_prefix_valid(0, loc[:, None], slots(1, 1), *given, 0.5, 0.25)
        else:
            pool.set_kv_buffer(0, loc, *given, 0.5, 0.25)
        pool.check()
        assert all(torch.equal(now, then) for now, then in zip(given, kept, strict=True))
        keys = pool.get_key_buffer(0)[4:6].to(torch.float32)
        values = pool.get_value_buffer(0)[4:6].to(torch.float32)
        assert keys.flatten().tolist() == [most, -most, 4.0, 12.0]
        assert values.flatten().tolist() == [most, -most, 8.0, 24.0]


@BACKENDS
@pytest.mark.parametrize("widths", [(2, 70), (70, 2)])
def test_a_move_is_one_assignment_of_whole_rows(backend: str, widths: tuple[int, int]) -> None:
    """PS-25.14: values wider than keys are moved whole, a ring longer than any chunk at once."""
    require(backend)
    count = 300
    pool: Any = MHATokenToKVPool(
        count, 1, F32, 1, widths[0], 1, v_head_dim=widths[1], device=DEVICE, backend=backend
    )
    every = torch.arange(1, count + 1, device=DEVICE)
    rows = [torch.randn(count, 1, width, device=DEVICE) for width in widths]
    pool.set_kv_buffer(0, every, *rows)
    pool.move_kv_cache(every, every.roll(1))
    pool.check()
    for found, due in zip(pool.get_kv_buffer(0), rows, strict=True):
        assert torch.equal(found[1:], due.roll(1, 0))


# ---- paused memory --------------------


def test_clearing_writes_to_no_memory_that_may_be_paused() -> None:
    """PS-25.20: tables and buffers keep their bytes, ids are free again, maps are as new."""
    rows = ReqToTokenPool(4, 3, device=DEVICE)
    rows.req_to_token.fill_(7)
    pool = heads()
    pool.set_kv_buffer(0, slots(4), ones(1, 1, 2), ones(1, 1, 2))
    allocator = PagedTokenToKVPoolAllocator(6, 3, device=DEVICE, kvcache=pool)
    rows.alloc_rows(2)
    allocator.alloc(6)
    before = pool.snapshot()
    rows.clear()
    allocator.clear()
    assert (rows.available_size(), allocator.available_size()) == (4, 6)
    assert rows.req_to_token.eq(7).all()
    assert pool.snapshot() == before


def test_clearing_hybrid_rows() -> None:
    """PS-25.20: the maps are reset and all slots are free, nothing of a request is left."""
    scene = Scene()
    pool: HybridReqToTokenPool = scene.pool
    pool.req_to_token.fill_(7)
    maps = ("req_index_to_mamba_index_mapping", "req_index_to_mamba_ping_pong_track_buffer_mapping")
    assert all(getattr(pool, name).any() for name in maps)
    pool.clear()
    assert not any(getattr(pool, name).any() for name in maps)
    assert pool.mamba_allocator.available_size() == pool.mamba_allocator.size
    assert pool.req_to_token.eq(7).all()
    assert pool.audit() == []
