"""A free of any slots: their distinct pages, ascending. One launch of one program.

The caller sorts, which is the only thing here that isn't O(k). Several slots of one page are
legal within a call, and so are slots of pages that slot frees of the open group have parked: these
aren't counted again. The number of pages that come back is known to the device alone, so it is
the one count that the host reads. Spec: `spec/core.md` §4 (`free`), §4a (full segments).
"""

from __future__ import annotations

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
    OPTIONS,
    PARKED_SLOTS,
    TOO_MANY,
    claim_pages,
    clip,
    fault,
    floor_divide,
    helper,
    kernel,
    page_fault,
    report_page,
    search,
    write_record,
)
from impl.kernels.device.pages import Pages
from impl.kernels.device.release import Target

Tensor = torch.Tensor


@kernel
def sort_keys(
    keys, slots, stride: int, num_slots: int, starts, num_segments: int,
    rounds: int, reverse: int, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program per tile: keys that sort slots by segment (last one first, reversed), then slot."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    m = i < num_slots
    segment = search(starts, num_segments, rounds, i, m)
    segment = tl.where(reverse != 0, num_segments - 1 - segment, segment)
    slot = tl.load(slots + i * stride, mask=m).to(tl.int64)
    # Slots are below 2^31; others are refused before these keys are looked at.
    slot = tl.minimum(tl.maximum(slot, 0), KIND - 1)
    tl.store(keys + i, segment.to(tl.int64) * KIND + slot, mask=m)


@helper
def _sorted_slots(values, i, m, page_size, KEYED: tl.constexpr):
    """Of sorted slots `i`: slot, page, and whether it is the first of its page."""
    value = tl.load(values + i, mask=m).to(tl.int64)
    before = tl.load(values + i - 1, mask=m & (i > 0)).to(tl.int64)
    first = i == 0
    if KEYED:
        value = value & (KIND - 1)
        before = before & (KIND - 1)
    page, _ = floor_divide(value, page_size)
    page_before, _ = floor_divide(before, page_size)
    return value, page, m & (first | (page != page_before))


@helper
def _judge(
    values, order, num_slots, starts, num_segments, rounds, page_size, num_pages, states, claim,
    validate, SEGMENTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The smallest fault, and the number of pages that come back; segments leave claims."""
    keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
    distinct = tl.full((BLOCK,), 0, tl.int64)
    for start in range(0, num_slots, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        m = i < num_slots
        _, page, first = _sorted_slots(values, i, m, page_size, False)
        entry = clip(page, num_pages)
        state = tl.load(states + entry, mask=m, other=PARKED_SLOTS)
        distinct += first & (state != PARKED_SLOTS)
        if validate != 0:
            at = tl.load(order + i, mask=m)
            bad = state < PARKED_SLOTS
            keys = tl.minimum(keys, page_fault(bad, page, state, num_pages, at))
            if SEGMENTED:
                segment = search(starts, num_segments, rounds, at, m)
                valid = m & ~bad
                clash = claim_pages(claim + entry, segment, valid)
                keys = tl.minimum(keys, tl.where(valid & clash, CLASH, NO_FAULT))
    key = tl.min(keys, 0)
    if SEGMENTED:
        if key == CLASH:
            # Slots of one page clash even within a segment: only now it shows.
            tl.debug_barrier()
            keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
            for start in range(0, num_slots, BLOCK):
                i = start + tl.arange(0, BLOCK).to(tl.int64)
                m = i < num_slots
                _, page, _ = _sorted_slots(values, i, m, page_size, False)
                at = tl.load(order + i, mask=m)
                segment = search(starts, num_segments, rounds, at, m)
                owner = tl.load(claim + page, mask=m, other=NO_CLAIM, cache_modifier=".cg")
                keys = tl.minimum(keys, fault(owner < segment, DUPLICATE, at))
            key = tl.min(keys, 0)
    num_distinct = tl.sum(distinct, 0)
    return key, num_distinct


@kernel
def release_slots(
    values, order, num_slots: int, keys, starts, num_segments: int, rounds: int,
    page_size: int, num_pages: int, num_out: int, target, at: int,
    from_end: int, new_state: int, count, states, holder_row, holder_gen, claim, record,
    seq: int, validate: int, SEGMENTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: checks and counts the pages of sorted slots, and moves them."""
    num_given = tl.full((), 0, tl.int64)
    if tl.load(record) == 0:
        key, num_distinct = _judge(
            values, order, num_slots, starts, num_segments, rounds, page_size, num_pages, states,
            claim, validate, SEGMENTED, BLOCK,
        )  # fmt: skip
        if num_distinct > num_out:
            # A count comes before any value.
            key = tl.full((), TOO_MANY * KIND, tl.int64)
            none = key * 0
            write_record(record, seq, key, num_distinct, none, none, none, num_out)
        elif key != NO_FAULT:
            index = key & (KIND - 1)
            earlier = index * 0
            named = _named(values, order, num_slots, index, BLOCK)
            if SEGMENTED:
                if (key >> 32) == DUPLICATE:
                    page, _ = floor_divide(named, page_size)
                    earlier = tl.load(claim + page, cache_modifier=".cg").to(tl.int64)
            report_page(
                key, named, earlier, page_size, num_pages, states, holder_row, holder_gen, record,
                seq,
            )  # fmt: skip
        if SEGMENTED:
            if validate != 0:
                tl.debug_barrier()
                for start in range(0, num_slots, BLOCK):
                    i = start + tl.arange(0, BLOCK).to(tl.int64)
                    _, page, _ = _sorted_slots(values, i, i < num_slots, page_size, False)
                    valid = (i < num_slots) & (page > 0) & (page <= num_pages)
                    tl.store(claim + page, NO_CLAIM, mask=valid)
        if key == NO_FAULT:
            num_given = num_distinct
            begin = at - tl.where(from_end != 0, num_given, 0)
            rank = tl.full((), 0, tl.int64)
            for start in range(0, num_slots, BLOCK):
                i = start + tl.arange(0, BLOCK).to(tl.int64)
                m = i < num_slots
                _, page, first = _sorted_slots(keys, i, m, page_size, SEGMENTED)
                entry = clip(page, num_pages)
                state = tl.load(states + entry, mask=first, other=PARKED_SLOTS)
                given = state != PARKED_SLOTS
                place = rank + tl.cumsum(given.to(tl.int64), 0) - 1
                rank += tl.sum(given.to(tl.int64), 0)
                # Unchecked segments may share pages: no more than counted may be written.
                given = given & (place < num_given)
                tl.store(target + begin + place, entry, mask=given)
                valid = given & (page > 0) & (page <= num_pages)
                tl.store(states + entry, tl.cast(new_state, tl.uint8), mask=valid)
                tl.store(holder_row + entry, 0, mask=valid)
    tl.store(count, num_given)


@helper
def _named(values, order, num_slots, index, BLOCK: tl.constexpr):
    """The slot that was given at `index`."""
    named = tl.full((), 0, tl.int64)
    for start in range(0, num_slots, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        here = tl.load(order + i, mask=i < num_slots, other=-1) == index
        value = tl.load(values + i, mask=here).to(tl.int64)
        named += tl.sum(tl.where(here, value, 0), 0)
    return named


def segment_keys(
    keys: Tensor, slots: Tensor, starts: Tensor, *, num_segments: int, reverse: bool
) -> None:
    """Keys int64 [k] whose ascending order is the order in which pages of segments come back.

    `slots` int32 or int64 [k], any stride, all segments one behind the other; `starts` int64
    [num_segments] on the device, the index of each segment's first slot. One launch.
    """
    num_slots = slots.shape[0]
    if num_slots:
        sort_keys[(triton.cdiv(num_slots, BLOCK),)](
            keys, slots, slots.stride(0), num_slots, starts, num_segments,
            num_segments.bit_length(), int(reverse), BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip


def release_sorted(
    pages: Pages,
    values: Tensor,
    order: Tensor,
    target: Target,
    count: Tensor,
    *,
    num_out: int,
    seq: int,
    validate: bool = True,
    keys: Tensor | None = None,
    starts: Tensor | None = None,
    num_segments: int = 1,
) -> None:
    """The distinct pages of slots, to the target; `count` int64 [1] is how many; one launch.

    `values` int32 or int64 [k] ascending and `order` int64 [k]: what `slots.sort()` gives.
    `num_out`: pages that are out. Of `target`, `reverse` says that `at` is where the pages end:
    the head of a stack. Faults: `TooMany` at 0, then `OutOfRange`, `Reserved`, `NotOwned`,
    `DoubleFree` at the smallest index of a slot that has it.

    With several full segments also `starts`, as in `segment_keys`, and `keys`, its keys sorted
    ascending: a page of two segments is a `Duplicate`, and pages come back segment by segment.
    """
    num_slots = values.shape[0]
    if not num_slots:
        return
    segmented = keys is not None and starts is not None
    release_slots[(1,)](
        values, order, num_slots, keys if segmented else values, starts if segmented else order,
        num_segments, num_segments.bit_length(), pages.page_size, pages.num_pages, num_out,
        target.buffer, target.at, int(target.reverse), target.state, count, pages.states,
        pages.holder_row, pages.holder_gen, pages.claim, pages.record, seq, int(validate),
        SEGMENTED=segmented, BLOCK=BLOCK, **OPTIONS,
    )  # fmt: skip
