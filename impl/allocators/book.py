"""The bookkeeping of one pool: what is free, staged, parked and out, and the checks of values.

An allocator looks at what host data decides and asks its book for the rest. `Book` is what all
books share; its heirs raise faults of tensor values at the call, in the torch form. Ids here are
pages, or slots where a slot is a page. Spec: `spec/core.md` §3, §4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from impl import checks
from impl.allocators import recount
from impl.allocators.free_list import FreeList
from impl.allocators.states import FREE, NEVER, OWNED, STAGED, PageStates
from impl.allocators.stream import Stream
from impl.errors import TooMany
from impl.kernels import arrays
from impl.kernels.arrays import Array
from impl.rows import ReqToTokenPool


class Book(ABC):
    """State of a pool of `num_pages` ids; a faulty call changes none of it."""

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        *,
        device: torch.device,
        need_sort: bool,
        validate: bool,
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.device = device
        self.need_sort = need_sort
        self.validate = validate
        self.arrays = arrays.of(device)
        self.stream = Stream(device) if device.type == "cuda" else None
        self.states = PageStates(num_pages, device, self.arrays)
        self.free_list = self._new_list()
        self.forget_group()
        #: the row table that holders belong to, once a row call has named it
        self.table: ReqToTokenPool | None = None

    @abstractmethod
    def _new_list(self) -> FreeList:
        """The free list of this family."""

    # Faults that reach the host later

    def enter(self) -> None:
        """Before every public call: refuses foreign streams, raises what has been deferred."""
        if self.stream is not None:
            self.stream.require()

    def check(self) -> None:
        """Wait for all calls so far and raise what they deferred: nothing in the torch form."""
        self.enter()

    def recover(self) -> None:
        """Back to the state just before a call whose fault was deferred."""
        self.enter()

    # Counts

    @property
    def num_owned(self) -> int:
        """Ids that are out."""
        return (
            self.num_pages - self.free_list.num_free - self.free_list.num_staged - self.num_parked
        )

    def fits(self, num_pages: int, bound: int) -> bool:
        """Whether `num_pages` are free, after the merge that a `bound` beyond them asks for."""
        if self.free_list.num_staged and bound > self.free_list.num_free:
            self.merge()
        return num_pages <= self.free_list.num_free

    def require_out(self, call: str, count: int) -> None:
        """`TooMany` unless `count` ids can be out."""
        checks.raise_first([self.too_many(call, count)])

    def too_many(self, call: str, count: int) -> TooMany | None:
        """What is wrong with giving `count` ids back, if anything."""
        if count <= self.num_owned:
            return None
        what = "pages" if self.page_size > 1 else "ids"
        return TooMany(
            f"{call}: {count} {what} given back, {self.num_owned} are out. Free each once."
        )

    # Moves of ids that are known to be right

    def take(self, num_pages: int) -> Array:
        """The first `num_pages` free ids, owned from now on; may be a view until the next call."""
        pages = self.free_list.take(num_pages)
        if num_pages:
            self.states.mark(pages, OWNED)
        return pages

    def release(self, pages: Array) -> None:
        """Give back or stage `pages`, which are out or parked."""
        # states first: unchecked ids outside the pool fail there, before the list is touched
        if self.need_sort:
            self.states.mark(pages, STAGED)
            self.free_list.stage(pages)
        else:
            self.states.mark(pages, FREE)
            self.free_list.give(pages)

    def merge(self) -> None:
        """Sort staged ids in; nothing if none are staged. O(pool)."""
        if self.free_list.num_staged:
            self.states.mark(self.free_list.staged(), FREE)
            self.free_list.merge()

    # Groups

    def forget_group(self) -> None:
        """No group is open."""
        self.group_is_open = False
        self.num_parked = 0
        self.parked_slots: list[Array] = []
        self.parked_pages: list[Array] = []

    @abstractmethod
    def release_parked(self) -> None:
        """Give back or stage everything parked, in this family's order."""

    # Everything

    def clear(self) -> None:
        """The initial state. O(pool)."""
        self.free_list.reset()
        self.states.reset()
        self.forget_group()
        self.table = None

    def all_free(self) -> torch.Tensor:
        """Free then staged ids, storage of their own."""
        return self.arrays.tensor(
            self.arrays.joined((self.free_list.free(), self.free_list.staged()))
        )

    def snapshot(self) -> dict[str, Any]:
        """The bookkeeping as plain Python: free, staged, group, parked, holders, issued, bound."""
        states = self.states.by_page.tolist()
        owned = [page for page, state in enumerate(states) if state == OWNED]
        holders: dict[int, Any] = dict.fromkeys(owned, "anonymous")
        for page, holder in self.states.all_holders().items():
            if page in holders:
                holders[page] = tuple(holder)
        return {
            "free": self.free_list.free().tolist(),
            "staged": self.free_list.staged().tolist(),
            "group": self.group_is_open,
            "parked_slots": [slots.tolist() for slots in self.parked_slots],
            "parked_pages": [pages.tolist() for pages in self.parked_pages],
            "holders": holders,
            "issued": [page for page, state in enumerate(states) if state > NEVER],
            "bound": self.table is not None,
        }

    def audit(self) -> list[str]:
        """Everything counted again: violated invariants, [] when healthy."""
        return recount.audit(
            states=self.states.by_page.tolist(),
            free=self.free_list.free().tolist(),
            staged=self.free_list.staged().tolist(),
            parked_slots=[slots.tolist() for slots in self.parked_slots],
            parked_pages=[pages.tolist() for pages in self.parked_pages],
            page_size=self.page_size,
            num_parked=self.num_parked,
            holders=self.states.all_holders(),
        )


def joined(arrays_of: arrays.Arrays, several: Sequence[Array]) -> Array:
    """One array of `several`; the only one as it is."""
    return several[0] if len(several) == 1 else arrays_of.joined(several)
