"""Placement of an extend: which slots a batch of requests gets for its new positions.

`plan` works on the host copies alone and counts; `place` turns a plan into slots. The pages that a
request writes are its run: the half-filled page it continues, if any, then its new pages. All runs
lie one behind the other, and within a page slots ascend with the tokens, so one number per page
places all of its tokens. Nothing loops over requests and no device value is read on the host.
Spec: `spec/core.md` §4, §5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from impl.kernels.arrays import Array, Arrays, HostArray

# Lengths below this can't leave int64 in a sum over a batch; others go by way of Python integers.
MAX_ARRAY_LENGTH = 2**40
# Rows of what a plan counts for each request.
PREFIX, TOKENS, PAGES, HALF = range(4)


class ExtendPlan(NamedTuple):
    """The host's half of a placement; arrays int64 on the host, one entry per request."""

    num_tokens: int
    num_pages: int
    each: HostArray  # [4, n]: prefix, new tokens, new pages, whether a half-filled page goes on
    before: HostArray  # [4, n]: the same, summed over all earlier requests
    offsets: HostArray  # [n] of the first new position in its page

    @property
    def prefix_lens(self) -> HostArray:
        """[n]"""
        prefix_lens: HostArray = self.each[PREFIX]
        return prefix_lens


def plan(prefix_lens: HostArray, seq_lens: HostArray, page_size: int) -> ExtendPlan | None:
    """Plan from host lengths int64 [n]; None where a prefix is negative or longer than its seq."""
    n = prefix_lens.shape[0]
    each = np.empty((4, n), np.int64)
    if not n:
        return ExtendPlan(0, 0, each, each, prefix_lens)
    # one array, so that one reduction and one sum do the work of four
    prefix, tokens, pages, half = each
    prefix[:] = prefix_lens
    np.subtract(seq_lens, prefix_lens, tokens)
    lengths = each[:PAGES]
    if np.maximum.reduce(lengths, None) >= MAX_ARRAY_LENGTH:
        return _plan_of_huge(prefix_lens.tolist(), seq_lens.tolist(), page_size)
    if np.minimum.reduce(lengths, None) < 0:
        return None
    offsets = prefix_lens % page_size
    half[:] = offsets > 0
    # pages up to the end, without the whole pages of the prefix and its half-filled one
    np.add(offsets, tokens, pages)
    pages += page_size - 1
    pages //= page_size
    pages -= half
    sums = each.cumsum(1)
    return ExtendPlan(
        num_tokens=int(sums[TOKENS, -1]),
        num_pages=int(sums[PAGES, -1]),
        each=each,
        before=sums - each,
        offsets=offsets,
    )


def _plan_of_huge(prefix_lens: list[int], seq_lens: list[int], page_size: int) -> ExtendPlan | None:
    """The same, exactly, for lengths whose sums might leave int64; O(n) in Python."""
    batch = list(zip(prefix_lens, seq_lens, strict=True))
    if not all(0 <= prefix <= seq for prefix, seq in batch):
        return None
    num_tokens = sum(seq_lens) - sum(prefix_lens)
    if num_tokens >= MAX_ARRAY_LENGTH:
        # No pool holds as many; only the counts are looked at.
        num_pages = sum(-(-seq // page_size) + -prefix // page_size for prefix, seq in batch)
        none = np.empty((4, 0), np.int64)
        return ExtendPlan(num_tokens, num_pages, none, none, none[0])
    # Whole pages of the prefix beyond the first change neither counts nor places.
    near = [prefix % page_size + page_size * (prefix >= page_size) for prefix in prefix_lens]
    ends = [start + seq - prefix for start, (prefix, seq) in zip(near, batch, strict=True)]
    return plan(np.array(near), np.array(ends), page_size)


def place(
    arrays: Arrays, batch: ExtendPlan, after_last: Array, new_pages: Array, page_size: int
) -> Array:
    """Slots int64 [num_tokens], batch order then position order, storage of their own.

    `after_last` int64 [n] is `last_loc + 1`, `new_pages` int64 [num_pages]; both on the device.
    """
    _, tokens_before, pages_before, halves_before = batch.before
    run_pages = batch.each[PAGES]
    firsts = new_pages * page_size
    half = batch.offsets.nonzero()[0]
    num_runs_pages = batch.num_pages + half.shape[0]
    if half.shape[0]:
        new_at = np.arange(batch.num_pages)
        new_at += (halves_before + batch.each[HALF]).repeat(run_pages)
        pages_before = pages_before + halves_before
        run_pages = run_pages + batch.each[HALF]
        half_at, half, new_at = arrays.send(pages_before[half], half, new_at)
        firsts_of_new, firsts = firsts, arrays.empty(num_runs_pages)
        firsts[half_at] = after_last[half]
        firsts[new_at] = firsts_of_new
    # tokens before each page: page q of a run comes q * B - offset tokens into its request
    shifts = tokens_before - pages_before * page_size - batch.offsets
    token_starts = np.arange(0, num_runs_pages * page_size, page_size)
    token_starts += shifts.repeat(run_pages)
    np.maximum(token_starts, tokens_before.repeat(run_pages), out=token_starts)
    counts = np.empty_like(token_starts)
    np.subtract(token_starts[1:], token_starts[:-1], out=counts[:-1])
    counts[-1:] = batch.num_tokens - token_starts[-1:]
    return arrays.spread(firsts, token_starts, counts, batch.num_tokens)
