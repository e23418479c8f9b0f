"""SGLang 0.5.23's own host slots: the same slots as ours, and the two checks that it leaves out.

Its host pools are left out: their transfers are CUDA operations of another package, whichever way
they are asked to copy.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from impl import HostSlots
from impl.errors import Duplicate, NotPageMultiple
from properties.choices import Seeded
from properties.subjects import Factory
from properties.subjects.sglang_standins import pool_class

pytestmark = pytest.mark.of_subject("sglang")


def theirs(size: int, page_size: int) -> Any:
    """A host pool of SGLang's with slots and no bytes."""
    base = pool_class("HostKVCache")
    unused = dict.fromkeys(base.__abstractmethods__, lambda *_: None)
    made: Any = object.__new__(type("Slots", (base,), unused))
    made.size, made.page_size, made.device, made.dcp_size = size, page_size, "cpu", 1
    made.lock = threading.RLock()
    made.clear()
    return made


@pytest.mark.parametrize("page_size", [1, 3, 4])
def test_slot_for_slot(sglang: Factory, page_size: int) -> None:
    """Whole pages taken and given back: slots, shortage and numbers are SGLang's."""
    choices, size = Seeded(f"host/{page_size}"), 6 * page_size
    ours, other = HostSlots(size, page_size), theirs(size, page_size)
    held: list[torch.Tensor] = []
    short = 0
    for _ in range(300):
        if held and choices.boolean():
            slots = held.pop(choices.integer(0, len(held) - 1))
            assert ours.free(slots) == other.free(slots.clone())
        else:
            count = choices.integer(0, 4) * page_size
            found, due = ours.alloc(count), other.alloc(count)
            short += found is None
            assert (found is None) == (due is None)
            if found is not None:
                assert found.tolist() == due.tolist()
                held += [found] if count else []
        assert ours.available_size() == other.available_size()
    assert short > 3


def test_what_it_leaves_out(sglang: Factory) -> None:
    """A page named twice, and a page in part: accepted there, and refused by ours."""
    ours, other = HostSlots(12, 4), theirs(12, 4)
    twice = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    ours.alloc(4), other.alloc(4)
    with pytest.raises(Duplicate):
        ours.free(twice)
    other.free(twice)
    assert other.available_size() == 16
    other = theirs(12, 4)
    other.alloc(4)
    part = torch.tensor([0, 1])
    with pytest.raises(NotPageMultiple):
        ours.free(part)
    assert other.free(part) == 2
