"""Pages to slots and back. Spec: `spec/core.md` §1, §4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from impl.kernels.arrays import Array, HostArray


class Segments(NamedTuple):
    """Which of the slots of segments, one behind the other, belong to which page."""

    num_pages: list[int]  # of each segment
    firsts: HostArray  # [pages] index of a page's first slot
    counts: HostArray  # [pages] slots of a page


def plan_segments(lengths: Sequence[int], page_size: int) -> Segments:
    """The pages of segments of these `lengths`, none 0, that start at page borders."""
    total = sum(lengths)
    if len(lengths) == 1:
        firsts = np.arange(0, total, page_size)
        num_pages = [firsts.shape[0]]
    else:
        slots = np.array(lengths)
        pages = (slots + (page_size - 1)) // page_size
        shifts = slots.cumsum() - slots - (pages.cumsum() - pages) * page_size
        firsts = shifts.repeat(pages)
        firsts += np.arange(0, firsts.shape[0] * page_size, page_size)
        num_pages = pages.tolist()
    counts = np.empty_like(firsts)
    np.subtract(firsts[1:], firsts[:-1], out=counts[:-1])
    counts[-1] = total - firsts[-1]
    return Segments(num_pages, firsts, counts)


def last_pile_first(piles: Sequence[int]) -> HostArray:
    """Where each id of piles of so many stands, the last pile first, ids in their order."""
    counts = np.array(piles)
    starts = (counts.cumsum() - counts)[::-1]
    turned = counts[::-1]
    order: HostArray = (starts - (turned.cumsum() - turned)).repeat(turned)
    order += np.arange(order.shape[0])
    return order


def expand_pages(pages: Array, page_offsets: Array, page_size: int) -> Array:
    """All slots of `pages` (int64 [k]), page by page: int64 [k * B], storage of its own.

    `page_offsets` = 0..B-1, on the same device.
    """
    return ((pages * page_size)[:, None] + page_offsets).reshape(-1)
