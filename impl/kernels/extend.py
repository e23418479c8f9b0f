"""Placement of an extend: which slots a batch of requests gets for its new positions.

`plan` works on the host copies alone and counts; `place` turns a plan into slots. The pages that a
request writes are its run: the half-filled page it continues, if any, then its new pages. All runs
lie one behind the other, and so do the tokens within a run, so one shift per request places them
all. Nothing loops over requests and no device value is read on the host.
Spec: `spec/core.md` §4, §5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from impl.kernels.arrays import Array, Arrays, HostArray

# Lengths below this can't leave int64 in a sum over a batch; others go by way of Python integers.
MAX_ARRAY_LENGTH = 2**40


class ExtendPlan(NamedTuple):
    """The host's half of a placement; arrays int64 on the host, one entry per request."""

    num_tokens: int
    num_pages: int
    prefix_lens: HostArray
    new_tokens: HostArray
    new_pages: HostArray
    offsets: HostArray  # of the first new position in its page


def plan(prefix_lens: HostArray, seq_lens: HostArray, page_size: int) -> ExtendPlan | None:
    """Plan from host lengths int64 [n]; None where a prefix is negative or longer than its seq."""
    if not prefix_lens.shape[0]:
        return ExtendPlan(0, 0, prefix_lens, prefix_lens, prefix_lens, prefix_lens)
    if (prefix_lens < 0).any() or (seq_lens < prefix_lens).any():
        return None
    if np.maximum.reduce(seq_lens) >= MAX_ARRAY_LENGTH:
        return _plan_of_huge(prefix_lens.tolist(), seq_lens.tolist(), page_size)
    new_tokens = seq_lens - prefix_lens
    new_pages = (seq_lens + (page_size - 1)) // page_size
    new_pages -= (prefix_lens + (page_size - 1)) // page_size
    return ExtendPlan(
        num_tokens=int(np.add.reduce(new_tokens)),
        num_pages=int(np.add.reduce(new_pages)),
        prefix_lens=prefix_lens,
        new_tokens=new_tokens,
        new_pages=new_pages,
        offsets=prefix_lens % page_size,
    )


def _plan_of_huge(prefix_lens: list[int], seq_lens: list[int], page_size: int) -> ExtendPlan | None:
    """The same, exactly, for lengths whose sums might leave int64; O(n) in Python."""
    batch = list(zip(prefix_lens, seq_lens, strict=True))
    num_tokens = sum(seq_lens) - sum(prefix_lens)
    if num_tokens >= MAX_ARRAY_LENGTH:
        # No pool holds as many; only the counts are looked at.
        num_pages = sum(-(-seq // page_size) + -prefix // page_size for prefix, seq in batch)
        none = np.empty(0, np.int64)
        return ExtendPlan(num_tokens, num_pages, none, none, none, none)
    # Whole pages of the prefix beyond the first change neither counts nor places.
    near = [prefix % page_size + page_size * (prefix >= page_size) for prefix in prefix_lens]
    ends = [start + seq - prefix for start, (prefix, seq) in zip(near, batch, strict=True)]
    return plan(np.array(near), np.array(ends), page_size)


def place(
    arrays: Arrays,
    batch: ExtendPlan,
    half_starts: Array,
    new_pages: Array,
    page_offsets: Array,
    page_size: int,
) -> Array:
    """Slots int64 [num_tokens], batch order then position order, storage of their own.

    `half_starts` int64 [n], the first slot of the page that a request continues (read where its
    offset isn't 0); `new_pages` int64 [num_pages]; `page_offsets` = 0..B-1; all on the device.
    """
    run_pages = batch.new_pages
    half = batch.offsets.nonzero()[0]
    starts = new_pages * page_size
    if half.shape[0]:
        is_half = batch.offsets > 0
        run_pages = run_pages + is_half
        halves_before = is_half.cumsum()
        half_at = run_pages.cumsum()[half] - run_pages[half]
        new_at = np.arange(batch.num_pages) + halves_before.repeat(batch.new_pages)
        half_at, new_at, half = arrays.send(half_at, new_at, half)
        new_starts, starts = starts, arrays.empty(batch.num_pages + half.shape[0])
        starts[half_at] = half_starts[half]
        starts[new_at] = new_starts
    slots = (starts[:, None] + page_offsets).reshape(-1)
    run_starts = run_pages.cumsum() - run_pages
    token_starts = batch.new_tokens.cumsum() - batch.new_tokens
    shifts = run_starts * page_size + batch.offsets - token_starts
    where = shifts.repeat(batch.new_tokens)
    where += np.arange(batch.num_tokens)
    (where,) = arrays.send(where)
    return slots[where]
