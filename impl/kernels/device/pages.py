"""The device's side of an allocator: what kernels know of every page, and the error record.

Spec: `spec/core.md` §4 (misuse), §4b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from impl.allocators import states
from impl.errors import (
    KINDS,
    BadLastLoc,
    BadLengths,
    Duplicate,
    NotConsecutive,
    OutOfRange,
    PoolError,
    TooMany,
)

# What a claim is at rest: more than any index.
UNCLAIMED = 2**31 - 1


class Pages(NamedTuple):
    """What kernels know of pages 0..num_pages + 1: the first is reserved, the last beyond."""

    page_size: int
    states: torch.Tensor
    """uint8 [num_pages + 2], values of `impl.allocators.states`."""
    holder_row: torch.Tensor
    """int32 [num_pages + 2]: the row that a page was issued to, 0 for none and anonymous."""
    holder_gen: torch.Tensor
    """int64 [num_pages + 2]: its generation; means nothing where the row is 0."""
    claim: torch.Tensor
    """int32 [num_pages + 2]: `UNCLAIMED` between calls."""
    record: torch.Tensor
    """int64 [8]: zeros, or the first fault (see `Record`)."""

    @property
    def num_pages(self) -> int:
        """Pages that can be issued."""
        return int(self.states.shape[0]) - 2


def make_pages(num_pages: int, page_size: int, device: torch.device | str) -> Pages:
    """Pages as after `clear`: none was ever issued, nothing is wrong."""
    by_page = torch.full((num_pages + 2,), states.NEVER, dtype=torch.uint8, device=device)
    by_page[0] = states.RESERVED
    by_page[-1] = states.BEYOND
    return Pages(
        page_size=page_size,
        states=by_page,
        holder_row=torch.zeros(num_pages + 2, dtype=torch.int32, device=device),
        holder_gen=torch.zeros(num_pages + 2, dtype=torch.int64, device=device),
        claim=torch.full((num_pages + 2,), UNCLAIMED, dtype=torch.int32, device=device),
        record=torch.zeros(8, dtype=torch.int64, device=device),
    )


class Record(NamedTuple):
    """The first fault, as a kernel leaves it. Fields behind `at`, the index, depend on the kind.

    `BadLengths`: named = prefix on the device, holder_row = prefix on the host, holder_gen = seq
    on the device, state = seq on the host, extra = row on the device (0 without rows; the host's
    row is the caller's to look up).
    `TooMany`: named = distinct pages given back, extra = pages that are out.
    All others: named = the id as given (page id, slot, or `last_loc`), then holder and state of
    its page. extra = for `NotConsecutive` the slot that was expected; for `Duplicate` the index
    that came first (`slots`: the segment that came first); else 0.
    """

    seq: int
    kind: int
    at: int
    named: int
    holder_row: int
    holder_gen: int
    state: int
    extra: int


def read(record: Sequence[int]) -> Record | None:
    """The fault in the 8 numbers of a record, None if there is none."""
    return Record(*record) if record[0] else None


def kind_of(record: Record) -> type[PoolError]:
    """The class of the error."""
    return KINDS[record.kind]


def describe(record: Record, *, page_size: int) -> str:
    """What was found, in words. `page_size` 1 where ids of pages or tokens were given."""
    kind = kind_of(record)
    at = f"[{record.at}] "
    if kind is BadLengths:
        on_device = record.named, record.holder_gen
        on_host = record.holder_row, record.state
        row = f" (row {record.extra} on the device)" if record.extra else ""
        return f"{at}prefix and seq are {on_device} on the device, {on_host} on the host{row}"
    if kind is TooMany:
        return f"{record.named} pages given back, {record.extra} are out"
    page = record.named // page_size
    what = f"slot {record.named} (page {page})" if page_size > 1 else f"id {record.named}"
    if kind is NotConsecutive:
        return f"{at}{what} where {record.extra} was expected"
    if kind is Duplicate:
        return f"{at}{what} was named at {record.extra} already"
    # Ids below 0 have the reserved entry.
    meaning = states.MEANING[states.BEYOND if kind is OutOfRange else record.state]
    if record.state == states.OWNED and record.holder_row:
        meaning = f"held by row {record.holder_row}, generation {record.holder_gen}"
    if kind is BadLastLoc:
        return f"{at}last_loc {record.named} doesn't fit its prefix, or its page is {meaning}"
    return f"{at}{what} is {meaning}"
