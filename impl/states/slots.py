"""The state slot allocator. Spec: `spec/pools_states_sizing.md` §2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from impl import checks
from impl.errors import GroupNotOpen, GroupOpen
from impl.kernels import arrays
from impl.states.slot_book import StateSlotBook, sent


class MambaSlotAllocator:
    """Slots 1..size, taken from the head of the free list and given back at its tail.

    `size` in slots; results are int64 on `device`. Slots carry no generation: one that was freed
    and issued again can't be told from one's own. Raises `NegativeSize`, `OutOfRange`,
    `WrongDtype`. O(size). Spec: §2.
    """

    def __init__(self, size: int, *, device: torch.device | str) -> None:
        self.size = checks.pool_size(size)
        # A tensor knows the index that a bare "cuda" leaves open.
        self.device = torch.empty((), device=device).device
        self._arrays = arrays.of(self.device)
        #: what is free and what is out; the row pool of hybrid models works on it as well
        self.book = StateSlotBook(self.size)

    def clear(self) -> None:
        """All slots free, ascending; an open group is dropped with what it parked. O(size). §2."""
        self.book.clear()

    def available_size(self) -> int:
        """Slots in the free list; those that a group parked aren't. O(1). Spec: §2."""
        return self.book.num_free

    def schedulable_available_size(self) -> int:
        """What a scheduler may plan with: on a static pool `available_size`. O(1). Spec: §2."""
        return self.available_size()

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """The first `need_size` free slots, int64 [need_size]; None when short.

        Inside a group one slot alone is the next parked one, as long as there is one. Raises
        `NegativeSize`, `WrongDtype`. O(need_size). Spec: §2.
        """
        taken = self.book.take_each([checks.host_size(need_size, "need_size")])
        return None if taken is None else sent(self._arrays, taken)[0]

    def free(self, free_index: torch.Tensor) -> None:
        """Put `free_index`, int32 or int64 [k], at the tail in the order given.

        Reads the ids back from the device. Raises `TooMany`, `OutOfRange`, `Reserved`,
        `NotOwned`, `DoubleFree`, `Duplicate`, `WrongDtype`, `WrongDevice`, `WrongShape`; then
        nothing is freed. O(k). Spec: §2.
        """
        checks.require_ids(free_index, "free_index", self.device)
        self.book.release("free", free_index.tolist())

    def alloc_group_begin(self, num_reqs: int) -> None:
        """Park the first `num_reqs` slots for single allocations until `alloc_group_end`.

        When short nothing is parked, and the group is open all the same. Raises `NegativeSize`,
        `GroupOpen` when nested, `WrongDtype`. O(num_reqs). Spec: §2.
        """
        count = checks.host_size(num_reqs, "num_reqs")
        if self.book.parked is not None:
            raise GroupOpen("alloc_group_begin: a group is open already. End it first.")
        self.book.parked = self.book.first(count) if count <= self.book.num_free else []

    def alloc_group_end(self) -> None:
        """Put what is still parked at the tail. `GroupNotOpen` without a group. O(parked). §2."""
        if self.book.parked is None:
            raise GroupNotOpen("alloc_group_end: no group is open. Begin one first.")
        self.book.append(self.book.parked)
        self.book.parked = None

    @contextmanager
    def alloc_group(self, num_reqs: int) -> Iterator[None]:
        """`alloc_group_begin`, and `alloc_group_end` however the body ends. Spec: §2."""
        self.alloc_group_begin(num_reqs)
        try:
            yield
        finally:
            # `clear` inside the body has closed it.
            if self.book.parked is not None:
                self.alloc_group_end()

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping as plain Python: size, free, group, parked, owned, issued."""
        return self.book.snapshot()

    def audit(self) -> list[str]:
        """Recount everything from scratch: violated invariants, [] when healthy. O(size)."""
        return self.book.audit()
