"""What lockstep doesn't say of the sliding-window pair: capacity, frees, groups, unchecked use."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from impl import (
    PoolError,
    StoragelessSWAKVPool,
    SWATokenToKVPoolAllocator,
    window_frontier,
)
from impl.errors import (
    NoWindowPeer,
    OutOfRange,
    TooMany,
)
from properties.kernels.rig import DEVICE
from reference import Refused
from reference import window_frontier as wanted_frontier


def ids(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=DEVICE)


def pair(size: int, size_swa: int, page_size: int, **options: Any) -> SWATokenToKVPoolAllocator:
    return SWATokenToKVPoolAllocator(size, size_swa, page_size, device=DEVICE, **options)


def extend(
    target: SWATokenToKVPoolAllocator, tokens: int, *, prefix: int = 0, last: int = -1
) -> torch.Tensor | None:
    """`alloc_extend` of one request."""
    before, after = torch.tensor([prefix]), torch.tensor([prefix + tokens])
    return target.alloc_extend(
        before.to(DEVICE), before, after.to(DEVICE), after, ids(last), tokens
    )


def test_sizes_and_capacity() -> None:
    """Of 16 and 4 slots there are 4; 5 are None, and both sides are as they were (SU-A6)."""
    target = pair(16, 4, 1)
    assert (target.size, target.size_full, target.size_swa) == (4, 16, 4)
    before = target.snapshot()
    assert target.alloc(5) is None
    assert target.snapshot() == before
    assert target.alloc(4) is not None
    assert (target.full_available_size(), target.swa_available_size()) == (12, 0)
    assert target.available_size() == 0


def test_the_map_begins_and_ends_as_it_should() -> None:
    """int64, an entry for each slot, the padding page's too, and a last one that is -1 (SU-A3)."""
    pool = StoragelessSWAKVPool()
    target = pair(10, 8, 4, kvcache=pool)
    mapping = target.full_to_swa_index_mapping
    assert mapping.dtype == torch.int64
    assert mapping.tolist() == [0] * 14 + [-1]
    slots = extend(target, 5)
    assert slots is not None
    assert slots.tolist() == [4, 5, 6, 7, 8]
    found = pool.translate_loc_from_full_to_swa(torch.cat([slots, ids(-1, 9)]))
    assert found.tolist() == [4, 5, 6, 7, 8, -1, 0]
    assert target.translate_loc_from_full_to_swa(ids(4, -1)).tolist() == [4, -1]
    for outside in (-2, 14):
        with pytest.raises(OutOfRange):
            target.translate_loc_from_full_to_swa(ids(outside))


def test_each_free_changes_its_own_side() -> None:
    """`free_swa` the window side's capacity, `free_full` the full side's, `free` both (SU-A5)."""
    target = pair(16, 16, 4)
    first, second = extend(target, 4), extend(target, 4)
    assert first is not None
    assert second is not None

    def available() -> tuple[int, int]:
        return target.full_available_size(), target.swa_available_size()

    assert available() == (8, 8)
    target.free_swa(first)
    assert available() == (8, 12)
    target.free_full(first)
    assert available() == (12, 12)
    target.free(second)
    assert available() == (16, 16)


def test_a_group_holds_capacity_and_clears_the_map_at_once() -> None:
    """In a group nothing becomes available, the map is cleared; after it all has gone (SU-A7)."""
    target = pair(16, 16, 4)
    slots = extend(target, 8)
    assert slots is not None
    with target.free_group():
        target.free_swa(slots[:1])
        target.free_swa(slots[1:2])
        target.free(slots)
        assert (target.full_available_size(), target.swa_available_size()) == (8, 8)
        assert not any(target.full_to_swa_index_mapping[:-1].tolist())
    assert (target.full_available_size(), target.swa_available_size()) == (16, 16)
    assert target.audit() == []


@pytest.mark.parametrize("grouped", [False, True])
def test_a_group_gives_back_what_calls_by_themselves_do(grouped: bool) -> None:
    """Up to their order the pages are the same with a group and without."""
    target = pair(32, 32, 4)
    slots = extend(target, 26)
    assert slots is not None
    if grouped:
        target.free_group_begin()
    target.free_swa_segment(slots[:8], start_pos=0)
    target.free_full(slots[:8])
    target.free_segments([(slots[8:16], 8), (slots[16:20], 16)])
    target.free(slots[20:])
    if grouped:
        target.free_group_end()
    state = target.snapshot()
    assert sorted(state["free"]) == sorted(state["window"]["free"]) == list(range(1, 9))
    assert state["holders"] == state["window"]["holders"] == {}


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("how", ["free", "free_swa", "free_segment", "free_swa_segment"])
def test_a_window_freed_twice_is_refused(page_size: int, how: str) -> None:
    """At every page size and by every way, with nothing changed."""
    target = pair(16, 16, page_size)
    slots = target.alloc(4) if page_size == 1 else extend(target, 4)
    assert slots is not None
    target.free_swa(slots)
    before = target.snapshot()
    start = {"start_pos": 0} if how.endswith("segment") else {}
    with pytest.raises(NoWindowPeer):
        getattr(target, how)(slots, **start)
    assert target.snapshot() == before


def test_a_recycled_page_is_mapped_anew() -> None:
    """Full pages taken again by a tail have windows in the tail only."""
    target = pair(16, 16, 4)
    slots = extend(target, 16)
    assert slots is not None
    target.free(slots)
    zero, end = torch.tensor([0]), torch.tensor([14])
    tail = target.alloc_extend_swa_tail(zero.to(DEVICE), zero, end.to(DEVICE), end, ids(-1), 14, 6)
    assert tail is not None
    found = target.translate_loc_from_full_to_swa(tail)
    assert found[:8].tolist() == [0] * 8
    assert all(found[8:].tolist())
    assert target.swa_available_size() == 8


@pytest.mark.parametrize("page_size", [1, 4])
def test_unchecked_values_overrun_nothing(page_size: int) -> None:
    """Without checks of values a window freed twice gives back nothing."""
    target = pair(16, 16, page_size, validate=False)
    slots = target.alloc(8) if page_size == 1 else extend(target, 8)
    assert slots is not None
    target.free_swa_segment(slots, start_pos=0)
    target.free_swa_segment(slots, start_pos=0)
    target.free_swa(slots)
    assert target.swa_available_size() == 16
    assert target.audit() == []


@pytest.mark.parametrize("how", ["free_page_ids", "free_segments", "free_swa_segments"])
def test_unchecked_values_give_back_no_more_windows_than_are_out(how: str) -> None:
    """Two pages are out and one window: its page named twice is too many, and nothing changes."""
    target = pair(16, 16, 4, validate=False)
    slots = extend(target, 8)
    assert slots is not None
    target.free_swa(slots[:4])
    before = target.snapshot()
    twice: Any = ids(2, 2) if how == "free_page_ids" else [(slots[4:], 0), (slots[4:], 4)]
    with pytest.raises(TooMany, match="2"):
        getattr(target, how)(twice)
    assert target.snapshot() == before


def test_unchecked_slots_give_back_no_more_windows_than_are_out() -> None:
    """The same where a page is a slot: what is named twice there counts once."""
    target = pair(8, 8, 1, validate=False)
    slots = target.alloc(2)
    assert slots is not None
    target.clear_full_to_swa_mapping(slots)
    target.swa_attn_allocator.free(slots)
    target.full_to_swa_index_mapping[1:3] = ids(1, 2)
    with pytest.raises(TooMany):
        target.free_swa(slots)


def test_who_gets_no_tokens_needs_no_window() -> None:
    """A request that ends in a half-filled page without its window stays as it is in a batch."""
    target = pair(32, 32, 4)
    slots = extend(target, 2)
    assert slots is not None
    target.free_swa(slots)
    before, after = torch.tensor([2, 0]), torch.tensor([2, 3])
    found = target.alloc_extend(
        before.to(DEVICE), before, after.to(DEVICE), after, ids(5, -1), 3
    )  # fmt: skip
    assert found is not None
    assert found.tolist() == [8, 9, 10]
    assert target.translate_loc_from_full_to_swa(found).tolist() == [4, 5, 6]


def test_a_tail_behind_slots_that_were_dropped() -> None:
    """What a dropped slot was mapped to goes, and with the last entry of a page its peer."""
    target = pair(16, 16, 4)
    assert extend(target, 2) is not None
    target.clear_full_to_swa_mapping(ids(4))
    two, six = torch.tensor([1]), torch.tensor([6])
    slots = target.alloc_extend_swa_tail(
        two.to(DEVICE), two, six.to(DEVICE), six, ids(4), 5, 2
    )  # fmt: skip
    assert slots is not None
    assert target.translate_loc_from_full_to_swa(slots).tolist() == [0, 0, 0, 8, 9]
    assert target.audit() == []


def test_a_page_that_a_group_parked_without_a_window_counts_once() -> None:
    """Full slots freed, then freed again with those of a page that still has its window."""
    target = pair(16, 16, 4)
    slots = extend(target, 8)
    assert slots is not None
    target.free_swa(slots[:4])
    with target.free_group():
        target.free_full(slots[:1])
        target.free(slots)
    assert (target.full_available_size(), target.swa_available_size()) == (16, 16)
    assert target.audit() == []


# ---- sizing --------------------


def test_the_frontier_keeps_a_window_below_what_a_cache_takes() -> None:
    """At page borders, monotone, as large as can be, a window and a page behind (I24)."""
    for page_size in (1, 2, 3, 4):
        for window in range(1, 10):
            for bigram in (False, True):
                before = 0
                for n in range(60):
                    found = window_frontier(n, window, page_size, bigram)
                    assert found == wanted_frontier(n, window, page_size, bigram)
                    border = max(0, n - bigram) // page_size * page_size
                    kept = max(window, page_size)
                    assert found % page_size == 0
                    assert found >= before
                    assert found == 0 or border - found >= kept
                    assert border - (found + page_size) < kept
                    before = found


def test_the_frontier_of_a_reported_case() -> None:
    """1,024 tokens, a window of 127, pages of 64: 832 with bigram keys, 896 without."""
    assert window_frontier(1024, 127, 64, bigram=True) == 832
    assert window_frontier(1024, 127, 64, bigram=False) == 896


@pytest.mark.parametrize("numbers", [(-1, 1, 1), (0, 0, 1), (0, 1, 0), (0.5, 1, 1), (0, True, 1)])
def test_frontiers_of_nonsense_are_refused(numbers: tuple[Any, Any, Any]) -> None:
    """Negative lengths, windows and pages of none, and what is no int: alike in both houses."""
    with pytest.raises(PoolError) as ours:
        window_frontier(*numbers, bigram=False)
    with pytest.raises(Refused) as theirs:
        wanted_frontier(*numbers, bigram=False)
    assert type(ours.value).__name__ == theirs.value.kind
