"""Whole pages (or tokens) from the head of the free list. Spec: `spec/core.md` §3, §4 (`alloc`)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from impl.kernels.device.common import BLOCK, OPTIONS, OWNED, kernel
from impl.kernels.device.pages import Pages


@kernel
def take_slots(
    out, num_slots: int, ids, num_ids: int, head: int, page_size: int, states,
    record, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program per tile of slots; the list goes on at its beginning."""
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = t < num_slots
    live = t < tl.where(tl.load(record) == 0, num_slots, 0)
    page_at = t // page_size
    in_page = t - page_at * page_size
    at = head + page_at
    at = tl.where(at >= num_ids, at - num_ids, at)
    page = tl.load(ids + at, mask=live)
    tl.store(out + t, tl.where(live, page * page_size + in_page, 0), mask=inside)
    tl.store(states + page, OWNED, mask=live & (in_page == 0))


def take(pages: Pages, ids: torch.Tensor, head: int, out: torch.Tensor) -> None:
    """The slots of pages ids[head], ids[head + 1], … into `out`; one launch, none for no slots.

    `ids` int64: a stack (free from `head` on) or a ring (free from `head` on, going on at 0).
    `out` int64, a multiple of the page size long. Holders stay 0: pages are anonymous.
    """
    num_slots = out.shape[0]
    if num_slots:
        take_slots[(triton.cdiv(num_slots, BLOCK),)](
            out, num_slots, ids, ids.shape[0], head, pages.page_size, pages.states, pages.record,
            BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip
