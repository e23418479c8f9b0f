"""The book of the token allocator in the torch form: an id is a slot. Spec: `spec/core.md` §3."""

from __future__ import annotations

import torch

from impl.allocators import faults
from impl.allocators.book import Book
from impl.allocators.free_list import FreeList, SlotRing
from impl.allocators.states import PARKED_SLOTS
from impl.errors import refuse
from impl.kernels.arrays import Array


class SlotBook(Book):
    """Slots in a ring; a slot is free, staged, parked or out on its own."""

    def _new_list(self) -> FreeList:
        return SlotRing(self.num_pages, self.device, self.arrays, need_sort=self.need_sort)

    def take_slots(self, count: int) -> torch.Tensor:
        """The first `count` free slots."""
        return self.arrays.tensor(self.arrays.copy(self.take(count)))

    def free_slots(self, call: str, slots: torch.Tensor) -> None:
        """Free or park exactly these slots, at least one."""
        ids = self.arrays.ids(slots)
        if ids.shape[0] > self.num_owned or (
            self.validate
            and not self.arrays.all_hold([self.states.owned(ids), self.arrays.once(ids)])
        ):
            self._refuse(call, ids)
        self.give_slots(ids)

    def give_slots(self, ids: Array) -> None:
        """Free or park checked slots."""
        if self.group_is_open:
            self.states.mark(ids, PARKED_SLOTS)
            self.num_parked += ids.shape[0]
            self.parked_slots.append(self.arrays.copy(ids))
        else:
            self.release(ids)

    def _refuse(self, call: str, ids: Array) -> None:
        """Name the smallest fault of `ids`, of which not all are out, or some are twice."""
        named, states = ids.tolist(), self.states.look(ids).tolist()
        new = {slot for slot, state in zip(named, states, strict=True) if state != PARKED_SLOTS}
        # Unchecked values may repeat ids; still no more may come back than are out.
        self.require_out(call, len(new) if self.validate else len(named))
        refuse(call, faults.of_pages(enumerate(named), states, self.num_pages), faults.ADVICE)

    def release_parked(self) -> None:
        self.release(self.arrays.joined(self.parked_slots))
