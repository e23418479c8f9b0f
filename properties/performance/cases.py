"""The jobs that are timed. Each is built for one engine and gives a `Work`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from properties.performance.engines import SGLANG, Engine
from properties.performance.timing import Work

# What an engine of middling size has; SGLang's frees copy the free list, so its length matters.
NUM_PAGES = 2**14
EXTEND_TOKENS = 515
EXTEND_BATCHES = (1, 16, 64, 256)
PAIR_BATCHES = (16, 64)
DECODE_BATCHES = (1, 4, 16, 64, 256)
PAGE_SIZES = (16, 64)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job: its group in the table, its name there, and how an engine gets ready for it.

    `beside` names the engine that ours is timed beside, with which the group's ratios are.
    """

    group: str
    name: str
    start: Callable[[Any], Work]
    beside: str = SGLANG

    @property
    def full_name(self) -> str:
        """Group and name."""
        return f"{self.group}, {self.name}"

    def __str__(self) -> str:
        return self.full_name


def extend(batch: int, page_size: int) -> Case:
    """`batch` prompts of 515 tokens, then one free of all their slots."""

    def start(engine: Engine) -> Work:
        allocator = engine.paged(NUM_PAGES, page_size)
        prefix = engine.both(torch.zeros(batch, dtype=torch.int64))
        seq = engine.both(torch.full((batch,), EXTEND_TOKENS))
        last, _ = engine.both(torch.full((batch,), -1))
        total = batch * EXTEND_TOKENS

        def run() -> None:
            allocator.free(allocator.alloc_extend(*prefix, *seq, last, total))

        return Work(run=run)

    name = f"page {page_size}, batch {batch}"
    return Case(group=f"extend {EXTEND_TOKENS} tokens, free all", name=name, start=start)


def pair(batch: int, page_size: int, *, by_rows: bool) -> Case:
    """The same on a sliding-window pair: both sides are taken, both go back.

    At once, or `by_rows`: a segment for each request, as engines free them.
    """

    def start(engine: Engine) -> Work:
        allocator = engine.pair(NUM_PAGES, NUM_PAGES, page_size)
        prefix = engine.both(torch.zeros(batch, dtype=torch.int64))
        seq = engine.both(torch.full((batch,), EXTEND_TOKENS))
        last, _ = engine.both(torch.full((batch,), -1))
        total = batch * EXTEND_TOKENS

        def run() -> None:
            slots = allocator.alloc_extend(*prefix, *seq, last, total)
            if not by_rows:
                allocator.free(slots)
                return
            for row in slots.split(EXTEND_TOKENS):
                allocator.free_segment(row, start_pos=0)

        return Work(run=run)

    name = f"page {page_size}, batch {batch}"
    how = "free row by row" if by_rows else "free all"
    group = f"sliding-window pair, extend {EXTEND_TOKENS} tokens, {how}"
    return Case(group=group, name=name, start=start)


def decode(batch: int, page_size: int) -> Case:
    """A page's worth of decode steps of requests whose pages fill up one after the other."""

    def start(engine: Engine) -> Work:
        allocator = engine.paged(NUM_PAGES, page_size)
        lens = 512 + torch.arange(batch) % page_size
        prefix = engine.both(torch.zeros(batch, dtype=torch.int64))
        last, _ = engine.both(torch.full((batch,), -1))
        prompts = allocator.alloc_extend(*prefix, *engine.both(lens), last, int(lens.sum()))
        first = prompts[engine.both(lens.cumsum(0) - 1)[0]]
        steps = [engine.both(lens + step) for step in range(1, page_size + 1)]
        issued: list[torch.Tensor] = []

        def run() -> None:
            last = first
            for seq, seq_cpu in steps:
                last = allocator.alloc_decode(seq, seq_cpu, last)
                issued.append(last)

        def restore() -> None:
            slots = torch.cat(issued)
            allocator.free_page_ids(slots[slots % page_size == 0] // page_size)
            issued.clear()

        return Work(run=run, restore=restore, calls=page_size)

    return Case(group="decode", name=f"page {page_size}, batch {batch}", start=start)


def token(size: int, count: int) -> Case:
    """`alloc` of `count` ids, then their free."""

    def start(engine: Engine) -> Work:
        allocator = engine.token(size)

        def run() -> None:
            allocator.free(allocator.alloc(count))

        return Work(run=run)

    return Case(group="token, alloc and free", name=f"{count} of {size} ids", start=start)


def segments(count: int, pages_each: int, page_size: int = 16) -> Case:
    """One `free_segments` of a request's row in `count` pieces, with gaps between them."""

    def start(engine: Engine) -> Work:
        allocator = engine.paged(NUM_PAGES, page_size)
        length = pages_each * page_size
        pending: list[tuple[torch.Tensor, int]] = []

        def restore() -> None:
            pieces = allocator.alloc(count * length).clone().split(length)
            pending[:] = [(piece, 2 * length * at) for at, piece in enumerate(pieces)]

        def run() -> None:
            allocator.free_segments(pending)

        restore()
        return Work(run=run, restore=restore)

    name = f"{count} of {pages_each} pages each"
    return Case(group=f"free_segments, page {page_size}", name=name, start=start)


def scattered(num_pages: int, percent_free: int, count: int = 1024, page_size: int = 16) -> Case:
    """One `free` of a slot in each of `count` random pages that weren't freed before."""

    def start(engine: Engine) -> Work:
        allocator = engine.paged(num_pages, page_size)
        batches = _never_freed(engine, allocator, num_pages * percent_free // 100, count)
        pending = [next(batches)]

        def run() -> None:
            allocator.free(pending[0])

        def restore() -> None:
            pending[0] = next(batches)

        return Work(run=run, restore=restore)

    power = num_pages.bit_length() - 1
    name = f"2^{power} pages, {percent_free} % free"
    return Case(group=f"free of {count} scattered pages, page {page_size}", name=name, start=start)


def _never_freed(
    engine: Engine, allocator: Any, num_free: int, count: int
) -> Iterator[torch.Tensor]:
    """Slots of `count` scattered pages each, of a pool built anew when they run out."""
    page_size, num_pages = allocator.page_size, allocator.num_pages
    shuffled = torch.Generator().manual_seed(0)
    while True:
        allocator.clear()
        for begin in range(0, num_pages, 2**16):
            # in parts: all slots of a large pool would be half a gigabyte
            allocator.alloc((min(begin + 2**16, num_pages) - begin) * page_size)
        pages, _ = engine.both(torch.randperm(num_pages, generator=shuffled) + 1)
        if num_free:
            allocator.free_page_ids(pages[:num_free].clone())
        whole = (num_pages - num_free) // count
        yield from (pages[num_free:] * page_size + 3).split(count)[:whole]


def cases() -> list[Case]:
    """All jobs, in the order of the table."""
    found = [extend(batch, size) for size in PAGE_SIZES for batch in EXTEND_BATCHES]
    found += [decode(batch, size) for size in PAGE_SIZES for batch in DECODE_BATCHES]
    found += [
        pair(batch, size, by_rows=by_rows)
        for by_rows in (False, True)
        for size in PAGE_SIZES
        for batch in PAIR_BATCHES
    ]
    found += [token(2**20, 4096), token(4096, 1), token(4096, 64)]
    found += [segments(64, 4), segments(64, 1)]
    # Of 2^12 pages 90 % free fewer than 1,024 are out.
    found += [
        scattered(2**power, percent)
        for percent in (10, 90)
        for power in range(12, 23, 2)
        if 2**power * (100 - percent) // 100 >= 1024
    ]
    return found
