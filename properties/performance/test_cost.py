"""What a call may spend, as statements that don't depend on a clock.

On the path of an accelerator: with `backend="triton"`, compiled or interpreted, values are checked
on the device; the torch form does without reads once `validate` is off. Spec: `spec/core.md` §5.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from impl import PagedTokenToKVPoolAllocator
from impl.allocators import deferral, deferred
from impl.allocators.deferral import HostMailbox
from impl.kernels import arrays
from impl.kernels.arrays import HostArray
from properties.performance.counting import Count, Counting
from properties.performance.spending import PAGED, TOKEN, Pool, TokenPool
from properties.subjects.impl import default_device
from properties.subjects.reference import EchoCache

DEVICE = torch.device(default_device())
# Plan and fill.
MOST_LAUNCHES = 2
# Beside them: the result, the host's lengths sent, the record sent back.
MOST_OPERATIONS = 3
#: how many distinct pages its slots have only the device knows
READS_OF_FREE = 1


class PinnedMailbox(HostMailbox):
    """Copies the record as a GPU does: nobody waits, and what arrives is the host's."""

    def __init__(self, record: torch.Tensor) -> None:
        super().__init__(record)
        self._pinned = torch.zeros(record.shape, dtype=record.dtype)

    def _send(self) -> None:
        self._pinned.copy_(self.record, non_blocking=True)
        self._copy = self._pinned.tolist()
        self._looks_left = self.delay


def sent(device: torch.device, numbers: Sequence[HostArray]) -> torch.Tensor:
    """Host arrays as a GPU gets them: by a copy."""
    return torch.from_numpy(np.stack(numbers)).to(device, non_blocking=True)


@pytest.fixture(params=["torch", "triton"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An allocator's options for each backend; on a CPU too it runs what an accelerator runs."""
    if DEVICE.type == "cpu":
        # torch on the tensors instead of numpy on their memory, copies instead of looks
        monkeypatch.setattr(arrays, "of", arrays.DeviceArrays)
        monkeypatch.setattr(deferral, "mailbox", PinnedMailbox)
        monkeypatch.setattr(deferred, "packed", sent)
    if request.param == "torch":
        return {"backend": "torch", "validate": False}
    return {"backend": "triton"}


@pytest.fixture
def counting() -> Iterator[Counting]:
    """A counter that runs."""
    with Counting() as made:
        yield made


def spent(counting: Counting, name: str, options: dict[str, Any]) -> Count:
    """What the call `name` spends the second time."""
    if name in PAGED:
        pool = Pool(DEVICE, **options)
        first, second = (PAGED[name](pool, half) for half in (0, 1))
    else:
        token_pool = TokenPool(DEVICE, **options)
        first, second = (TOKEN[name](token_pool, half) for half in (0, 1))
    first()
    with counting.window() as count:
        second()
    return count


@pytest.mark.parametrize("name", [*PAGED, *TOKEN])
def test_host_reads(counting: Counting, name: str, options: dict[str, Any]) -> None:
    """No call reads a device's values on the host, but for the one count of a plain free."""
    reads = spent(counting, name, options).reads
    assert len(reads) <= (READS_OF_FREE if name == "free" else 0), reads


@pytest.mark.parametrize("name", [*PAGED, *TOKEN])
def test_launches(counting: Counting, name: str, options: dict[str, Any]) -> None:
    """A call is at most two launches and three operations, in Triton; in torch it launches none."""
    count = spent(counting, name, options)
    if options["backend"] == "torch":
        assert count.launches == []
        return
    assert 1 <= len(count.launches) <= MOST_LAUNCHES, count.launches
    # A read is one more where it is allowed at all.
    assert count.operations.total() <= MOST_OPERATIONS + len(count.reads), count.operations


@pytest.mark.parametrize("parked", ["free", "free_page_ids"])
def test_host_reads_of_a_group(counting: Counting, parked: str, options: dict[str, Any]) -> None:
    """Parking reads no more than the free would."""
    pool = Pool(DEVICE, **options)
    calls = [PAGED[parked](pool, half) for half in (0, 1)]
    pool.allocator.free_group_begin()
    with counting.window() as count:
        for call in calls:
            call()
    most = len(calls) * READS_OF_FREE if parked == "free" else 0
    assert len(count.reads) <= most, count.reads


@pytest.mark.parametrize(("fewer", "more"), [(60, 600), (1024, 4096)])
@pytest.mark.parametrize(
    "name", ["alloc_extend", "alloc_decode", "alloc_extend_rows", "alloc_decode_rows"]
)
def test_batches_grow_evenly(
    counting: Counting, name: str, fewer: int, more: int, options: dict[str, Any]
) -> None:
    """A larger batch costs no more for each request: nothing is quadratic in the batch."""
    counts = []
    for requests in (fewer, more):
        # half of a pool's requests are in a call
        call = PAGED[name](Pool(DEVICE, batch=2 * requests, **options), 0)
        with counting.window() as count:
            call()
        counts.append(count)
    small, large = counts
    assert len(large.launches) <= MOST_LAUNCHES
    assert small.operations == large.operations
    pairs = {
        "elements": (small.elements, large.elements),
        "programs": (small.programs, large.programs),
        **{name: (small.accesses[name], large.accesses[name]) for name in small.accesses},
    }
    for what, (least, most) in pairs.items():
        # A tile is paid for in full, and a search in a longer list takes some steps more.
        assert most / more <= 1.15 * least / fewer, (what, least, most)


ByIds = Callable[[PagedTokenToKVPoolAllocator, torch.Tensor], Any]
BY_IDS: dict[str, ByIds] = {
    "free": lambda allocator, pages: allocator.free(pages * 4),
    "free_page_ids": lambda allocator, pages: allocator.free_page_ids(pages),
    "get_cpu_copy": lambda allocator, pages: allocator.get_cpu_copy(pages * 4),
    "load_cpu_copy": lambda allocator, pages: allocator.load_cpu_copy(None, pages * 4),
}


def half_free(num_pages: int, options: dict[str, Any]) -> PagedTokenToKVPoolAllocator:
    """A pool of which the first half is out."""
    allocator = PagedTokenToKVPoolAllocator(
        4 * num_pages, 4, device=DEVICE, kvcache=EchoCache(), **options
    )
    allocator.alloc(2 * num_pages)
    return allocator


@pytest.mark.parametrize("name", BY_IDS)
def test_calls_by_ids_are_blind_to_the_pool(
    counting: Counting, name: str, options: dict[str, Any]
) -> None:
    """Of k ids a call takes as many operations on as many elements in a pool 64 times larger."""
    found = []
    for num_pages in (2**8, 2**14):
        allocator = half_free(num_pages, options)
        pages = torch.arange(1, 65, device=DEVICE)
        with counting.window() as count:
            BY_IDS[name](allocator, pages)
        found.append(count)
    assert found[0] == found[1]


@pytest.mark.skipif(DEVICE.type != "cpu", reason="numpy serves the CPU alone")
@pytest.mark.parametrize("name", BY_IDS)
def test_calls_by_ids_on_the_cpu_are_blind_to_the_pool(name: str) -> None:
    """On numpy: as many calls, and as much memory in between, in a pool 64 times larger."""
    found = []
    for num_pages in (2**8, 2**14):
        allocator = half_free(num_pages, {"backend": "torch"})
        first, second = torch.arange(1, 65), torch.arange(65, 97)
        BY_IDS[name](allocator, first)
        found.append(cost_on_the_host(lambda: BY_IDS[name](allocator, second)))  # noqa: B023 (called at once)
    assert found[0][0] == found[1][0]
    # Python's own objects differ by some bytes; the lists of the larger pool are 128 KiB longer.
    assert found[1][1] <= found[0][1] + 2048


def cost_on_the_host(call: Callable[[], None]) -> tuple[Counter[str], int]:
    """Functions called, by name, and the most memory held in between, in bytes."""
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "c_call":
            calls[argument.__name__] += 1
        elif event == "call":
            calls[frame.f_code.co_name] += 1

    tracemalloc.start()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return calls, most
