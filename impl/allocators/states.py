"""What became of every page, one byte each, and who holds it.

This decides `NotOwned`, `DoubleFree` and `Duplicate` at O(ids named). Entry 0 stands for the
reserved page, the last for everything beyond the pool, so that any id has an entry once it is
clipped. A page that came through the row calls has a holder, (row, generation); all others are
anonymous, row 0. Spec: `spec/core.md` §4 (double free), §4b, §5a.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from impl.kernels.arrays import Array, Arrays, HostArray, Viewed
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
    """States and holders of pages 1..num_pages. Ids are int64 arrays, clipped where said so."""

    _views: ClassVar[Mapping[str, str]] = {
        "_states": "by_page",
        "_rows": "holder_rows",
        "_generations": "holder_generations",
    }
    _states: Array
    _rows: Array
    _generations: Array

    def __init__(self, num_pages: int, device: torch.device, arrays: Arrays) -> None:
        self.num_pages = num_pages
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

    def clip(self, ids: Array) -> Array:
        """A copy in which ids below 1 name the reserved entry, ids beyond the pool the last."""
        return self._arrays.clip(ids, 0, self.num_pages + 1)

    def look(self, clipped: Array) -> Array:
        """The states of `clipped`, uint8."""
        return self._states[clipped]

    def mark(self, clipped: Array, state: int) -> None:
        """Set the state of `clipped`; whoever held them does so no more."""
        self._states[clipped] = state
        if self.has_holders:
            self._rows[clipped] = 0

    def hold(self, pages: Array, rows: Array, generations: Array) -> None:
        """Make (row, generation) the holders of `pages`, which are owned."""
        self.has_holders = True
        self._rows[pages] = rows
        self._generations[pages] = generations

    def owned(self, clipped: Array) -> Any:
        """Where `clipped` are owned."""
        return self._states[clipped] == OWNED

    def once(self, clipped: Array) -> Any:
        """True everywhere if no entry is named twice in `clipped`.

        By a sort of the ids named: a claim for each page would be read all over the pool.
        """
        if clipped.shape[0] < 2:
            return True
        ordered = self._arrays.sorted(clipped)
        return ordered[1:] != ordered[:-1]

    def held_by(self, clipped: Array, rows: Array | int, generations: Array | int) -> Any:
        """Where `clipped` are held by nobody in particular or by these."""
        holders = self._rows[clipped]
        theirs = (holders == rows) & (self._generations[clipped] == generations)
        return (holders == 0) | theirs

    def holders(self, clipped: Array) -> list[Handle | None]:
        """Who holds each of `clipped`, on the host; None for nobody in particular."""
        pairs = zip(self._rows[clipped].tolist(), self._generations[clipped].tolist(), strict=True)
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
