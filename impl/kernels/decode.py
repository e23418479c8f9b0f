"""Placement of a decode: one more slot per request.

A request whose new position opens a page takes the next free one; all others continue behind
their last token. Spec: `spec/core.md` §4, §5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from impl.kernels.arrays import Array, Arrays, HostArray


class DecodePlan(NamedTuple):
    """The host's half; arrays int64 on the host."""

    num_pages: int
    prefix_lens: HostArray  # [n], also the new positions
    offsets: HostArray  # [n] of the new positions in their pages
    opening: HostArray  # requests that open a page, ascending; all others continue one


def plan(seq_lens: HostArray, page_size: int) -> DecodePlan | None:
    """Plan from host lengths int64 [n], new token counted; None where one is below 1."""
    if not seq_lens.shape[0]:
        return DecodePlan(0, seq_lens, seq_lens, seq_lens)
    if np.minimum.reduce(seq_lens) < 1:
        return None
    prefix_lens = seq_lens - 1
    offsets = prefix_lens % page_size
    opening = (offsets == 0).nonzero()[0]
    return DecodePlan(opening.shape[0], prefix_lens, offsets, opening)


def place(
    arrays: Arrays, batch: DecodePlan, after_last: Array, new_pages: Array, page_size: int
) -> Array:
    """Slots int64 [n]: `after_last` (`last_loc + 1`, overwritten), or a new page's first slot."""
    if batch.num_pages:
        (opening,) = arrays.send(batch.opening)
        after_last[opening] = new_pages * page_size
    return after_last
