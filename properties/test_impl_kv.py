"""The pools of KV: constructors, and what no command of their system says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl import (
    DSATokenToKVPool,
    HybridLinearKVPool,
    KVWriteLoc,
    MHATokenToKOnlyPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    SWAKVPool,
)
from impl.errors import (
    BadLengths,
    Duplicate,
    NegativeSize,
    NotPageMultiple,
    OutOfRange,
    PoolError,
    Unsupported,
    WrongDevice,
    WrongDtype,
    WrongShape,
)
from impl.storage.base import Regions
from impl.storage.buffers import KVBuffer
from impl.storage.host_copy import CHUNK
from impl.storage.swa_kv import SWACopy

E4M3 = torch.float8_e4m3fn


def mha(**options: Any) -> MHATokenToKVPool:
    """Two layers of two pages of four slots, two heads of three numbers."""
    given = {"size": 8, "page_size": 4, "dtype": torch.float32, "head_num": 2, "head_dim": 3}
    return MHATokenToKVPool(**{**given, "layer_num": 2, "device": "cpu", **options})


def sparse(**options: Any) -> DSATokenToKVPool:
    """One page of four slots, three layers of packed rows."""
    given = {"size": 4, "page_size": 4, "dtype": E4M3, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    chosen = {**given, "layer_num": 3, "kv_cache_dim": 656, "device": "cpu", **options}
    return DSATokenToKVPool(**chosen)


# Constructors


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"size": -1}, NegativeSize, "size must be at least 0, got -1"),
        ({"size": 2**31 - 4}, OutOfRange, "below 2\\^31"),
        ({"page_size": 0}, NegativeSize, "page_size must be at least 1"),
        ({"layer_num": -1}, NegativeSize, "layer_num"),
        ({"start_layer": -1}, NegativeSize, "start_layer"),
        ({"start_layer": 2, "end_layer": 3}, BadLengths, "2..2 are 1, layer_num is 2"),
        ({"dtype": torch.int8}, WrongDtype, "dtype must be one of float32"),
        ({"head_num": 0}, NegativeSize, "head_num must be at least 1"),
        ({"head_dim": 0}, NegativeSize, "head_dim"),
        ({"v_head_dim": 0}, NegativeSize, "v_head_dim"),
        ({"backend": "gpu"}, Unsupported, "unknown"),
    ],
)
def test_pools_that_cannot_be(options: dict[str, Any], kind: type[PoolError], words: str) -> None:
    """What the constructor of every pool refuses."""
    with pytest.raises(kind, match=words):
        mha(**options)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"size": 6}, NotPageMultiple, "size 6 isn't whole pages of 4"),
        ({"index_buf_size": 6}, NotPageMultiple, "index_buf_size 6"),
        ({"index_buf_size": 0}, OutOfRange, "less than size 4"),
        ({"page_size": 1, "index_buf_size": 3}, OutOfRange, "3 is less than size 4"),
        ({"index_head_dim": 64}, OutOfRange, "must be 128, got 64"),
        ({"skip_topk_layers": [True]}, BadLengths, "1 skip_topk_layers for 3 layers"),
        ({"kv_cache_dim": 600}, BadLengths, "600, a packed row has 656"),
        ({"kv_lora_rank": 500, "kv_cache_dim": 600}, BadLengths, "whole tiles of 128"),
        ({"kv_lora_rank": 0}, NegativeSize, "kv_lora_rank"),
        ({"qk_rope_head_dim": -1}, NegativeSize, "qk_rope_head_dim"),
    ],
)
def test_sparse_pools_that_cannot_be(
    options: dict[str, Any], kind: type[PoolError], words: str
) -> None:
    """What is refused of latents and index keys."""
    with pytest.raises(kind, match=words):
        sparse(**options)


def test_layers_are_half_open() -> None:
    """[start, end) has both of its layers, and no other (IH Q24)."""
    pool = mha(start_layer=5, end_layer=7)
    assert (pool.start_layer, pool.end_layer) == (5, 7)
    for layer in (5, 6):
        assert pool.get_key_buffer(layer).shape == (12, 2, 3)
    for layer in (4, 7, -1):
        with pytest.raises(OutOfRange, match=f"layer {layer} isn't in 5..6"):
            pool.get_key_buffer(layer)
    with pytest.raises(WrongDtype, match="layer_id must be an int"):
        pool.get_key_buffer(5.0)  # type: ignore[arg-type]


def test_composites_that_cannot_be() -> None:
    """Layers that a dense pool hasn't got, or that are on both sides."""
    with pytest.raises(BadLengths, match="3 layers attend, the pool has 2"):
        HybridLinearKVPool(mha(), [1, 3, 5])
    with pytest.raises(WrongDtype, match="must be a KVCache"):
        HybridLinearKVPool(object(), [1])  # type: ignore[arg-type]
    with pytest.raises(Duplicate, match="layer 1 is named twice"):
        HybridLinearKVPool(mha(), [1, 1])
    with pytest.raises(Duplicate, match=r"layers \[1\] are named on both sides"):
        SWAKVPool(4, 4, 1, torch.float32, 1, 1, [0, 1], [1, 2], device="cpu")


def test_memory_comes_from_where_it_is_told() -> None:
    """Buffers are made in the saver's context and in it the pool's, and nothing else is."""
    entered: list[str] = []

    def region(name: str) -> Any:
        @contextmanager
        def context() -> Iterator[None]:
            entered.append(name)
            yield
            entered.append(f"end of {name}")

        return context

    mha(regions=Regions(region("saver"), region("pool")))
    assert entered == ["saver", "pool", "end of pool", "end of saver"] * 2


# Writes


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"cache_k": torch.zeros(2, 2, 4)}, WrongShape, r"cache_k must be \(2, 2, 3\)"),
        ({"cache_v": torch.zeros(1, 2, 3)}, WrongShape, r"cache_v must be \(2, 2, 3\)"),
        ({"cache_k": torch.zeros(2, 2, 3).int()}, WrongDtype, "cache_k must be floating point"),
        ({"cache_k": torch.zeros(2, 2, 3).half()}, WrongDtype, "in one type"),
        ({"cache_v": torch.zeros(2, 2, 3).to(E4M3)}, WrongDtype, "Convert it first"),
        ({"cache_k": [[0.0]]}, WrongDtype, "got list"),
        ({"cache_v": torch.zeros(2, 2, 3, device="meta")}, WrongDevice, "cache_v must be on cpu"),
        ({"k_scale": "2"}, WrongDtype, "k_scale must be a number"),
        ({"v_scale": torch.ones(2)}, WrongShape, "v_scale must be one number"),
        ({"loc_info": torch.tensor([4.0, 5.0])}, WrongDtype, "loc must be int32 or int64"),
        ({"loc_info": torch.tensor([[4, 5]])}, WrongShape, "loc must have one dimension"),
        ({"loc_info": torch.tensor([4, 12])}, OutOfRange, r"\[1\] slot 12 is beyond 11"),
        ({"layer": 2}, OutOfRange, r"layer 2 isn't in 0..1"),
        ({"layer": None}, WrongDtype, "layer_id must be an int"),
    ],
)
def test_writes_that_are_refused(
    changes: dict[str, Any], kind: type[PoolError], words: str
) -> None:
    """Each argument of a write by itself; and not a byte is written."""
    pool = mha()
    good = {
        "layer": 0, "loc_info": torch.tensor([4, 5]), "cache_k": torch.ones(2, 2, 3),
        "cache_v": torch.ones(2, 2, 3),
    }  # fmt: skip
    with pytest.raises(kind, match=words):
        pool.set_kv_buffer(**{**good, **changes})
    assert pool.snapshot() == mha().snapshot()


def test_a_layer_is_an_id_or_has_one() -> None:
    """An object's `layer_id`, a number, or the override before either."""
    pool = mha()
    rows = torch.ones(1, 2, 3)
    pool.set_kv_buffer(SimpleNamespace(layer_id=1), torch.tensor([4]), rows, rows)
    pool.set_kv_buffer(None, torch.tensor([5]), rows, rows, layer_id_override=1)
    assert pool.k_buffer[1].flatten(1).any(1).nonzero()[:, 0].tolist() == [4, 5]
    assert not pool.k_buffer[0].any()


def test_arguments_are_left_alone() -> None:
    """Scaling and conversion have results of their own (IH Q18)."""
    pool = mha(dtype=E4M3)
    keys, values = torch.full((1, 2, 3), 600.0), torch.full((1, 2, 3), 9.0)
    pool.set_kv_buffer(0, torch.tensor([4]), keys, values, 0.5, torch.tensor([3.0]))
    assert keys.eq(600).all()
    assert values.eq(9).all()
    assert pool.get_key_buffer(0)[4].float().eq(448).all()
    assert pool.get_value_buffer(0)[4].float().eq(3).all()


def test_what_a_pool_stores_as_it_is_keeps_its_scale() -> None:
    """Values of the pool's own type aren't divided."""
    pool = mha()
    rows = torch.full((1, 2, 3), 9.0)
    pool.set_kv_buffer(0, torch.tensor([4]), rows, rows, 3.0, 3.0)
    assert pool.get_key_buffer(0)[4].eq(9).all()


def test_strided_values_are_written_as_they_are() -> None:
    """Keys that are a slice of something larger, few of them and many."""
    for count in (2, 30):
        pool = mha(size=32)
        whole = torch.arange(count * 24, dtype=torch.float32).reshape(count, 4, 6)
        slots = torch.arange(4, 4 + count)
        pool.set_kv_buffer(0, slots, whole[:, 1:3, 1:4], whole[:, ::2, ::2])
        assert torch.equal(pool.k_buffer[0][slots], whole[:, 1:3, 1:4])
        assert torch.equal(pool.v_buffer[0][slots], whole[:, ::2, ::2])


@pytest.mark.parametrize(
    ("loc_2d", "lens", "kind"),
    [
        (torch.tensor([4, 5]), torch.tensor([1]), WrongShape),
        (torch.tensor([[4, 5]]), torch.tensor([1, 1]), BadLengths),
        (torch.tensor([[4, 5]]), torch.tensor([1.0]), WrongDtype),
        (torch.tensor([[4, 99]]), torch.tensor([2]), OutOfRange),
    ],
)
def test_prefixes_that_are_refused(
    loc_2d: torch.Tensor, lens: torch.Tensor, kind: type[PoolError]
) -> None:
    """Slots of one dimension, another number of lengths, a committed slot beyond the pool."""
    pool, rows = mha(), torch.ones(2, 2, 3)
    with pytest.raises(kind):
        pool.set_kv_buffer_prefix_valid(0, loc_2d, lens, rows, rows)
    assert pool.snapshot() == mha().snapshot()


def test_keys_alone() -> None:
    """A pool of keys has a global layer for writer and reader (trap 6), and no values."""
    pool = MHATokenToKOnlyPool(4, 1, torch.float32, 1, 2, 2, start_layer=3, device="cpu")
    pool.set_k_buffer(4, torch.tensor([2]), torch.ones(1, 1, 2))
    assert pool.get_key_buffer(4)[2].eq(1).all()
    assert not pool.get_key_buffer(3).any()
    assert pool.get_kv_size_bytes() == (5 * 2 * 4 * 2, 0)
    for call in (pool.get_value_buffer, pool.get_kv_buffer, pool.set_kv_buffer):
        with pytest.raises(Unsupported, match="keys alone"):
            call(4)


# Where to write


def test_companions_are_narrowed() -> None:
    """A longer companion is cut to its beginning, a shorter one refused (IH Q16)."""
    loc = KVWriteLoc(torch.tensor([4, 5]), torch.tensor([1, 2, 3]), torch.tensor([7, 8]))
    assert loc.swa_loc is not None
    assert loc.swa_loc.tolist() == [1, 2]
    assert loc.full_loc is not None
    assert loc.full_loc.tolist() == [7, 8]
    one, two = torch.tensor([1]), torch.tensor([4, 5])
    for name, companions in (("swa_loc", (one, two)), ("full_loc", (two, one))):
        with pytest.raises(BadLengths, match=f"{name} has 1 slots, loc 2"):
            KVWriteLoc(two, *companions)
    with pytest.raises(WrongDtype, match="physical must be a bool"):
        KVWriteLoc(torch.tensor([4]), physical=1)  # type: ignore[arg-type]
    with pytest.raises(WrongShape, match="swa_loc"):
        KVWriteLoc(torch.tensor([4]), torch.tensor(4))


@pytest.mark.parametrize("mark", [False, True])
def test_a_batch_marks_its_slots(mark: bool) -> None:
    """`for_batch` takes slots and mark; a pool that needs one asks for it."""
    batch = SimpleNamespace(out_cache_loc=torch.tensor([4]), out_cache_loc_is_physical=mark)
    loc = KVWriteLoc.for_batch(batch, torch.tensor([1]))
    assert loc.physical is mark
    pool, rows = mha(requires_physical_write_loc=True), torch.ones(1, 2, 3)
    if mark:
        pool.set_kv_buffer(0, loc, rows, rows)
    else:
        for unmarked in (loc, torch.tensor([4])):
            with pytest.raises(Unsupported, match="physical=True"):
                pool.set_kv_buffer(0, unmarked, rows, rows)
    assert bool(pool.k_buffer[0].any()) is mark


# Host copies


def test_copies_are_in_chunks() -> None:
    """More slots than a chunk go and come back, each under another slot."""
    count = CHUNK + 7
    pool = MHATokenToKVPool(2 * count, 1, torch.float16, 1, 1, 1, device="cpu")
    slots = torch.arange(1, count + 1)
    rows = slots.reshape(count, 1, 1) % 2048 + 1
    pool.set_kv_buffer(0, slots, rows.half(), rows.half())
    copy = pool.get_cpu_copy(slots)
    assert [len(chunk[0]) for chunk in copy[0]] == [CHUNK, 7]
    pool.load_cpu_copy(copy, slots.flip(0) + count)
    assert torch.equal(pool.k_buffer[0][count + 1 :], rows.flip(0).half())
    assert torch.equal(pool.v_buffer[0][1 : count + 1], rows.half())


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda copy: None, WrongDtype),
        (lambda copy: copy[:1], WrongShape),
        (lambda copy: [[], copy[1]], BadLengths),
        (lambda copy: [copy[0], [chunk[:1] for chunk in copy[1]]], WrongShape),
        (lambda copy: [copy[0], [[each.float() for each in copy[1][0]]]], WrongDtype),
        (lambda copy: [copy[0], [[each[:, :1] for each in copy[1][0]]]], WrongShape),
        (lambda copy: [copy[0], [[each.to("meta") for each in copy[1][0]]]], WrongDevice),
        (lambda copy: [copy[0], [[copy[1][0][0], copy[1][0][1][:1]]]], WrongShape),
    ],
)
def test_foreign_copies_are_refused(spoil: Any, kind: type[PoolError]) -> None:
    """A copy of other layers, buffers, rows, types or numbers; and not a byte is written."""
    pool, rows = mha(), torch.ones(2, 2, 3)
    pool.set_kv_buffer(1, torch.tensor([4, 5]), rows, rows)
    copy, before = pool.get_cpu_copy(torch.tensor([4, 5])), pool.snapshot()
    with pytest.raises(kind):
        pool.load_cpu_copy(spoil(copy), torch.tensor([6, 7]))
    assert pool.snapshot() == before


def test_both_sides_of_a_copy_are_looked_at_first() -> None:
    """A window side that can't take its rows keeps the full side from being written."""
    pool = SWAKVPool(4, 4, 1, torch.float32, 1, 1, [1], [0], device="cpu")
    pool.register_mapping(torch.tensor([0, 1, 2, 3, 4, -1]))
    slots = torch.tensor([1, 2])
    rows = torch.ones(2, 1, 1)
    pool.set_kv_buffer(0, KVWriteLoc(slots, slots), rows, rows)
    copy, before = pool.get_cpu_copy(slots), pool.snapshot()
    with pytest.raises(WrongDtype, match="SWACopy"):
        pool.load_cpu_copy(copy[:2], slots)  # type: ignore[arg-type]
    with pytest.raises(BadLengths, match="a mask of 1 slots for 2"):
        pool.load_cpu_copy(copy._replace(swa_mask=copy.swa_mask[:1]), slots + 2)
    spoiled = SWACopy(copy.full, [[[each.double() for each in copy.swa[0][0]]]], copy.swa_mask)
    with pytest.raises(WrongDtype):
        pool.load_cpu_copy(spoiled, slots + 2)
    assert pool.snapshot() == before


def test_states_go_with_kv() -> None:
    """A hybrid's copy has KV and states; one without the other's slots is refused."""
    states = SimpleNamespace(loaded=[])
    states.get_cpu_copy = lambda ids: ("states", ids.tolist())
    states.load_cpu_copy = lambda copy, ids: states.loaded.append((copy, ids.tolist()))
    states.get_contiguous_buf_infos = lambda: ([1], [2], [3])
    pool = HybridLinearKVPool(mha(), [1, 3], mamba_pool=states)
    slots, state = torch.tensor([4, 5]), torch.tensor([7])
    copy = pool.get_cpu_copy(slots, state)
    assert copy.state == ("states", [7])
    pool.load_cpu_copy(copy, slots + 2, state + 1)
    assert states.loaded == [(("states", [7]), [8])]
    with pytest.raises(BadLengths, match="Give both or none"):
        pool.load_cpu_copy(copy, slots)
    with pytest.raises(WrongDtype, match="a HybridCopy, got list"):
        pool.load_cpu_copy(copy.kv, slots)  # type: ignore[arg-type]
    assert pool.get_state_buf_infos() == ([1], [2], [3])
    alone = HybridLinearKVPool(mha(), [1, 3])
    with pytest.raises(Unsupported, match="no state pool"):
        alone.get_cpu_copy(slots, state)
    assert alone.get_cpu_copy(slots).state is None


# Reads


def test_readers_wait_and_views_don_t() -> None:
    """A getter waits for its layer, once; a view, for shapes and addresses, doesn't (IH Q15)."""
    waited: list[int] = []
    gate = SimpleNamespace(wait_until=waited.append)
    pool = mha(start_layer=5)
    pool.layer_transfer_gate = gate
    pool.get_kv_buffer(6)
    pool.get_key_buffer(5)
    pool.view_kv_buffer(6)
    assert waited == [1, 0]
    inner = mha()
    hybrid = HybridLinearKVPool(inner, [3, 7], start_layer=2)
    hybrid.layer_transfer_gate = gate
    hybrid.get_kv_buffer(7)
    assert waited == [1, 0, 5]


@pytest.mark.parametrize("dtype", [E4M3, torch.float8_e5m2, torch.float8_e4m3fnuz])
def test_fp8_is_stored_as_bytes(dtype: torch.dtype) -> None:
    """Buffers hold bytes, readers see numbers on the same memory."""
    pool = mha(dtype=dtype)
    assert pool.store_dtype is torch.uint8
    assert pool.k_buffer[0].dtype is torch.uint8
    assert pool.get_key_buffer(0).dtype is dtype
    assert pool.get_key_buffer(0).data_ptr() == pool.k_buffer[0].data_ptr()


def test_latents_without_rotary_parts() -> None:
    """Rows of P = 0 are given and read without; others need them."""
    pool = MLATokenToKVPool(4, 1, torch.float32, 3, 0, 1, device="cpu")
    pool.set_mla_kv_buffer(0, torch.tensor([2]), torch.ones(1, 1, 3), None)
    nope, rope = pool.get_mla_kv_buffer(0, torch.tensor([2]))
    assert nope.eq(1).all()
    assert rope is None
    other = MLATokenToKVPool(4, 1, torch.float32, 3, 2, 1, device="cpu")
    with pytest.raises(Unsupported, match="2 rotary numbers"):
        other.set_mla_kv_buffer(0, torch.tensor([2]), torch.ones(1, 1, 3), None)


# The host tier


@pytest.mark.parametrize("make", [mha, sparse, lambda: HybridLinearKVPool(mha(), [1, 3])])
def test_what_a_host_tier_mirrors(make: Any) -> None:
    """The pool that its owner declares takes every buffer down and brings it up elsewhere."""
    pool = make()
    (decl,) = pool.host_pool_decls()
    dense = getattr(pool, "full_kv_pool", pool)
    assert decl.device_pool is dense
    for buffer in dense.buffers:
        buffer.rows.view(torch.uint8).random_(1, 255)
    before = [buffer.rows.clone() for buffer in dense.buffers]
    host = decl.build(8)
    slots = host.slots.alloc(4)
    assert slots is not None
    there = torch.arange(4, 8)
    host.backup(slots, there)
    for buffer in dense.buffers:
        buffer.rows.zero_()
    for layer in range(dense.start_layer, dense.end_layer):
        host.load(slots, there, layer)
    for buffer, rows in zip(dense.buffers, before, strict=True):
        due = KVBuffer(buffer.name, buffer.layer, rows).gather(there)
        assert torch.equal(buffer.gather(there), due)
        assert not buffer.gather(torch.arange(4)).any()
