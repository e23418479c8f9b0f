"""Pools of KV: junk makes no pool, reads nothing and moves nothing, and no byte changes.

Writes and host copies: `test_impl_kv_bad_input.py`.
"""

from __future__ import annotations

from collections.abc import Callable
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
    PoolError,
    SWAKVPool,
)
from impl.errors import OutOfRange, Unsupported, WrongDtype
from properties.test_backends import require

E4M3 = torch.float8_e4m3fn
LOC = torch.tensor([4, 5])
HEADS, ROWS = torch.ones(2, 2, 3), torch.ones(2, 1, 6)
COMMON = {"size": 8, "page_size": 4, "dtype": torch.float32, "device": "cpu"}
OF_HEADS = {**COMMON, "head_num": 2, "head_dim": 3}
OF_LATENTS = {**COMMON, "kv_lora_rank": 4, "qk_rope_head_dim": 2, "layer_num": 2}


def windows(**options: Any) -> SWAKVPool:
    """Full slots 4 and 5 have windows 6 and 7, the last one, 11, has window 5."""
    sides = {"size_swa": 4, "swa_attention_layer_ids": [0], "full_attention_layer_ids": [1]}
    pool = SWAKVPool(**{**OF_HEADS, **sides, **options})
    mapping = torch.zeros(13, dtype=torch.int64)
    mapping[LOC], mapping[11], mapping[-1] = LOC + 2, 5, -1
    pool.register_mapping(mapping)
    return pool


def hybrid(**options: Any) -> HybridLinearKVPool:
    """Layers 1 and 3 attend."""
    given = {"full_kv_pool": MAKERS["heads"](), "full_attention_layer_ids": [1, 3]}
    return HybridLinearKVPool(**{**given, "start_layer": 0, **options})


def maker(cls: Any, given: dict[str, Any]) -> Callable[..., Any]:
    """Makes pools of these arguments or others."""
    return lambda **options: cls(**{**given, **options})


SPARSE = {
    **OF_LATENTS, "dtype": E4M3, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "kv_cache_dim": 656,
    "index_buf_size": 8, "index_head_dim": 128, "skip_topk_layers": [False, True],
}  # fmt: skip
MAKERS: dict[str, Callable[..., Any]] = {
    "heads": maker(MHATokenToKVPool, {**OF_HEADS, "layer_num": 2}),
    "keys": maker(MHATokenToKOnlyPool, {**OF_HEADS, "layer_num": 2}),
    "latents": maker(MLATokenToKVPool, OF_LATENTS),
    "sparse": maker(DSATokenToKVPool, SPARSE),
    "windows": windows,
    "hybrid": hybrid,
}
#: of each pool the arguments that its constructor may not be given just anything for
CONSTRUCTORS: dict[str, tuple[str, ...]] = {
    "heads": (*OF_HEADS, "layer_num"),
    "keys": (*OF_HEADS, "layer_num"),
    "latents": tuple(OF_LATENTS),
    "sparse": tuple(SPARSE),
    "windows": (*OF_HEADS, "size_swa", "swa_attention_layer_ids", "full_attention_layer_ids"),
    "hybrid": ("full_kv_pool", "full_attention_layer_ids", "start_layer"),
}
# Arguments for which no value is a value as well.
OPTIONAL = {"dst_dtype"}
JUNK: tuple[Any, ...] = (
    -1, 1.5, "x", [1.5], torch.tensor(1), torch.zeros(2), float("nan"), object(), torch.int32,
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, names in CONSTRUCTORS.items() for name in names if name != "device"],
)
def test_junk_makes_no_pool(kind: str, name: str) -> None:
    """Every argument of every constructor."""
    for junk in JUNK:
        with pytest.raises(PoolError):
            MAKERS[kind](**{name: junk})


MOVE = ("move_kv_cache", {"tgt_loc": LOC, "src_loc": LOC})
COPY = ("get_cpu_copy", {"indices": LOC})
LATENTS = ("get_mla_kv_buffer", {"layer": 0, "loc": LOC, "dst_dtype": torch.float32})
KEYS = {"index_k": torch.ones(2, 128, dtype=torch.uint8), "index_k_scale": torch.ones(2, 1)}
OF_REQUESTS = {
    "layer_id": 0, "seq_lens": torch.tensor([2, 3]), "page_indices": torch.tensor([[1], [2]]),
    "seq_len_sum": 5,
}  # fmt: skip
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "heads": [
        MOVE, COPY, ("get_kv_buffer", {"layer_id": 0}), ("view_kv_buffer", {"layer_id": 0}),
        ("translate_kv_indices_for_transfer", {"kv_indices": LOC}),
    ],
    "keys": [MOVE, COPY, ("get_key_buffer", {"layer_id": 0})],
    "latents": [MOVE, COPY, LATENTS],
    "sparse": [
        MOVE, COPY, LATENTS, ("get_index_k_with_scale_buffer", {"layer_id": 0}),
        ("get_index_k_scale_buffer", OF_REQUESTS),
    ],
    "windows": [
        MOVE, COPY, ("get_kv_buffer", {"layer_id": 0}),
        ("translate_loc_from_full_to_swa", {"kv_indices": LOC}),
    ],
    "hybrid": [MOVE, COPY, ("get_kv_buffer", {"layer_id": 3})],
}  # fmt: skip
# Numbers that may be any.
ANY = {"commit_lens", "kv_indices"}
# Slots that aren't there, and tensors that aren't slots or values.
TENSORS: tuple[Any, ...] = (
    torch.tensor([4, 500]), torch.tensor([[4, 5]]), torch.tensor([4, 5], dtype=torch.uint8),
    torch.ones(3, 2, 3), torch.ones(2, 2, 3, dtype=torch.int32), torch.ones(2, 2, 3).double(),
    torch.tensor([4], device="meta"), torch.ones(2, 2, 3, device="meta"),
)  # fmt: skip
CASES = [
    (kind, at, name)
    for kind, calls in CALLS.items()
    for at, (_, given) in enumerate(calls)
    for name in given
]


@pytest.mark.parametrize(("kind", "at", "name"), CASES)
def test_junk_changes_no_byte(kind: str, at: int, name: str) -> None:
    """Every argument of every call; as they are, they are good."""
    pool = MAKERS[kind]()
    call, given = CALLS[kind][at]
    getattr(pool, call)(**given)
    before = pool.snapshot()
    tensors = TENSORS[1:] if name in ANY else TENSORS
    for value in (*JUNK, *tensors, *([] if name in OPTIONAL else [True, None])):
        with pytest.raises(PoolError):
            getattr(pool, call)(**{**given, name: value})
    assert pool.snapshot() == before


@pytest.mark.parametrize(
    "changed",
    [
        {"seq_lens": torch.tensor([2, 2])},
        {"seq_lens": torch.tensor([6, -1])},
        {"seq_lens": torch.tensor([0, 5])},
        {"page_indices": torch.tensor([[1]])},
        {"page_indices": torch.tensor([[1], [3]])},
        {"page_indices": torch.tensor([[-1], [1]])},
        {"seq_len_sum": 6},
    ],
)
def test_pages_of_requests_that_are_refused(changed: dict[str, Any]) -> None:
    """Lengths that don't add up, pages that aren't there."""
    with pytest.raises(PoolError):
        MAKERS["sparse"]().get_index_k_scale_buffer(**{**OF_REQUESTS, **changed})


def test_pages_that_nobody_needs_may_be_anything() -> None:
    """Behind a request's own pages, and where there is no token."""
    pool = MAKERS["sparse"]()
    pool.set_index_k_scale_buffer(0, LOC, **KEYS)
    pages = torch.tensor([[1, -7], [99, 99]])
    keys, scales = pool.get_index_k_scale_buffer(0, torch.tensor([2, 0]), pages, 2)
    assert keys.tolist() == KEYS["index_k"].tolist()
    assert scales.view(torch.float32).tolist() == [[1.0], [1.0]]
    none = pool.get_index_k_scale_buffer(0, LOC[:0], pages[:0], 0)
    assert [tuple(each.shape) for each in none] == [(0, 128), (0, 4)]


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64, torch.uint8, E4M3])
def test_keys_and_values_of_a_wrong_type_are_refused(dtype: torch.dtype) -> None:
    """Though they are of one."""
    pool = MAKERS["heads"]()
    values = HEADS.to(dtype)
    with pytest.raises(WrongDtype, match="cache_k"):
        pool.set_kv_buffer(0, LOC, values, values)
    assert not pool.get_key_buffer(0).any()


def test_a_hybrid_is_of_its_pools_kind() -> None:
    """Sizes, types and place."""
    inner = MAKERS["heads"](dtype=E4M3)
    pool = hybrid(full_kv_pool=inner)
    for name in ("size", "page_size", "dtype", "store_dtype", "device", "buffers"):
        assert getattr(pool, name) == getattr(inner, name)


# Moves


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize(("target", "source"), [(4, 0), (4, -1), (4, 12), (12, 4), (0, 4)])
def test_an_unchecked_move_from_or_to_nowhere_moves_nothing(
    backend: str, target: int, source: int
) -> None:
    """Where nobody looks at slots, a lane that can't be right is a padded one."""
    require(backend)
    pool = MAKERS["heads"](backend=backend, validate=False)
    pool.set_kv_buffer(0, LOC, HEADS, HEADS)
    before = pool.snapshot()
    pool.move_kv_cache(torch.tensor([target]), torch.tensor([source]))
    assert pool.snapshot() == before


def moved(pool: SWAKVPool, target: list[int], source: list[int]) -> None:
    """A move, and what is wrong with it."""
    pool.move_kv_cache(torch.tensor(target), torch.tensor(source))
    pool.check()


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("lane", [-1, -2, 0, 3])
def test_a_padded_lane_moves_no_window(backend: str, lane: int) -> None:
    """A negative number counts from no end: the last slot has a window."""
    require(backend)
    pool = windows(backend=backend)
    pool.set_kv_buffer(0, KVWriteLoc(LOC, LOC), HEADS, HEADS)
    pool.set_kv_buffer(1, LOC, HEADS, HEADS)
    before = pool.snapshot()
    moved(pool, [lane], [4])
    assert pool.snapshot() == before


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize(("target", "source"), [([4, 13], [11, 5]), ([4, 6], [11, 2])])
def test_a_refused_move_moves_no_window(backend: str, target: list[int], source: list[int]) -> None:
    """Also of the lanes that are good, also where faults come later."""
    require(backend)
    pool = windows(backend=backend)
    pool.set_kv_buffer(0, KVWriteLoc(LOC, LOC), HEADS, HEADS)
    pool.check()
    before = pool.swa_kv_pool.snapshot()
    with pytest.raises(PoolError):
        moved(pool, target, source)
    pool.recover()
    assert pool.swa_kv_pool.snapshot() == before
    moved(pool, [4], [11])
    assert pool.swa_kv_pool.snapshot() != before


def test_both_sides_have_one_backend() -> None:
    """Else one would go on where the other has stopped."""
    require("triton")
    with pytest.raises(Unsupported, match="one side has backend torch, the other triton"):
        windows(full_kwargs={"backend": "triton"}, swa_kwargs={"backend": "torch"})


def test_a_read_beyond_the_pool_reads_the_first_row() -> None:
    """Where nobody looks at slots; on a CPU somebody does."""
    loc, written = torch.tensor([8, 9, -1]), torch.arange(1, 9)
    for validate in (True, False):
        pool = MAKERS["latents"](page_size=1, validate=validate)
        pool.set_kv_buffer(0, written, torch.ones(8, 1, 6))
        if validate:
            with pytest.raises(OutOfRange, match=r"slots -1\.\.9 aren't within 0\.\.8"):
                pool.get_mla_kv_buffer(0, loc)
        else:
            nope, _ = pool.get_mla_kv_buffer(0, loc)
            assert nope[:, 0, 0].tolist() == [1.0, 0.0, 0.0]
