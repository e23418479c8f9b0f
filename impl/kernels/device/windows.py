"""Window pages let go of, in one launch; the torch form is `impl.kernels.windows`.

Outside the protocol of the other kernels: the pair raises faults of values at the call, so there is
no record to look at here. Spec: `spec/swa_unified.md` §2.5, §2.7.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from impl.kernels.device.common import BLOCK, OPTIONS, kernel


@kernel
def resolve_pages(
    pages, num_slots: int, page_size: int, mapping, peers, owners, out, BLOCK: tl.constexpr
):
    """A program per tile of the pages' slots; each page's first one stands for the page."""
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = t < num_slots
    page_at = t // page_size
    in_page = t - page_at * page_size
    first = inside & (in_page == 0)
    page = tl.load(pages + page_at, mask=inside)
    peer = tl.load(peers + page, mask=first)
    # where a page is a slot the peers are the map itself: read before it is cleared
    tl.debug_barrier()
    tl.store(out + page_at, peer, mask=first)
    tl.store(owners + peer, 0, mask=first)
    tl.store(peers + page, 0, mask=first)
    tl.store(mapping + page * page_size + in_page, 0, mask=inside)


def resolve_and_clear(
    pages: torch.Tensor, rows: torch.Tensor, peers: torch.Tensor, owners: torch.Tensor
) -> torch.Tensor:
    """As the torch form; one launch, none for no pages, and no device value read on the host."""
    count, page_size = pages.shape[0], rows.shape[1]
    num_slots = count * page_size
    out = torch.empty(count, dtype=torch.int64, device=pages.device)
    if count:
        resolve_pages[(triton.cdiv(num_slots, BLOCK),)](
            pages.contiguous(), num_slots, page_size, rows, peers, owners, out,
            BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip
    return out
