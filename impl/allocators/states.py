"""What became of every page: one byte each.

This decides `NotOwned`, `DoubleFree` and `Duplicate` at O(ids named). Entry 0 stands for the
reserved page, the last for everything beyond the pool, so that any id has an entry once it is
clipped. Spec: `spec/core.md` §4 (double free), §4b.
"""

from __future__ import annotations

import torch

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

Pair = tuple[torch.Tensor, torch.Tensor]


class PageStates:
    """States of pages 1..num_pages. Ids are int64 on the pool's device, clipped where said so."""

    def __init__(self, num_pages: int, device: torch.device) -> None:
        self.num_pages = num_pages
        self.by_page = torch.empty(num_pages + 2, dtype=torch.uint8, device=device)
        self._all_differ = torch.tensor(True, device=device)
        self._least = torch.tensor(0, device=device)
        self._most = torch.tensor(num_pages + 1, device=device)
        each = torch.arange(8, dtype=torch.uint8, device=device)
        self._owned = each[OWNED]
        self._parked_slots = each[PARKED_SLOTS]
        # Broadcast sources: a scatter of a tensor costs half of what filling with a scalar does.
        self._sources = each.unsqueeze(1).expand(8, num_pages + 2).unbind()
        self.reset()

    def reset(self) -> None:
        """As after construction: no page was ever issued. O(pool)."""
        self.by_page.fill_(NEVER)
        self.by_page[0] = RESERVED
        self.by_page[-1] = BEYOND

    def clip(self, ids: torch.Tensor) -> torch.Tensor:
        """A copy in which ids below 1 name the reserved entry, ids beyond the pool the last."""
        return torch.clamp(ids, self._least, self._most)

    def look(self, clipped: torch.Tensor) -> torch.Tensor:
        """The states of `clipped`, uint8."""
        return self.by_page.index_select(0, clipped)

    def mark(self, clipped: torch.Tensor, state: int) -> None:
        """Set the state of `clipped` (no more ids than pages)."""
        self.by_page.scatter_(0, clipped, self._sources[state])

    def owned(self, clipped: torch.Tensor) -> Pair:
        """Two tensors, equal if and only if all of `clipped` (at least one) are owned."""
        return self.by_page.index_select(0, clipped).amin(), self._owned

    def once(self, clipped: torch.Tensor) -> Pair:
        """Two tensors, equal if and only if no entry is named twice in `clipped`.

        By a sort of the ids named: a claim for each page would be read all over the pool.
        """
        ordered = clipped.sort().values
        return (ordered[1:] != ordered[:-1]).all(), self._all_differ

    def lowest_and_unparked(self, states: torch.Tensor) -> tuple[int, int]:
        """The lowest of `states`, and how many aren't parked by slots: one host read."""
        unparked = (states != self._parked_slots).sum()
        lowest, count = torch.stack((states.amin().to(torch.int64), unparked)).tolist()
        return lowest, count
