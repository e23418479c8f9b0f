"""Host slots: whole pages, first in first out (`interleave_hisparse_host_prefix.md` §4.4).

Slots begin at 0, and no page is reserved (§8, Q12).
"""

from collections.abc import Sequence
from typing import Any

from reference.audit import partition_faults
from reference.refusal import Fault, Refused, as_int, refuse_smallest


class HostSlots:
    """Slots `0..size-1`, and which of them transfers read and write."""

    free_slots: list[int]  # in the order in which they are handed out
    owned: set[int]
    issued: set[int]  # handed out since the last clear: tells DoubleFree from NotOwned
    readers: list[int]  # a slot once for each transfer that reads it
    written: set[int]

    def __init__(self, size: int, page_size: int) -> None:
        if page_size < 1 or size < 0:
            raise Refused("NegativeSize")
        if size % page_size:
            raise Refused("NotPageMultiple")
        self.size = size
        self.page_size = page_size
        self.readers = []
        self.written = set()
        self.clear()

    def clear(self) -> None:
        """Everything free and in order; not under a transfer."""
        if self.readers or self.written:
            raise Refused("StillOwned")
        self.free_slots = list(range(self.size))
        self.owned = set()
        self.issued = set()

    def available_size(self) -> int:
        """Free slots."""
        return len(self.free_slots)

    def alloc(self, need_size: int) -> list[int] | None:
        """The first slots of the list; None if there are few."""
        need = as_int(need_size)
        if need is None:
            raise Refused("WrongDtype")
        if need < 0:
            raise Refused("NegativeSize")
        if need % self.page_size:
            raise Refused("NotPageMultiple")
        if need > len(self.free_slots):
            return None
        taken = self.free_slots[:need]
        del self.free_slots[:need]
        self.owned.update(taken)
        self.issued.update(taken)
        return taken

    def free(self, free_index: Sequence[int]) -> int:
        """Whole pages to the end of the list, by where their first slots stand; how many slots."""
        slots = list(free_index)
        if len(slots) % self.page_size:
            raise Refused("NotPageMultiple")
        if len(set(slots)) > len(self.owned):
            raise Refused("TooMany")
        refuse_smallest(self.faults(slots, writing=True) + self.page_faults(slots))
        for slot in slots:
            if slot % self.page_size == 0:
                self.free_slots += range(slot, slot + self.page_size)
        self.owned.difference_update(slots)
        return len(slots)

    def faults(self, slots: Sequence[int], writing: bool) -> list[Fault]:
        """What is wrong with slots that a call reads, or writes, or gives back."""
        found: list[Fault] = []
        for at, slot in enumerate(slots):
            if not 0 <= slot < self.size:
                found.append(("OutOfRange", at))
            elif slot not in self.owned:
                found.append(("DoubleFree" if slot in self.issued else "NotOwned", at))
            if writing and slot in slots[:at]:
                found.append(("Duplicate", at))
            if slot in self.written or (writing and slot in self.readers):
                found.append(("StillOwned", at))
        return found

    def page_faults(self, slots: Sequence[int]) -> list[Fault]:
        """Slots of pages that aren't all there."""
        found: list[Fault] = []
        for at, slot in enumerate(slots):
            first = slot - slot % self.page_size
            page = range(first, first + self.page_size)
            if 0 <= slot < self.size and not all(each in slots for each in page):
                found.append(("NotPageMultiple", at))
        return found

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping: allocators with equal snapshots answer every later call alike."""
        pinned = {slot: self.readers.count(slot) for slot in self.readers}
        return {
            "size": self.size,
            "free": list(self.free_slots),
            "owned": sorted(self.owned),
            "issued": sorted(self.issued),
            "pinned": {**pinned, **dict.fromkeys(self.written, -1)},
        }

    def audit(self) -> list[str]:
        """Recount everything from scratch: the invariants of `bugs.md` that are broken."""
        listed = [slot + 1 for slot in self.free_slots]
        found = partition_faults("slot + 1", listed, {slot + 1 for slot in self.owned}, self.size)
        if not {*self.readers, *self.written} <= self.owned:
            found.append("I65: a slot is in a transfer, and nobody's")
        return found
