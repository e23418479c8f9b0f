"""Pages to slots and back. Spec: `spec/core.md` §1, §4."""

from __future__ import annotations

from impl.kernels.arrays import Array, Arrays


def expand_pages(pages: Array, page_offsets: Array, page_size: int) -> Array:
    """All slots of `pages` (int64 [k]), page by page: int64 [k * B], storage of its own.

    `page_offsets` = 0..B-1, on the same device.
    """
    return ((pages * page_size)[:, None] + page_offsets).reshape(-1)


def distinct_pages(arrays: Arrays, slots: Array, page_size: int) -> Array:
    """The distinct pages of `slots`, ascending. O(k log k); reads back their number on CUDA."""
    return arrays.distinct(slots // page_size)
