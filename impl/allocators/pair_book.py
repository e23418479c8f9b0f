"""The bookkeeping of a full side and a window side in lockstep.

Every call is tested on the full side as that side would, then for windows; only then does either
side change, and nothing is sorted in for a call that fails. Spec: `spec/swa_unified.md` §2.4 to
§2.7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Generic, TypeVar

import torch

from impl.allocators import faults
from impl.allocators.book import Book
from impl.allocators.window_map import WindowMap
from impl.errors import Fault, NoWindowPeer, PoolError, StillOwned, refuse

ADVICE: dict[type[PoolError], str] = {
    **faults.ADVICE,
    NoWindowPeer: "Slots whose window has gone back go back by free_full",
    StillOwned: "Free the window or clear its mapping first",
}


class Gives(Enum):
    """What a call gives back."""

    BOTH = auto()
    WINDOWS = auto()
    FULL = auto()


B = TypeVar("B", bound=Book)


class PairBook(ABC, Generic[B]):
    """Books of both sides and the map between them; `rings`: windows are rings of rows instead."""

    def __init__(self, full: B, swa: B, windows: WindowMap, *, rings: bool) -> None:
        self.full, self.swa, self.windows = full, swa, windows
        self.arrays, self.page_size = full.arrays, full.page_size
        self.validate = full.validate
        self.rings = rings

    def fits(self, num_full: int, num_windows: int) -> bool:
        """Whether both sides have so many pages, staged ones counted; nothing is sorted in."""
        return num_full <= _available(self.full) and (
            self.rings or num_windows <= _available(self.swa)
        )

    @abstractmethod
    def free_slots(self, call: str, slots: torch.Tensor, gives: Gives) -> None:
        """Give back the pages of any slots, at least one."""

    @abstractmethod
    def free_pages(self, page_ids: torch.Tensor) -> None:
        """Give back exactly these pages and their windows, at least one."""

    @abstractmethod
    def free_segments(self, call: str, segments: Sequence[torch.Tensor], gives: Gives) -> None:
        """Give back the pages of segments, none of them empty."""

    @abstractmethod
    def release_parked(self) -> None:
        """Give back the windows that the group has parked."""

    @abstractmethod
    def named_again(self) -> list[int]:
        """Full pages without windows that slot frees of the open group may name again."""

    def forget_group(self) -> None:
        """The window side's group is closed."""
        self.swa.forget_group()

    def refuse_unpaired(self, call: str, named: Iterable[tuple[int, int]]) -> None:
        """Raise for those of the pages, as (index, page), that have no window."""
        found = [
            Fault(NoWindowPeer, at, f"page {page} has no window")
            for (at, page), live in self._with_truth(named)
            if not live
        ]
        refuse(call, found, ADVICE)

    def refuse_paired(self, call: str, named: Iterable[tuple[int, int]]) -> None:
        """Raise for those of the pages, as (index, page), that have a window."""
        found = [
            Fault(StillOwned, at, f"page {page} has a window")
            for (at, page), live in self._with_truth(named)
            if live
        ]
        refuse(call, found, ADVICE)

    def _with_truth(
        self, named: Iterable[tuple[int, int]]
    ) -> Iterable[tuple[tuple[int, int], bool]]:
        items = list(named)
        pages = torch.tensor([page for _, page in items], dtype=torch.int64)
        live = self.windows.all_live(self.arrays.view(pages.to(self.full.device)))
        return zip(items, live.tolist(), strict=True)


def _available(book: Book) -> int:
    return book.free_list.num_free + book.free_list.num_staged
