"""Placement of a decode: one more slot per request.

A request whose new position opens a page takes the next free one; all others continue behind
their last token. Spec: `spec/core.md` §4, §5.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from impl.kernels.extend import HostConstants
from impl.kernels.transfer import send


class DecodePlan(NamedTuple):
    """The host's half; tensors are int64 on the host."""

    num_pages: int
    shortest_prefix: int
    longest_prefix: int
    prefix_lens: torch.Tensor  # [n], also the new positions
    offsets: torch.Tensor  # [n] of the new positions in their pages
    half: torch.Tensor  # requests that continue a half-filled page; all others open one


def plan(seq_lens: torch.Tensor, constants: HostConstants) -> DecodePlan | None:
    """Plan from host lengths int64 [n], new token counted; None where one is below 1."""
    if not seq_lens.shape[0]:
        return DecodePlan(0, 0, 0, *[seq_lens] * 3)
    shortest, longest = (int(bound) for bound in seq_lens.aminmax())
    if shortest < 1:
        return None
    prefix_lens = seq_lens - constants.one
    offsets = torch.remainder(prefix_lens, constants.page_size)
    half = offsets.nonzero().view(-1)
    num_pages = seq_lens.shape[0] - half.shape[0]
    return DecodePlan(num_pages, shortest - 1, longest - 1, prefix_lens, offsets, half)


def place(batch: DecodePlan, after_last: torch.Tensor, first_slots: torch.Tensor) -> torch.Tensor:
    """Slots int64 [n]: `after_last` (last_loc + 1, overwritten) or a new page's first slot."""
    (offsets,) = send(after_last.device, batch.offsets)
    return after_last.masked_scatter_(offsets.logical_not(), first_slots)
