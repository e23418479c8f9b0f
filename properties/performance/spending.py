"""The calls whose cost is counted, and pools in the midst of their life to make them on.

A call is prepared first: its tensors are made before anything counts. Each is made twice, on one
half of the requests and then on the other, so that what a pool makes once isn't counted either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from impl import PagedTokenToKVPoolAllocator, ReqToTokenPool, TokenToKVPoolAllocator

PAGE_SIZE = 4
#: tokens of requests, those of one half between those of the other: half-filled pages and full ones
LENS = (6, 5, 8, 8, 5, 6, 1, 1)
MORE_TOKENS = 5
#: a longest request and what it grows by
WIDTH = 32

Both = tuple[torch.Tensor, torch.Tensor]
#: prefix and seq of a batch, each on the device and on the host
Lengths = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Call = Callable[[], object]


class Pool:
    """A paged allocator and a row table. Half of its requests keep their slots in rows."""

    def __init__(self, device: torch.device, *, batch: int = len(LENS), **options: Any) -> None:
        self.device = device
        self.num_pages = options.pop("num_pages", 8 * batch)
        self.allocator = PagedTokenToKVPoolAllocator(
            self.num_pages * PAGE_SIZE, PAGE_SIZE, device=device, **options
        )
        self.lens = torch.tensor(LENS).repeat(-(-batch // len(LENS)))[:batch]
        self.table = ReqToTokenPool(batch, WIDTH, device=device)
        self.rows = torch.tensor(self.table.alloc_rows(batch))
        none, total = torch.zeros_like(self.lens), int(self.lens.sum())
        lengths = *self.both(none), *self.both(self.lens)
        slots = self.allocator.alloc_extend(*lengths, self.sent(none - 1), total)
        assert slots is not None
        #: of each request that has no row, on the host
        self.slots = torch.split(slots.cpu(), self.lens.tolist())
        self.allocator.alloc_extend_rows(self.table, *self.both(self.rows), *lengths, total)

    def sent(self, host: torch.Tensor) -> torch.Tensor:
        """A host tensor on the device, storage of its own."""
        return host.to(self.device, non_blocking=True, copy=True)

    def both(self, host: torch.Tensor) -> Both:
        """On the device, and the host copy."""
        return self.sent(host), host

    def grown(self, half: int, more: int) -> Lengths:
        """Lengths of a half of the requests before and after, as `alloc_extend` takes them."""
        prefix = self.lens[half::2]
        return (*self.both(prefix), *self.both(prefix + more))

    def half(self, half: int) -> list[torch.Tensor]:
        """The slots of a half of the requests without rows, on the host."""
        return list(self.slots[half::2])

    def last(self, half: int) -> torch.Tensor:
        """Their last slots."""
        return self.sent(torch.stack([slots[-1] for slots in self.half(half)]))

    def half_rows(self, half: int) -> Both:
        """The rows of a half of the other requests."""
        return self.both(self.rows[half::2])


def _alloc(pool: Pool, half: int) -> Call:
    return lambda: pool.allocator.alloc(2 * PAGE_SIZE)


def _alloc_extend(pool: Pool, half: int) -> Call:
    lengths, last = pool.grown(half, MORE_TOKENS), pool.last(half)
    total = MORE_TOKENS * len(pool.half(half))
    return lambda: pool.allocator.alloc_extend(*lengths, last, total)


def _alloc_decode(pool: Pool, half: int) -> Call:
    _, _, *seq = pool.grown(half, 1)
    last = pool.last(half)
    return lambda: pool.allocator.alloc_decode(seq[0], seq[1], last)


def _alloc_extend_rows(pool: Pool, half: int) -> Call:
    lengths, rows = pool.grown(half, MORE_TOKENS), pool.half_rows(half)
    total = MORE_TOKENS * len(pool.half(half))
    return lambda: pool.allocator.alloc_extend_rows(pool.table, *rows, *lengths, total)


def _alloc_decode_rows(pool: Pool, half: int) -> Call:
    _, _, *seq = pool.grown(half, 1)
    rows = pool.half_rows(half)
    return lambda: pool.allocator.alloc_decode_rows(pool.table, *rows, seq[0], seq[1])


def _free(pool: Pool, half: int) -> Call:
    slots = pool.sent(torch.cat(pool.half(half)))
    return lambda: pool.allocator.free(slots)


def _free_page_ids(pool: Pool, half: int) -> Call:
    pages = pool.sent(torch.cat([each[::PAGE_SIZE] for each in pool.half(half)]) // PAGE_SIZE)
    return lambda: pool.allocator.free_page_ids(pages)


def _free_segment(pool: Pool, half: int) -> Call:
    slots = pool.sent(pool.half(half)[0])
    return lambda: pool.allocator.free_segment(slots, start_pos=PAGE_SIZE)


def _free_segments(pool: Pool, half: int) -> Call:
    # Whose slots they are doesn't matter; positions must ascend.
    segments = [(pool.sent(each), WIDTH * at) for at, each in enumerate(pool.half(half))]
    return lambda: pool.allocator.free_segments(segments)


def _free_rows_segment(pool: Pool, half: int) -> Call:
    handle, length = pool.table.handle(int(pool.rows[half])), int(pool.lens[half])
    return lambda: pool.allocator.free_rows_segment(handle, 0, length)


#: name → what prepares the call on a half of a pool's requests
PAGED: dict[str, Callable[[Pool, int], Call]] = {
    "alloc": _alloc,
    "alloc_extend": _alloc_extend,
    "alloc_decode": _alloc_decode,
    "alloc_extend_rows": _alloc_extend_rows,
    "alloc_decode_rows": _alloc_decode_rows,
    "free": _free,
    "free_page_ids": _free_page_ids,
    "free_segment": _free_segment,
    "free_segments": _free_segments,
    "free_rows_segment": _free_rows_segment,
}


class TokenPool:
    """A token allocator of which two times four ids are out."""

    def __init__(self, device: torch.device, **options: Any) -> None:
        self.device = device
        self.allocator = TokenToKVPoolAllocator(64, device=device, **options)
        taken = [self.allocator.alloc(4) for _ in range(2)]
        self.ids = [each.clone() for each in taken if each is not None]


def _token_alloc(pool: TokenPool, half: int) -> Call:
    return lambda: pool.allocator.alloc(4)


def _token_free(pool: TokenPool, half: int) -> Call:
    return lambda: pool.allocator.free(pool.ids[half])


TOKEN: dict[str, Callable[[TokenPool, int], Call]] = {
    "token alloc": _token_alloc,
    "token free": _token_free,
}
