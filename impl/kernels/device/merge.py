"""Staged pages sorted into the free list: one scan of all states. O(pool).

Spec: `spec/core.md` §3, §4 (`need_sort`).
"""

from __future__ import annotations

import torch
import triton.language as tl

from impl.kernels.device.common import BLOCK, FREE, NEVER, OPTIONS, STAGED, kernel
from impl.kernels.device.pages import Pages


@kernel
def merge_states(states, num_pages: int, ids, at: int, total: int, record, BLOCK: tl.constexpr):
    """One program: writes the pages that are free or staged from `ids[at]` on, ascending."""
    if tl.load(record) == 0:
        rank = tl.full((), 0, tl.int64)
        for start in range(0, num_pages, BLOCK):
            page = start + 1 + tl.arange(0, BLOCK).to(tl.int64)
            m = page <= num_pages
            state = tl.load(states + page, mask=m, other=0)
            free = (state == NEVER) | (state == FREE) | (state == STAGED)
            place = rank + tl.cumsum(free.to(tl.int64), 0) - 1
            rank += tl.sum(free.to(tl.int64), 0)
            # Unchecked frees may have left more than were counted.
            tl.store(ids + at + place, page, mask=free & (place < total))
            tl.store(states + page, FREE, mask=state == STAGED)


def merge(pages: Pages, ids: torch.Tensor, at: int, total: int) -> None:
    """All `total` free and staged pages into `ids` int64 from `at` on, ascending; one launch.

    A stack's begin at len(ids) - total, a ring's at 0.
    """
    if total:
        merge_states[(1,)](
            pages.states,
            pages.num_pages,
            ids,
            at,
            total,
            pages.record,
            BLOCK=BLOCK,
            **OPTIONS,
        )
