"""Page ids, token ids, segments and pieces of rows given back: one launch of one program each.

All are runs: k pages, each named by the slot it starts with. Ids are runs of one slot on pages of
size 1. The program verifies the slots of runs, claims all pages (so that a page named twice
shows), decides, takes its claims back, and moves the pages only if all is well.

The caller says where pages go: `Target`, any int64 buffer, a place in it and a new state. It has
tested that no more pages come back than are out. Spec: `spec/core.md` §3, §4, §5a.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from impl.kernels.device.common import (
    BLOCK,
    CLASH,
    DUPLICATE,
    KIND,
    NO_CLAIM,
    NO_FAULT,
    NOT_CONSECUTIVE,
    NOT_OWNED,
    OPTIONS,
    OWNED,
    claim_pages,
    clip,
    fault,
    floor_divide,
    helper,
    kernel,
    page_fault,
    report_page,
    search,
)
from impl.kernels.device.pages import Pages

Tensor = torch.Tensor


class Target(NamedTuple):
    """Where pages given back go.

    | place | buffer, at | state | reverse |
    |---|---|---|---|
    | front of a stack | `ids`, head - k | FREE | True |
    | end of a ring | `ids`, (start + count) % size | FREE | False |
    | staged | `staged`, num_staged | STAGED | False |
    | parked in a group | a pile, num_parked | PARKED_PAGES or PARKED_SLOTS | False |

    Behind the buffer's end it goes on at 0.
    """

    buffer: Tensor
    at: int
    state: int
    reverse: bool = False
    """Whether later segments go in front of earlier ones, each in its own order."""


# What `release_runs` is given, a constexpr.
IDS, ONE_SEGMENT, SEGMENTS, ROW = (tl.constexpr(source) for source in range(4))


@helper
def _first_slot(
    j, m, slots, begin, stride, bounds, num_segments, rounds, page_size, SOURCE: tl.constexpr
):
    """Of pages `j`: the index of their first slot, its value, its page."""
    i = j
    if SOURCE == SEGMENTS:
        page_starts = bounds + num_segments + 1
        segment = search(page_starts, num_segments, rounds, j, m)
        i = i - tl.load(page_starts + segment, mask=m)
        i = tl.load(bounds + segment, mask=m) + i * page_size
    elif SOURCE != IDS:
        i = i * page_size
    slot = tl.load(slots + begin + i * stride, mask=m).to(tl.int64)
    page = slot
    if SOURCE != IDS:
        page, _ = floor_divide(slot, page_size)
    return i, slot, page


@helper
def _place(j, m, bounds, num_segments, rounds, num_given, reverse, SOURCE: tl.constexpr):
    """Where pages `j` go: as they come, or later segments first."""
    place = j
    if SOURCE == SEGMENTS:
        page_starts = bounds + num_segments + 1
        segment = search(page_starts, num_segments, rounds, j, m)
        first = tl.load(page_starts + segment, mask=m)
        end = tl.load(page_starts + segment + 1, mask=m)
        place = tl.where(reverse != 0, num_given - end + j - first, place)
    return place


@helper
def _expected(
    i, m, slots, begin, stride, bounds, num_segments, rounds, page_size, SOURCE: tl.constexpr
):
    """Of slots `i`: the value, what it had to be behind its page's first slot, if it is wrong."""
    at = i
    if SOURCE == SEGMENTS:
        segment = search(bounds, num_segments, rounds, i, m)
        at = i - tl.load(bounds + segment, mask=m)
    in_page = at % page_size
    slot = tl.load(slots + begin + i * stride, mask=m).to(tl.int64)
    first = tl.load(slots + begin + (i - in_page) * stride, mask=m).to(tl.int64)
    # A page's first slot has to be a multiple of the page size.
    _, rest = floor_divide(first, page_size)
    wanted = tl.where(in_page == 0, first - rest, first + in_page)
    # The second test is for sums that leave int64.
    return slot, wanted, m & ((slot != wanted) | (slot < first))


@helper
def _not_consecutive(
    num_slots, slots, begin, stride, bounds, num_segments, rounds, page_size, num_pages,
    states, holder_row, holder_gen, record, seq, SOURCE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The smallest key of a slot that isn't where its run puts it, reported."""
    keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
    for start in range(0, num_slots, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        _, _, wrong = _expected(
            i, i < num_slots, slots, begin, stride, bounds, num_segments, rounds, page_size, SOURCE
        )
        keys = tl.minimum(keys, fault(wrong, NOT_CONSECUTIVE, i))
    key = tl.min(keys, 0)
    if key != NO_FAULT:
        i = key & (KIND - 1)
        slot, wanted, _ = _expected(
            i, i >= 0, slots, begin, stride, bounds, num_segments, rounds, page_size, SOURCE
        )
        report_page(
            key, slot, wanted, page_size, num_pages, states, holder_row, holder_gen, record, seq
        )
    return key


@helper
def _page_faults(
    num_given, slots, begin, stride, bounds, num_segments, rounds, page_size, num_pages,
    row, generation, states, holder_row, holder_gen, claim, record, seq,
    SOURCE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The smallest key of a page that can't be given back, reported; leaves all pages claimed."""
    keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
    for start in range(0, num_given, BLOCK):
        j = start + tl.arange(0, BLOCK).to(tl.int64)
        m = j < num_given
        i, _, page = _first_slot(
            j, m, slots, begin, stride, bounds, num_segments, rounds, page_size, SOURCE
        )
        entry = clip(page, num_pages)
        state = tl.load(states + entry, mask=m, other=OWNED)
        bad = state != OWNED
        keys = tl.minimum(keys, page_fault(bad, page, state, num_pages, i))
        if SOURCE == ROW:
            holder = tl.load(holder_row + entry, mask=m, other=0).to(tl.int64)
            since = tl.load(holder_gen + entry, mask=m)
            other = (holder != 0) & ((holder != row) | (since != generation))
            keys = tl.minimum(keys, fault(other, NOT_OWNED, i))
        valid = m & ~bad
        clash = valid & claim_pages(claim + entry, i, valid)
        keys = tl.minimum(keys, tl.where(clash, CLASH, NO_FAULT))
    key = tl.min(keys, 0)
    if key == CLASH:
        tl.debug_barrier()
        for start in range(0, num_given, BLOCK):
            j = start + tl.arange(0, BLOCK).to(tl.int64)
            m = j < num_given
            i, _, page = _first_slot(
                j, m, slots, begin, stride, bounds, num_segments, rounds, page_size, SOURCE
            )
            first = tl.load(claim + page, mask=m, other=NO_CLAIM, cache_modifier=".cg")
            keys = tl.minimum(keys, fault(first < i, DUPLICATE, i))
        key = tl.min(keys, 0)
    if key != NO_FAULT:
        i = key & (KIND - 1)
        slot = tl.load(slots + begin + i * stride).to(tl.int64)
        earlier = i * 0
        if (key >> 32) == DUPLICATE:
            page, _ = floor_divide(slot, page_size)
            earlier = tl.load(claim + page, cache_modifier=".cg").to(tl.int64)
        report_page(
            key, slot, earlier, page_size, num_pages, states, holder_row, holder_gen, record, seq
        )
    tl.debug_barrier()
    return key


@kernel
def release_runs(
    slots, row: int, row_stride: int, start_at: int, stride: int,
    generation: int, num_slots: int, bounds, num_segments: int, rounds: int,
    num_given: int, page_size: int, num_pages: int, target, at: int,
    capacity: int, new_state: int, reverse: int,
    states, holder_row, holder_gen, claim, record, seq: int, validate: int,
    SOURCE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: checks `num_slots` slots that start `num_given` pages, and moves the pages."""
    if tl.load(record) == 0:
        begin = tl.full((), 0, tl.int64)
        if SOURCE == ROW:
            # In 64 bits: 4,096 rows of 2^20 entries pass 2^31.
            begin = tl.cast(row, tl.int64) * row_stride + tl.cast(start_at, tl.int64) * stride
        key = tl.full((), NO_FAULT, tl.int64)
        if SOURCE != IDS:
            if validate != 0:
                key = _not_consecutive(
                    num_slots, slots, begin, stride, bounds, num_segments, rounds, page_size,
                    num_pages, states, holder_row, holder_gen, record, seq, SOURCE, BLOCK,
                )  # fmt: skip
        if key == NO_FAULT:
            if validate != 0:
                key = _page_faults(
                    num_given, slots, begin, stride, bounds, num_segments, rounds, page_size,
                    num_pages, row, generation, states, holder_row, holder_gen, claim, record, seq,
                    SOURCE, BLOCK,
                )  # fmt: skip
            for start in range(0, num_given, BLOCK):
                j = start + tl.arange(0, BLOCK).to(tl.int64)
                m = j < num_given
                _, _, page = _first_slot(
                    j, m, slots, begin, stride, bounds, num_segments, rounds, page_size, SOURCE
                )
                valid = m & (page > 0) & (page <= num_pages)
                if validate != 0:
                    tl.store(claim + page, NO_CLAIM, mask=valid)
                if key == NO_FAULT:
                    tl.store(states + page, tl.cast(new_state, tl.uint8), mask=valid)
                    tl.store(holder_row + page, 0, mask=valid)
                    to = at + _place(j, m, bounds, num_segments, rounds, num_given, reverse, SOURCE)
                    to = tl.where(to >= capacity, to - capacity, to)
                    tl.store(target + to, clip(page, num_pages), mask=m)


def release_ids(
    pages: Pages, page_ids: Tensor, target: Target, *, seq: int, validate: bool = True
) -> None:
    """Exactly these pages (of a token allocator: slots), in this order; one launch.

    `page_ids` int32 or int64 [k], any stride. Faults: `OutOfRange`, `Reserved`, `NotOwned`,
    `DoubleFree`, `Duplicate`, at the index in `page_ids`. Also what empties a group's piles: ids
    known to be good, `validate=False`.
    """
    count = page_ids.shape[0]
    _launch(
        pages, target, seq, validate, slots=page_ids, stride=page_ids.stride(0), num_slots=count,
        num_given=count, page_size=1, source=IDS,
    )  # fmt: skip


def release_segments(
    pages: Pages,
    slots: Tensor,
    target: Target,
    *,
    bounds: Tensor | None = None,
    num_given: int,
    seq: int,
    validate: bool = True,
) -> None:
    """The pages of segments, of which each starts at a page border; one launch.

    `slots` int32 or int64, all segments one behind the other. `bounds` int64 [2, s + 1] on the
    device, contiguous: the index of each segment's first slot, and how many pages the segments
    before it have; the totals at the end. None for one segment. No segment may be empty.
    `num_given`: pages of all segments. Faults: `NotConsecutive` at any slot, then those of
    `release_ids` at the first slot of a page; indices in `slots`.
    """
    _launch(
        pages, target, seq, validate, slots=slots, stride=slots.stride(0),
        num_slots=slots.shape[0], num_given=num_given, bounds=bounds,
        source=ONE_SEGMENT if bounds is None else SEGMENTS,
    )  # fmt: skip


def release_row(
    pages: Pages,
    table: Tensor,
    handle: tuple[int, int],
    start: int,
    end: int,
    target: Target,
    *,
    seq: int,
    validate: bool = True,
) -> None:
    """The pages of positions start..end-1 of a held row, read from the table; one launch.

    `table` int32 [rows, width], any strides; `handle` (row, generation), current; `start` at a
    page border. Faults as `release_segments`, and `NotOwned` for a page of another holder; index
    = position - start. The table isn't written.
    """
    row, generation = handle
    num_slots = end - start
    _launch(
        pages, target, seq, validate, slots=table, stride=table.stride(1), num_slots=num_slots,
        num_given=triton.cdiv(num_slots, pages.page_size), row=row, row_stride=table.stride(0),
        start_at=start, generation=generation, source=ROW,
    )  # fmt: skip


def _launch(
    pages: Pages,
    target: Target,
    seq: int,
    validate: bool,
    *,
    slots: Tensor,
    stride: int,
    num_slots: int,
    num_given: int,
    source: tl.constexpr,
    page_size: int = 0,
    bounds: Tensor | None = None,
    row: int = 0,
    row_stride: int = 0,
    start_at: int = 0,
    generation: int = 0,
) -> None:
    if not num_slots:
        return
    num_segments = 1 if bounds is None else bounds.shape[1] - 1
    release_runs[(1,)](
        slots, row, row_stride, start_at, stride, generation, num_slots,
        target.buffer if bounds is None else bounds, num_segments,
        num_segments.bit_length(), num_given, page_size or pages.page_size,
        pages.num_pages, target.buffer, target.at, target.buffer.shape[0], target.state,
        int(target.reverse), pages.states, pages.holder_row, pages.holder_gen, pages.claim,
        pages.record, seq, int(validate), SOURCE=source.value, BLOCK=BLOCK, **OPTIONS,
    )  # fmt: skip
