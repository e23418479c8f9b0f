"""What became of every page, one byte each, and who holds it.

This decides `NotOwned`, `DoubleFree` and `Duplicate` at O(ids named). Entry 0 stands for the
reserved page, the last for everything beyond the pool, so that any id has an entry. A page that
came through the row calls has a holder, (row, generation); all others are anonymous, row 0.
Spec: `spec/core.md` §4 (double free), §4b, §5a.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from impl.kernels.arrays import Array, Arrays, HostArray, Truth, Viewed
from impl.rows import Handle

# Ordered: what a page-id free accepts is OWNED, what a slot free accepts is PARKED_SLOTS and up.
RESERVED, BEYOND, NEVER, FREE, STAGED, PARKED_PAGES, PARKED_SLOTS, OWNED = range(8)

MEANING = {
    RESERVED: "reserved",
    BEYOND: "outside the pool",
    NEVER: "not issued since the last clear",
    FREE: "free",
    STAGED: "freed and staged",
    PARKED_PAGES: "parked by a page-id or segment free of the open group",
    PARKED_SLOTS: "parked by a slot free of the open group",
    OWNED: "owned",
}


class PageStates(Viewed):
    """States and holders of pages 1..num_pages. Ids are int64 arrays."""

    _views: ClassVar[Mapping[str, str]] = {
        "_states": "by_page",
        "_rows": "holder_rows",
        "_generations": "holder_generations",
    }
    _states: Array
    _rows: Array
    _generations: Array

    def __init__(self, num_pages: int, device: torch.device, arrays: Arrays) -> None:
        self.by_page = torch.empty(num_pages + 2, dtype=torch.uint8, device=device)
        self.holder_rows = torch.zeros(num_pages + 2, dtype=torch.int32, device=device)
        self.holder_generations = torch.zeros(num_pages + 2, dtype=torch.int64, device=device)
        self._arrays = arrays
        self._view()
        self.reset()

    def reset(self) -> None:
        """As after construction: no page was ever issued. O(pool)."""
        self.by_page.fill_(NEVER)
        self.by_page[0] = RESERVED
        self.by_page[-1] = BEYOND
        self.holder_rows.zero_()
        self.has_holders = False

    def look(self, ids: Array) -> Array:
        """The states of any ids, uint8: RESERVED below 1, BEYOND above the pool."""
        return self._arrays.look(self._states, ids)

    def mark(self, pages: Array, state: int) -> None:
        """Set the state of `pages`, which are in the pool; who held them does so no more."""
        self._states[pages] = state
        if self.has_holders:
            self._rows[pages] = 0

    def hold(self, pages: Array, rows: Array, generations: Array) -> None:
        """Make (row, generation) the holders of `pages`, which are owned."""
        self.has_holders = True
        self._rows[pages] = self._arrays.narrow(rows)
        self._generations[pages] = generations

    def owned(self, ids: Array) -> Truth:
        """That all of any ids are owned."""
        return self._arrays.all_are(self.look(ids), OWNED)

    def held_by(self, ids: Array, rows: Array | int, generations: Array | int) -> Truth:
        """That each of any ids is held by nobody in particular or by this one."""
        holders = self._arrays.look(self._rows, ids)
        theirs = self._arrays.look(self._generations, ids) == generations
        return (holders == 0) | ((holders == rows) & theirs)

    def holders(self, ids: Array) -> list[Handle | None]:
        """Who holds each of any ids, on the host; None for nobody in particular."""
        rows = self._arrays.look(self._rows, ids).tolist()
        generations = self._arrays.look(self._generations, ids).tolist()
        pairs = zip(rows, generations, strict=True)
        return [Handle(*pair) if pair[0] else None for pair in pairs]

    def all_holders(self) -> dict[int, Handle]:
        """Page to holder, anonymous pages left out. O(pool)."""
        if not self.has_holders:
            return {}
        generations = self.holder_generations.tolist()
        return {
            page: Handle(row, generations[page])
            for page, row in enumerate(self.holder_rows.tolist())
            if row
        }


def sent_holders(
    arrays: Arrays, rows: HostArray, generations: HostArray, new_pages: HostArray
) -> tuple[Array, Array]:
    """The holder of each new page of a batch, on the device: rows and generations."""
    each_row, each_generation = arrays.send(rows.repeat(new_pages), generations.repeat(new_pages))
    return each_row, each_generation
