"""What a write and a move of KV may spend: one launch for a layer's keys and values, one for all
layers' moves, and nothing that the host reads.

As in `test_state_cost.py`. Spec: `spec/pools_states_sizing.md` §8, §9.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton.runtime import interpreter

from impl import DSATokenToKVPool, MHATokenToKVPool, MLATokenToKVPool
from impl.allocators import deferral
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


def store(layers: int, **options: Any) -> tuple[Any, Any]:
    """A pool of heads, and a write that converts and scales."""
    pool = MHATokenToKVPool(
        4 * TOKENS, 1, torch.float8_e4m3fn, 2, 8, layers, device=DEVICE, **options
    )
    keys = rows(2, 8)
    return pool, lambda loc: pool.set_kv_buffer(0, loc, keys, keys, 0.5, 0.5)


def latent(layers: int, **options: Any) -> tuple[Any, Any]:
    """A pool of latents, and a write of their two parts."""
    pool = MLATokenToKVPool(4 * TOKENS, 1, torch.bfloat16, 16, 4, layers, device=DEVICE, **options)
    nope, rope = rows(1, 16), rows(1, 4)
    return pool, lambda loc: pool.set_mla_kv_buffer(0, loc, nope, rope)


def index(layers: int, **options: Any) -> tuple[Any, Any]:
    """A pool of index keys, and a write of keys and scales."""
    pool = DSATokenToKVPool(4 * TOKENS, 4, torch.bfloat16, 2, 2, layers, device=DEVICE, **options)
    keys, scales = rows(128).to(torch.uint8), rows(1, dtype=torch.float32)
    return pool, lambda loc: pool.set_index_k_scale_buffer(0, loc, keys, scales)


def move(layers: int, **options: Any) -> tuple[Any, Any]:
    """A pool of heads, and a move of tokens in all layers."""
    pool = MHATokenToKVPool(4 * TOKENS, 1, torch.bfloat16, 2, 8, layers, device=DEVICE, **options)
    return pool, lambda loc: pool.move_kv_cache(loc, loc + TOKENS)


def spent(kind: Any, layers: int, **options: Any) -> Count:
    """What a call on 64 slots spends the second time."""
    with Counting() as counting:
        _, call = kind(layers, **options)
        slots = torch.arange(4, 4 + TOKENS).to(DEVICE, non_blocking=True)
        call(slots)
        with counting.window() as count:
            call(slots)
    return count


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("kind", [store, latent, index])
def test_a_write_is_one_launch(kind: Any, validate: bool) -> None:
    """Both parts of it, checks of slots among it; the host reads nothing, layers don't matter."""
    one, many = (spent(kind, n, backend="triton", validate=validate) for n in (1, LAYERS))
    assert one.launches == many.launches == ["store_rows"]
    assert one.reads == many.reads == []
    assert one.operations == many.operations


@pytest.mark.parametrize("validate", [True, False])
def test_a_move_is_one_launch(validate: bool) -> None:
    """In all layers' buffers, and one before it for the slots; the host reads nothing."""
    one, many = (spent(move, n, backend="triton", validate=validate) for n in (1, LAYERS))
    checks = ["check_moves"] if validate else []
    assert one.launches == many.launches == [*checks, "move_slots"]
    assert one.reads == many.reads == []
    assert one.operations == many.operations
