"""The book of the state slots: what is free, parked and out. Spec:
`spec/pools_states_sizing.md` §2.

A slot holds one whole state, so slots are few and come one by one: the book is the host's, and
only the ids that a caller gets lie on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from impl.errors import (
    DoubleFree,
    Duplicate,
    Fault,
    NotOwned,
    OutOfRange,
    PoolError,
    Reserved,
    TooMany,
    refuse,
)
from impl.kernels.arrays import Arrays

#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    OutOfRange: "Use slots that alloc returned",
    Reserved: "Slot 0 is where padded lanes write: it is never handed out",
    NotOwned: "Use slots between their hand-out and their free",
    DoubleFree: "Free each slot once",
    Duplicate: "Name each once per call",
}
# What is before the head of the list is given up once it is so much, and most of the list.
LEAST_TRIMMED = 64


class StateSlotBook:
    """Slots 1..size: taken from the head of the list, given back at its tail."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.clear()

    def clear(self) -> None:
        """All slots free, ascending, no group. O(size)."""
        self._ids = list(range(1, self.size + 1))
        self._head = 0
        self._owned = bytearray(self.size + 1)
        self._issued = bytearray(self.size + 1)
        self.num_owned = 0
        #: what an open group took ahead; None without one
        self.parked: list[int] | None = None

    @property
    def num_free(self) -> int:
        """Slots in the list."""
        return len(self._ids) - self._head

    def has_each(self, counts: Sequence[int]) -> bool:
        """Whether an allocation of each of `counts` would be served; single ones may be parked."""
        num_parked = min(counts.count(1), len(self.parked or ()))
        return sum(counts) - num_parked <= self.num_free

    def take_each(self, counts: Sequence[int]) -> list[int] | None:
        """The slots of an allocation of each of `counts`, of all or none. O(slots)."""
        if not self.has_each(counts):
            return None
        parked = self.parked or []
        taken: list[int] = []
        for count in counts:
            taken += [parked.pop(0)] if count == 1 and parked else self.first(count)
        for slot in taken:
            self._owned[slot] = self._issued[slot] = True
        self.num_owned += len(taken)
        return taken

    def first(self, count: int) -> list[int]:
        """Remove the first `count` free slots, which nobody owns yet."""
        end = self._head + count
        taken, self._head = self._ids[self._head : end], end
        if end > max(LEAST_TRIMMED, len(self._ids) // 2):
            del self._ids[:end]
            self._head = 0
        return taken

    def append(self, slots: Sequence[int]) -> None:
        """Put slots that nobody owns at the tail."""
        self._ids += slots

    def release(self, call: str, slots: Sequence[int]) -> None:
        """Give back `slots`, all or, when one is at fault, none. O(slots)."""
        distinct = len(set(slots))
        if distinct > self.num_owned:
            raise TooMany(
                f"{call}: {distinct} slots given back, {self.num_owned} are out. Free each once."
            )
        refuse(call, self.faults(slots), ADVICE)
        for slot in slots:
            self._owned[slot] = False
        self.num_owned -= len(slots)
        self.append(slots)

    def faults(self, slots: Sequence[int]) -> list[Fault]:
        """What is wrong with each of `slots` as one that is out, named once."""
        found: list[Fault] = []
        first_at: dict[int, int] = {}
        for index, slot in enumerate(slots):
            if not 0 <= slot <= self.size:
                found.append(Fault(OutOfRange, index, f"slot {slot} is outside 1..{self.size}"))
            elif slot == 0:
                found.append(Fault(Reserved, index, "slot 0 is reserved"))
            elif not self._issued[slot]:
                found.append(Fault(NotOwned, index, f"slot {slot} was not issued since clear"))
            elif not self._owned[slot]:
                found.append(Fault(DoubleFree, index, f"slot {slot} is free already"))
            elif slot in first_at:
                at = first_at[slot]
                found.append(Fault(Duplicate, index, f"slot {slot} was named at {at} already"))
            first_at.setdefault(slot, index)
        return found

    def snapshot(self) -> dict[str, Any]:
        """The book as plain Python."""
        return {
            "size": self.size,
            "free": self._ids[self._head :],
            "group": self.parked is not None,
            "parked": list(self.parked or ()),
            "owned": [slot for slot, is_owned in enumerate(self._owned) if is_owned],
            "issued": [slot for slot, is_issued in enumerate(self._issued) if is_issued],
        }

    def audit(self) -> list[str]:
        """Everything counted again: violated invariants, [] when healthy. O(size)."""
        state = self.snapshot()
        listed, owned = state["free"] + state["parked"], state["owned"]
        problems = []
        if sorted(listed + owned) != list(range(1, self.size + 1)):
            problems.append(
                f"I34: free {state['free']}, parked {state['parked']} and owned {owned} slots "
                f"aren't a partition of 1..{self.size}"
            )
        if len(owned) != self.num_owned:
            problems.append(f"I34: {self.num_owned} slots count as out, {len(owned)} are marked")
        if not set(owned) <= set(state["issued"]):
            problems.append(f"I34: of the owned slots {owned} some were never issued")
        return problems


def sent(arrays: Arrays, *numbers: Sequence[int]) -> list[torch.Tensor]:
    """Lists of the host on the device, int64, in one copy that nobody waits for."""
    hosts = [np.array(each, dtype=np.int64) for each in numbers]
    return [arrays.tensor(each) for each in arrays.send(*hosts)]
