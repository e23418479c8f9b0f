"""Which slots a transfer under way reads or writes: readers together, a writer alone.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.10, HT-8.
"""

from __future__ import annotations

import numpy as np

Slots = np.ndarray[tuple[int], np.dtype[np.int64]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
_WRITER = -1


class Pins:
    """Pins on slots 0..count-1. Not thread-safe by itself: its owner has the lock."""

    def __init__(self, count: int) -> None:
        # how many read a slot, or that somebody writes it
        self._held = np.zeros(count, dtype=np.int32)
        self.num_pinned = 0

    def busy(self, slots: Slots, writing: bool) -> Mask:
        """Whom of `slots` nobody more can read, or write, now. O(slots)."""
        held = self._held[slots]
        found: Mask = held != 0 if writing else held == _WRITER
        return found

    def pin(self, slots: Slots, writing: bool) -> None:
        """Pin slots that aren't `busy`; one that is read may stand there twice. O(slots)."""
        if writing:
            self._held[slots] = _WRITER
        else:
            np.add.at(self._held, slots, 1)
        self.num_pinned += len(slots)

    def unpin(self, slots: Slots, writing: bool) -> None:
        """Take back a `pin` of the same slots. O(slots)."""
        if writing:
            self._held[slots] = 0
        else:
            np.subtract.at(self._held, slots, 1)
        self.num_pinned -= len(slots)

    def snapshot(self) -> dict[int, int]:
        """Slot to its number of readers, -1 for a writer; those that are pinned."""
        return {int(slot): int(self._held[slot]) for slot in np.flatnonzero(self._held)}
