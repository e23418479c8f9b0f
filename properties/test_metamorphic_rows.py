"""Metamorphic properties of the row calls: with the table and without it, to the same end (§5a)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl import PagedTokenToKVPoolAllocator, ReqToTokenPool
from properties.subjects.impl import default_device

pytestmark = pytest.mark.system("paged_rows")

ROWS, WIDTH, NUM_SLOTS = 4, 24, 60
# Row → tokens that it grows by in one call; the dictionary's order is the batch's.
BATCHES = st.lists(st.dictionaries(st.integers(1, ROWS), st.integers(0, 9)), max_size=6)


class Engine:
    """A pool and a table, and how far each row is filled."""

    def __init__(self, page_size: int, need_sort: bool) -> None:
        device = default_device()
        self.pool = PagedTokenToKVPoolAllocator(
            NUM_SLOTS, page_size, device=device, need_sort=need_sort
        )
        self.table = ReqToTokenPool(ROWS, WIDTH, device=device)
        self.table.alloc_rows(ROWS)
        self.lens = [0] * (ROWS + 1)

    def pair(self, values: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """A device tensor and its host copy."""
        host = torch.tensor(values, dtype=torch.int64)
        return host.to(self.pool.device), host

    def spans(self, batch: dict[int, int]) -> tuple[list[int], list[int], list[int]]:
        """Rows, prefix and seq of a batch, cut to the width of the table."""
        rows = list(batch)
        prefix = [self.lens[row] for row in rows]
        seq = [min(WIDTH, n + batch[row]) for row, n in zip(rows, prefix, strict=True)]
        return rows, prefix, seq

    def grow(self, batch: dict[int, int], by_rows: bool, decode: bool) -> Any:
        """The slots of one call, through the table or by its separate steps."""
        rows, prefix, seq = self.spans(batch)
        found = (self._through if by_rows else self._beside)(rows, prefix, seq, decode)
        if found is not None:
            for row, length in zip(rows, seq, strict=True):
                self.lens[row] = length
        return None if found is None else found.tolist()

    def _through(self, rows: list[int], prefix: list[int], seq: list[int], decode: bool) -> Any:
        named = (self.table, *self.pair(rows))
        if decode:
            return self.pool.alloc_decode_rows(*named, *self.pair(seq))
        total = sum(seq) - sum(prefix)
        return self.pool.alloc_extend_rows(*named, *self.pair(prefix), *self.pair(seq), total)

    def _beside(self, rows: list[int], prefix: list[int], seq: list[int], decode: bool) -> Any:
        table = self.table.req_to_token
        lasts = [int(table[r, n - 1]) if n else -1 for r, n in zip(rows, prefix, strict=True)]
        last_loc, _ = self.pair(lasts)
        if decode:
            slots = self.pool.alloc_decode(*self.pair(seq), last_loc)
        else:
            total = sum(seq) - sum(prefix)
            slots = self.pool.alloc_extend(*self.pair(prefix), *self.pair(seq), last_loc, total)
        at = 0
        for row, low, high in zip(rows, prefix, seq, strict=True):
            if slots is not None:
                self.table.write((row, slice(low, high)), slots[at : at + high - low])
                at += high - low
        return slots

    def free(self, row: int, by_rows: bool) -> None:
        """Gives back all of a row."""
        length = self.lens[row]
        if by_rows:
            handle = self.table.handle(row)
            self.pool.free_rows_segment(handle, 0, length, table=self.table)
        else:
            slots = self.table.req_to_token[row, :length].to(torch.int64)
            self.pool.free_segment(slots, start_pos=0)
        self.lens[row] = 0

    def state(self) -> dict[str, Any]:
        """All that must be equal: holders and the table's name are what only one of them has."""
        found = self.pool.snapshot()
        owned = sorted(found.pop("holders"))
        del found["bound"]
        return {**found, "owned": owned, "table": self.table.req_to_token.tolist()}


@given(st.integers(1, 5), st.booleans(), BATCHES, st.lists(st.integers(1, ROWS)))
def test_a_row_call_is_its_separate_steps(
    page_size: int, need_sort: bool, batches: list[dict[int, int]], freed: list[int]
) -> None:
    """Read the last slots, allocate, write: as one call the same slots, lists and table."""
    engines = [Engine(page_size, need_sort) for _ in range(2)]
    for number, batch in enumerate(batches):
        decode = number % 2 == 1
        if decode:
            fits = [row for row in batch if engines[0].lens[row] < WIDTH]
            batch = dict.fromkeys(fits, 1)
        one, several = (engine.grow(batch, i == 0, decode) for i, engine in enumerate(engines))
        assert one == several
        for row in freed[number : number + 1]:
            for i, engine in enumerate(engines):
                engine.free(row, by_rows=i == 0)
        assert engines[0].state() == engines[1].state()
