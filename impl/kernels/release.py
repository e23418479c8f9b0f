"""Pages to slots and back. Spec: `spec/core.md` §1, §4."""

from __future__ import annotations

import torch


def expand_pages(
    pages: torch.Tensor, page_offsets: torch.Tensor, page_size: torch.Tensor
) -> torch.Tensor:
    """All slots of `pages` (int64 [k]), page by page: int64 [k * B], storage of its own.

    `page_offsets` = 0..B-1 and `page_size` 0-d, on the same device.
    """
    return torch.addcmul(page_offsets, pages.unsqueeze(1), page_size).view(-1)


def distinct_pages(slots: torch.Tensor, page_size: torch.Tensor) -> torch.Tensor:
    """The distinct pages of `slots`, ascending. O(k log k); reads back their number on CUDA."""
    pages: torch.Tensor = torch.unique(torch.div(slots, page_size, rounding_mode="floor"))
    return pages
