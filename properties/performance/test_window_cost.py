"""What the release of windows may spend: it is of the pages named, whatever the pool.

As in `test_cost.py`, on the path of an accelerator and on that of the CPU. Spec:
`spec/swa_unified.md` §2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from impl import SWATokenToKVPoolAllocator
from impl.kernels import arrays
from impl.kernels import device as kernels
from properties.performance.counting import Count, Counting
from properties.performance.test_cost import DEVICE, cost_on_the_host

PAGE_SIZE = 4
SIZES = (2**8, 2**14)
Free = Callable[[SWATokenToKVPoolAllocator, torch.Tensor], None]
FREES: dict[str, Free] = {
    "free": lambda pair, slots: pair.free(slots),
    "free_swa": lambda pair, slots: pair.free_swa(slots),
    "free_swa_segment": lambda pair, slots: pair.free_swa_segment(slots, start_pos=0),
    "free_segment": lambda pair, slots: pair.free_segment(slots, start_pos=0),
}


@pytest.fixture
def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    """A counter; on a CPU too torch runs on the tensors, instead of numpy on their memory."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(arrays, "of", arrays.DeviceArrays)
    with Counting() as counting:
        yield counting


def in_use(num_pages: int) -> tuple[SWATokenToKVPoolAllocator, torch.Tensor]:
    """A pair of so many pages on each side, and the slots of a request that has half of them."""
    size = num_pages * PAGE_SIZE
    pair = SWATokenToKVPoolAllocator(size, size, PAGE_SIZE, device=DEVICE)
    none, half = torch.tensor([0]), torch.tensor([size // 2])
    last_loc = torch.tensor([-1], device=DEVICE)
    slots = pair.alloc_extend(none.to(DEVICE), none, half.to(DEVICE), half, last_loc, size // 2)
    assert slots is not None
    return pair, slots


@pytest.mark.parametrize("name", FREES)
def test_a_release_is_blind_to_the_pool(as_on_a_device: Counting, name: str) -> None:
    """Windows of k pages take as many operations on as many elements in a pool 64 times larger."""
    found: list[Count] = []
    for num_pages in SIZES:
        pair, slots = in_use(num_pages)
        with as_on_a_device.window() as count:
            FREES[name](pair, slots[: 64 * PAGE_SIZE])
        assert count.elements > 64
        found.append(count)
    assert found[0] == found[1]


@pytest.mark.skipif(DEVICE.type != "cpu", reason="numpy serves the CPU alone")
@pytest.mark.parametrize("name", FREES)
def test_a_release_on_the_cpu_is_blind_to_the_pool(name: str) -> None:
    """On numpy: as many calls, and as much memory in between, in a pool 64 times larger."""
    found = []
    for num_pages in SIZES:
        pair, slots = in_use(num_pages)
        pair.free(slots[-4 * PAGE_SIZE :])
        named = slots[: 32 * PAGE_SIZE]
        found.append(cost_on_the_host(lambda: FREES[name](pair, named)))  # noqa: B023 (called at once)
    assert found[0][0] == found[1][0]
    # Python's own objects differ by some bytes; the lists of the larger pool are 128 KiB longer.
    assert found[1][1] <= found[0][1] + 2048


def test_windows_are_let_go_of_in_one_launch() -> None:
    """A kernel for all pages, and the host reads nothing that is the device's."""
    with Counting() as counting:
        pages, owners = torch.arange(1, 3, device=DEVICE), torch.zeros(9).to(DEVICE).long()
        rows, peers = torch.ones(9, PAGE_SIZE).to(DEVICE).long(), torch.ones(9).to(DEVICE).long()
        counting.mark(pages, rows, peers, owners)
        with counting.window() as count:
            kernels.load().windows.resolve_and_clear(pages, rows, peers, owners)
    assert count.launches == ["resolve_pages"]
    assert count.reads == []
    assert rows[1:3].sum() == 0
