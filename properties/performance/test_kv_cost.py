"""What a write and a move of KV may spend: one launch for a layer's keys and values, one for all
layers' moves, and nothing that the host reads.

As in `test_state_cost.py`. Spec: `spec/pools_states_sizing.md` §8, §9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton.runtime import interpreter

from impl import (
    DSATokenToKVPool,
    HybridLinearKVPool,
    KVWriteLoc,
    MHATokenToKOnlyPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    SWAKVPool,
)
from impl.allocators import deferral
from impl.storage.packed import calculate_mla_kv_cache_dim
from properties.performance.counting import Count, Counting
from properties.performance.test_cost import PinnedMailbox
from properties.subjects.impl import default_device

DEVICE = torch.device(default_device())
TOKENS = 64
LAYERS = 36


@pytest.fixture(autouse=True)
def _as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults travel as on a device; the interpreter, slow with so many programs, runs none."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(deferral, "mailbox", PinnedMailbox)
        monkeypatch.setattr(interpreter.GridExecutor, "__call__", lambda *_, **__: None)


def rows(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Values of as many tokens, on the device."""
    return torch.ones(TOKENS, *shape, dtype=dtype).to(DEVICE, non_blocking=True)


def heads(layers: int, **options: Any) -> MHATokenToKVPool:
    """A pool of heads that converts what is written."""
    shape = (4 * TOKENS, 1, torch.float8_e4m3fn, 2, 8, layers)
    return MHATokenToKVPool(*shape, device=DEVICE, **options)


def latents(layers: int, **options: Any) -> MLATokenToKVPool:
    """A pool of latents."""
    shape = (4 * TOKENS, 1, torch.bfloat16, 16, 4, layers)
    return MLATokenToKVPool(*shape, device=DEVICE, **options)


def indexed(layers: int, **options: Any) -> DSATokenToKVPool:
    """A pool of latents with index keys."""
    shape = (4 * TOKENS, 4, torch.bfloat16, 16, 4, layers)
    return DSATokenToKVPool(*shape, device=DEVICE, **options)


def packed(layers: int, **options: Any) -> DSATokenToKVPool:
    """A pool of packed latents."""
    width = calculate_mla_kv_cache_dim(128, 4, torch.float8_e4m3fn, is_dsa=True)
    shape = (4 * TOKENS, 4, torch.float8_e4m3fn, 128, 4, layers)
    return DSATokenToKVPool(*shape, kv_cache_dim=width, device=DEVICE, **options)


def keys_alone(layers: int, **options: Any) -> MHATokenToKOnlyPool:
    """A pool of keys."""
    shape = (4 * TOKENS, 1, torch.bfloat16, 2, 8, layers)
    return MHATokenToKOnlyPool(*shape, device=DEVICE, **options)


def hybrid(layers: int, **options: Any) -> HybridLinearKVPool:
    """A pool of heads behind global layers."""
    return HybridLinearKVPool(heads(layers, **options), range(layers))


def hybrid_latents(layers: int, **options: Any) -> HybridLinearKVPool:
    """A pool of latents behind global layers."""
    return HybridLinearKVPool(latents(layers, **options), range(layers))


def windows(layers: int, **options: Any) -> SWAKVPool:
    """A pool of two sides; full layers are even."""
    ids = range(1, 2 * layers, 2), range(0, 2 * layers, 2)
    shape = (4 * TOKENS, 4 * TOKENS, 1, torch.bfloat16, 2, 8)
    pool = SWAKVPool(*shape, *ids, device=DEVICE, **options)
    mapping = torch.arange(4 * TOKENS + 2).to(DEVICE, non_blocking=True)
    pool.register_mapping(mapping)
    return pool


Write = Callable[[torch.Tensor], object]


def write_scaled(pool: Any) -> Write:
    """Keys and values that are converted and scaled."""
    values = rows(2, 8)
    return lambda loc: pool.set_kv_buffer(0, loc, values, values, 0.5, 0.5)


def write_committed(pool: Any) -> Write:
    """Keys and values of which a beginning of each row is committed."""
    values, lens = rows(2, 8), torch.ones(TOKENS // 4, dtype=torch.int32)
    lens = lens.to(DEVICE, non_blocking=True)
    return lambda loc: pool.set_kv_buffer_prefix_valid(
        0, loc.view(TOKENS // 4, 4), lens, values, values
    )


def write_keys(pool: Any) -> Write:
    """Keys."""
    values = rows(2, 8)
    return lambda loc: pool.set_k_buffer(0, loc, values)


def write_latents(pool: Any) -> Write:
    """Whole rows of latents."""
    values = rows(1, 20)
    return lambda loc: pool.set_kv_buffer(0, loc, values, None)


def write_parts(pool: Any) -> Write:
    """Latents and rotary parts."""
    nope, rope = rows(1, 16), rows(1, 4)
    return lambda loc: pool.set_mla_kv_buffer(0, loc, nope, rope)


def write_packed(pool: Any) -> Write:
    """The same, quantised on the way."""
    nope, rope = rows(1, 128), rows(1, 4)
    return lambda loc: pool.set_mla_kv_buffer(0, loc, nope, rope)


def write_index(pool: Any) -> Write:
    """Index keys and their scales."""
    keys, scales = rows(128).to(torch.uint8), rows(1, dtype=torch.float32)
    return lambda loc: pool.set_index_k_scale_buffer(0, loc, keys, scales)


def write_full(pool: Any) -> Write:
    """Keys and values of a full layer."""
    values = rows(2, 8)
    return lambda loc: pool.set_kv_buffer(0, KVWriteLoc(loc, swa_loc=loc), values, values)


def write_window(pool: Any) -> Write:
    """Keys and values of a window layer."""
    values = rows(2, 8)
    return lambda loc: pool.set_kv_buffer(1, KVWriteLoc(loc, swa_loc=loc), values, values)


WRITES = [
    (heads, write_scaled), (heads, write_committed), (keys_alone, write_keys),
    (latents, write_latents), (latents, write_parts), (indexed, write_parts),
    (indexed, write_index), (packed, write_packed), (packed, write_index),
    (hybrid, write_scaled), (hybrid_latents, write_latents), (hybrid_latents, write_parts),
    (windows, write_full), (windows, write_window),
]  # fmt: skip
MOVED = [heads, keys_alone, latents, indexed, packed, hybrid, hybrid_latents]


def move(pool: Any) -> Write:
    """A move of tokens in all layers."""
    return lambda loc: pool.move_kv_cache(loc, loc + TOKENS)


def spent(kind: Any, work: Callable[[Any], Write], layers: int, **options: Any) -> Count:
    """What a call on 64 slots spends the second time."""
    with Counting() as counting:
        call = work(kind(layers, backend="triton", **options))
        slots = torch.arange(4, 4 + TOKENS).to(DEVICE, non_blocking=True)
        call(slots)
        with counting.window() as count:
            call(slots)
    return count


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(("kind", "work"), WRITES)
def test_a_write_is_one_launch(kind: Any, work: Any, validate: bool) -> None:
    """All parts of it, checks of slots among it; the host reads nothing, layers don't matter."""
    one, many = (spent(kind, work, n, validate=validate) for n in (1, LAYERS))
    assert one.launches == many.launches == ["store_rows"]
    assert one.reads == many.reads == []
    assert one.operations == many.operations


@pytest.mark.parametrize(("kind", "work"), WRITES)
def test_what_is_written_as_it_comes_costs_nothing_beside(kind: Any, work: Any) -> None:
    """Conversion and scale are the launch's own: torch makes a scale, and sends the record.

    Packed rows are quantised by torch, and joined.
    """
    operations = set(spent(kind, work, 1).operations) - {"full", "copy_"}
    assert bool(operations) == (work is write_packed)


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("kind", MOVED)
def test_a_move_is_one_launch(kind: Any, validate: bool) -> None:
    """In all layers' buffers, and one before it for the slots; the host reads nothing."""
    one, many = (spent(kind, move, n, validate=validate) for n in (1, LAYERS))
    checks = ["check_moves"] if validate else []
    assert one.launches == many.launches == [*checks, "move_slots"]
    assert one.reads == many.reads == []
    assert one.operations == many.operations


def test_a_move_of_windows_is_one_launch_for_each_side() -> None:
    """The window side's slots are looked up without the host."""
    one, many = (spent(windows, move, n) for n in (1, LAYERS))
    assert one.launches == many.launches == ["check_moves", "move_slots"] * 2
    assert one.reads == many.reads == []
    assert one.operations == many.operations


def test_a_few_tokens_are_written_as_they_are() -> None:
    """On the CPU, where a decode's write is short: one operation for keys, and one for values."""
    pool = MHATokenToKVPool(8, 1, torch.bfloat16, 2, 8, LAYERS, device="cpu")
    loc, values = torch.tensor([2, 5]), torch.ones(2, 2, 8, dtype=torch.bfloat16)
    with Counting() as counting, counting.window() as count:
        pool.set_kv_buffer(1, loc, values, values)
    assert count.operations == {"index_put_": 2}
