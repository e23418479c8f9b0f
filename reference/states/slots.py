"""State slots: taken from the head, given back at the tail (`pools_states_sizing.md` §2)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reference.allocators.sizes import size_faults
from reference.audit import partition_faults
from reference.refusal import Fault, Refused, as_int, refuse_smallest


class MambaSlotAllocator:
    """Slots `1..size`. Slot 0 is where padded lanes write (§0)."""

    free_slots: list[int]  # in the order in which they are handed out
    owned: set[int]
    issued: set[int]  # handed out since the last clear: tells DoubleFree from NotOwned
    parked: list[int]  # taken ahead by the open group, not handed out yet
    group_open: bool

    def __init__(self, size: int) -> None:
        refuse_smallest(size_faults(size, 1))
        self.size = size
        self.clear()

    def clear(self) -> None:
        """Everything free and in order; a group is forgotten with what it parked."""
        self.free_slots = list(range(1, self.size + 1))
        self.owned = set()
        self.issued = set()
        self.parked = []
        self.group_open = False

    def available_size(self) -> int:
        """Free slots; parked ones aren't counted."""
        return len(self.free_slots)

    def schedulable_available_size(self) -> int:
        """The same on a pool of fixed size."""
        return self.available_size()

    # --- hand-out ---

    def alloc(self, need_size: int) -> list[int] | None:
        """A parked slot for one alone, else the first slots of the list; None if there are few."""
        need = count_of(need_size)
        if need == 1 and self.parked:
            taken = [self.parked.pop(0)]
        elif need > len(self.free_slots):
            return None
        else:
            taken = self.free_slots[:need]
            del self.free_slots[:need]
        self.owned.update(taken)
        self.issued.update(taken)
        return taken

    # --- return ---

    def free(self, free_index: Sequence[int]) -> None:
        """To the end of the list, in the order given: all of them or none."""
        slots = list(free_index)
        if len(set(slots)) > len(self.owned):
            raise Refused("TooMany")
        refuse_smallest(self.slot_faults(slots))
        self.owned.difference_update(slots)
        self.free_slots += slots

    def slot_faults(self, slots: Sequence[int]) -> list[Fault]:
        """Faults of slots that must be out, and be named once."""
        faults: list[Fault] = []
        for index, slot in enumerate(slots):
            kind = self.slot_fault(slot)
            if kind is not None:
                faults.append((kind, index))
            if slot in slots[:index]:
                faults.append(("Duplicate", index))
        return faults

    def slot_fault(self, slot: int) -> str | None:
        """Why this slot isn't one that somebody has."""
        if slot in self.owned:
            return None
        if not 0 <= slot <= self.size:
            return "OutOfRange"
        if slot == 0:
            return "Reserved"
        return "DoubleFree" if slot in self.issued else "NotOwned"

    # --- groups ---

    def alloc_group_begin(self, num_reqs: int) -> None:
        """Take so many slots ahead; if they aren't there, none. One group at a time."""
        count = count_of(num_reqs)
        if self.group_open:
            raise Refused("GroupOpen")
        self.group_open = True
        if count <= len(self.free_slots):
            self.parked = self.free_slots[:count]
            del self.free_slots[:count]

    def alloc_group_end(self) -> None:
        """What nobody took goes to the end of the list."""
        if not self.group_open:
            raise Refused("GroupNotOpen")
        self.free_slots += self.parked
        self.parked = []
        self.group_open = False

    @contextmanager
    def alloc_group(self, num_reqs: int) -> Iterator[None]:
        """Begin and end; `clear` inside has ended it already."""
        self.alloc_group_begin(num_reqs)
        try:
            yield
        finally:
            if self.group_open:
                self.alloc_group_end()

    # --- inspection ---

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping: allocators with equal snapshots answer every later call alike."""
        return {
            "size": self.size,
            "free": list(self.free_slots),
            "group": self.group_open,
            "parked": list(self.parked),
            "owned": sorted(self.owned),
            "issued": sorted(self.issued),
        }

    def audit(self) -> list[str]:
        """Recount everything from scratch: the invariants of `bugs.md` that are broken."""
        faults = partition_faults("slot", self.free_slots + self.parked, self.owned, self.size)
        if self.parked and not self.group_open:
            faults.append("I21: slots are parked and no group is open")
        if not self.owned <= self.issued:
            faults.append("I2: a slot is owned that was never issued")
        return faults


def count_of(value: object) -> int:
    """How many are asked for."""
    count = as_int(value)
    if count is None:
        raise Refused("WrongDtype")
    if count < 0:
        raise Refused("NegativeSize")
    return count
