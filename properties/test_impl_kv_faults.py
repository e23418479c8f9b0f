"""Pools of KV where faults come later: which calls say so, and on which stream they may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from impl import MHATokenToKVPool
from impl.errors import OutOfRange
from properties.refused import ForeignStream
from properties.test_backends import require

ROWS, LOC, BEYOND = torch.ones(1, 1, 1), torch.tensor([2]), torch.tensor([9])


def pool(backend: str) -> MHATokenToKVPool:
    """Slots 1 to 4, with KV in 2."""
    require(backend)
    made = MHATokenToKVPool(4, 1, torch.float32, 1, 1, 1, device="cpu", backend=backend)
    made.set_kv_buffer(0, LOC, ROWS, ROWS)
    return made


#: all that reaches the buffers by slots, and all that looks at them as a whole
CALLS: dict[str, Callable[[MHATokenToKVPool], Any]] = {
    "set_kv_buffer": lambda p: p.set_kv_buffer(0, LOC, ROWS, ROWS),
    "a write of nothing": lambda p: p.set_kv_buffer(0, LOC[:0], ROWS[:0], ROWS[:0]),
    "set_kv_buffer_prefix_valid": lambda p: p.set_kv_buffer_prefix_valid(
        0, LOC[None], torch.tensor([1]), ROWS, ROWS
    ),
    "move_kv_cache": lambda p: p.move_kv_cache(LOC + 1, LOC),
    "get_cpu_copy": lambda p: p.get_cpu_copy(LOC),
    "load_cpu_copy": lambda p: p.load_cpu_copy([[[ROWS[0], ROWS[0]]]], LOC),
}
WHOLE: dict[str, Callable[[MHATokenToKVPool], Any]] = {
    "check": MHATokenToKVPool.check,
    "snapshot": MHATokenToKVPool.snapshot,
    "audit": MHATokenToKVPool.audit,
}


@pytest.mark.parametrize("call", [*CALLS, *WHOLE])
def test_a_fault_is_raised_by_the_next_call(call: str) -> None:
    """Whatever that is; nothing is written until somebody recovers."""
    made = pool("triton")
    made.check()
    before = made.snapshot()
    made.set_kv_buffer(0, BEYOND, ROWS + 1, ROWS + 1)
    with pytest.raises(
        OutOfRange, match=r"set_kv_buffer: \[0\] id 9 .* recover\(\) goes on without it\."
    ):
        {**CALLS, **WHOLE}[call](made)
    made.recover()
    assert made.snapshot() == before


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("call", CALLS)
def test_a_foreign_stream_is_noticed(call: str, backend: str) -> None:
    """Before anything is written."""
    made = pool(backend)
    before = made.snapshot()
    made._door._stream = ForeignStream()  # type: ignore[assignment]
    with pytest.raises(InterruptedError):
        CALLS[call](made)
    assert made.snapshot() == before
