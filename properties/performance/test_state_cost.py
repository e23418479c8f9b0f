"""What a clear and a copy of state slots may spend: a launch for each tensor, not for each layer.

As in `test_cost.py`: with `backend="triton"` ids are looked at on the device, in torch not at all.
Spec: `spec/pools_states_sizing.md` §3, §5.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton.runtime import interpreter

from impl import MambaPool, NGramPool, ShortConvPool
from impl.allocators import deferral
from impl.states.shapes import StateParams, StateShape
from properties.performance.counting import Count, Counting
from properties.performance.test_cost import PinnedMailbox
from properties.subjects.impl import default_device

DEVICE = torch.device(default_device())
SLOTS = 64
LAYERS = 36  # of Qwen3-Next
#: conv, temporal, short convolutions, contexts
TENSORS = 4
#: the launch that looks at the ids
CHECKS = 1


@pytest.fixture(autouse=True)
def _as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults travel as on a device; the interpreter, slow with so many programs, runs none."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(deferral, "mailbox", PinnedMailbox)
        monkeypatch.setattr(interpreter.GridExecutor, "__call__", lambda *_, **__: None)


def pools(layers: int, **options: Any) -> MambaPool:
    """Tiny states of many layers, with both siblings."""
    common: dict[str, Any] = {"size": 2 * SLOTS, "device": DEVICE, **options}
    pool = MambaPool(
        spec_state_size=0,
        cache_params=StateParams(
            shape=StateShape(conv=((2, 3),), temporal=(1, 2, 2), conv_kernel=4),
            layers=tuple(range(layers)),
        ),
        mamba_layer_ids=range(layers),
        **common,
    )
    pool.register_slot_state(
        ShortConvPool(
            state_shape=(2, 2), layer_ids=range(layers), dtype=torch.float32, **common
        )
    )  # fmt: skip
    pool.register_slot_state(NGramPool(context_len=2, eos_token_id=1, **common))
    return pool


def spent(call: str, layers: int, options: dict[str, Any]) -> Count:
    """What a call on 64 slots spends the second time."""
    with Counting() as counting:
        pool = pools(layers, **options)
        src = torch.arange(1, SLOTS + 1).to(DEVICE, non_blocking=True)
        ids = (src,) if call == "clear_slots" else (src, src + SLOTS)
        getattr(pool, call)(*ids)
        with counting.window() as count:
            getattr(pool, call)(*ids)
    return count


@pytest.mark.parametrize("call", ["clear_slots", "copy_from"])
def test_launches_are_of_tensors(call: str) -> None:
    """64 slots: one launch for the ids and one for each tensor, over one layer or 36; no reads."""
    one, many = (spent(call, layers, {"backend": "triton"}) for layers in (1, LAYERS))
    assert len(many.launches) == CHECKS + TENSORS
    assert many.launches == one.launches
    assert many.operations == one.operations
    assert many.reads == []


@pytest.mark.parametrize("call", ["clear_slots", "copy_from"])
def test_launches_without_checks(call: str) -> None:
    """Without checks of values a launch for each tensor is all."""
    count = spent(call, LAYERS, {"backend": "triton", "validate": False})
    assert len(count.launches) == TENSORS


@pytest.mark.parametrize("call", ["clear_slots", "copy_from"])
def test_operations_are_of_tensors(call: str) -> None:
    """In torch as many operations over 36 layers as over one, and nothing is read by the host."""
    options = {"backend": "torch", "validate": False}
    one, many = (spent(call, layers, options) for layers in (1, LAYERS))
    assert many.operations == one.operations
    assert many.reads == []
    assert many.launches == []


def test_work_is_of_the_slots() -> None:
    """A clear of k slots goes through as much in a pool that is 16 times larger."""
    found = []
    for size in (2 * SLOTS, 32 * SLOTS):
        with Counting() as counting:
            pool = pools(2, backend="torch", validate=False, size=size)
            ids = torch.arange(1, SLOTS + 1).to(DEVICE, non_blocking=True)
            pool.clear_slots(ids)
            with counting.window() as count:
                pool.clear_slots(ids)
        found.append(count)
    assert found[0] == found[1]
