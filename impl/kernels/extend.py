"""Placement of an extend: which slots a batch of requests gets for its new positions.

`plan` works on the host copies alone; `place` turns it into slots on the device. The pages that
a request writes are its run: the half-filled page it continues, if any, then its new pages. All
runs lie one behind the other, and so do the tokens within a run, so one shift per request places
them all. Nothing loops over requests and no device value is read on the host.
Spec: `spec/core.md` §4, §5.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from impl.kernels.transfer import send

# Lengths below this can't leave int64 in a sum over a batch; others go by way of Python integers.
MAX_TENSOR_LENGTH = 2**40
# Rows of what `HostConstants.combine` makes.
_, NEW_TOKENS, RUN_PAGES, UNFILLED, OFFSET = range(5)


class HostConstants:
    """Host tensors that plans compute with: Python scalars cost several times as much."""

    def __init__(self, page_size: int) -> None:
        self.one = torch.tensor(1)
        self.page_size = torch.tensor(page_size)
        self.none = torch.empty(0, dtype=torch.int64)
        # Added to (prefix, seq) before they are divided: a seq rounds up to whole pages.
        self.rounding = torch.tensor([[0], [page_size - 1]])
        # From (prefix, seq, first page, end page) of a request to what a plan needs of it. One
        # product of small integers does the work of a dozen operations.
        self.combine = torch.tensor(
            [
                [1, 0, 0, 0],  # prefix
                [-1, 1, 0, 0],  # new tokens
                [0, 0, -1, 1],  # pages of its run
                [1, -1, -page_size, page_size],  # slots of its run that others' tokens don't fill
                [1, 0, -page_size, 0],  # offset of the first new position in its page
            ]
        )


class ExtendPlan(NamedTuple):
    """The host's half of a placement; tensors are int64 on the host, one entry per request."""

    num_tokens: int
    num_pages: int
    shortest_prefix: int
    longest_prefix: int
    offsets: torch.Tensor  # of the first new position in its page
    half: torch.Tensor  # requests that continue a half-filled page, ascending
    new_tokens: torch.Tensor
    run_starts: torch.Tensor  # of a request's run in the pages of all runs
    shifts: torch.Tensor  # from a token's place in the output to its place in all runs' slots


def plan(
    prefix_lens: torch.Tensor, seq_lens: torch.Tensor, constants: HostConstants
) -> ExtendPlan | None:
    """Plan from host lengths int64 [n]; None where a prefix is negative or longer than its seq."""
    if not seq_lens.shape[0]:
        return ExtendPlan(0, 0, 0, 0, *[seq_lens] * 5)
    lens = torch.stack((prefix_lens, seq_lens))
    pages = torch.div(lens + constants.rounding, constants.page_size, rounding_mode="trunc")
    each = torch.mm(constants.combine, torch.cat((lens, pages)))
    # Four reductions of small host tensors would cost more than these numbers as a list.
    prefixes, new_tokens, run_pages, _, starts = each.tolist()
    shortest, longest = min(prefixes), max(prefixes)
    if shortest < 0 or min(new_tokens) < 0:
        return None
    if longest + max(new_tokens) >= MAX_TENSOR_LENGTH:
        return _plan_of_huge(prefixes, seq_lens.tolist(), constants)
    before = each.cumsum(1) - each
    offsets = each[OFFSET]
    shifts = before[UNFILLED]
    half = constants.none
    any_half = any(starts)
    if any_half:
        half = offsets.nonzero().view(-1)
        shifts = shifts + offsets
    return ExtendPlan(
        num_tokens=sum(new_tokens),
        num_pages=sum(run_pages) - half.shape[0],
        shortest_prefix=shortest,
        longest_prefix=longest,
        offsets=offsets,
        half=half,
        new_tokens=each[NEW_TOKENS],
        run_starts=before[RUN_PAGES] if any_half else constants.none,
        shifts=shifts,
    )


def _plan_of_huge(
    prefix_lens: list[int], seq_lens: list[int], constants: HostConstants
) -> ExtendPlan | None:
    """The same, exactly, for lengths whose sums might leave int64; O(n) in Python."""
    batch = list(zip(prefix_lens, seq_lens, strict=True))
    if not all(0 <= prefix <= seq for prefix, seq in batch):
        return None
    page_size = int(constants.page_size)
    num_tokens = sum(seq_lens) - sum(prefix_lens)
    if num_tokens >= MAX_TENSOR_LENGTH:
        # No pool holds as many; only the counts are looked at.
        num_pages = sum(-(-seq // page_size) + -prefix // page_size for prefix, seq in batch)
        none = torch.empty(0, dtype=torch.int64)
        return ExtendPlan(num_tokens, num_pages, 0, 0, *[none] * 5)
    # Whole pages of the prefix beyond the first change neither counts nor places.
    near = [prefix % page_size + page_size * (prefix >= page_size) for prefix in prefix_lens]
    ends = [start + seq - prefix for start, (prefix, seq) in zip(near, batch, strict=True)]
    return plan(torch.tensor(near), torch.tensor(ends), constants)


def place(
    batch: ExtendPlan,
    half_pages: torch.Tensor,
    new_pages: torch.Tensor,
    page_offsets: torch.Tensor,
    page_size: torch.Tensor,
) -> torch.Tensor:
    """Slots int64 [num_tokens], batch order then position order, storage of their own.

    All on one device: `half_pages` int64, the pages that requests `batch.half` continue;
    `new_pages` int64 [num_pages]; `page_offsets` = 0..B-1; `page_size` 0-d.
    """
    device = new_pages.device
    half, run_starts, shifts, new_tokens = send(
        device, batch.half, batch.run_starts, batch.shifts, batch.new_tokens
    )
    pages = new_pages
    num_half = half.shape[0]
    if num_half:
        pages = torch.empty(batch.num_pages + num_half, dtype=torch.int64, device=device)
        is_new = torch.ones_like(pages, dtype=torch.bool)
        half_at = run_starts.index_select(0, half)
        is_new.index_fill_(0, half_at, False)
        pages.masked_scatter_(is_new, new_pages).scatter_(0, half_at, half_pages)
    slots = torch.addcmul(page_offsets, pages.unsqueeze(1), page_size).view(-1)
    where = torch.repeat_interleave(shifts, new_tokens, output_size=batch.num_tokens)
    where += torch.arange(batch.num_tokens, device=device)
    return slots.index_select(0, where)
