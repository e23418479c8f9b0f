"""Free groups: a stretch in which frees are parked (`spec/core.md` §4)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from reference.refusal import Refused


class FreeGroups(ABC):
    """What an open group has parked, and the protocol around it."""

    group_open: bool
    parked_slots: list[list[int]]  # one list per slot free, as given
    parked_pages: list[list[int]]  # one list per page-id free or segment
    slot_parked_pages: set[int]  # the pages of parked_slots

    @abstractmethod
    def _release_parked(self) -> None:
        """Put what the group has parked where frees go."""

    def free_group_begin(self) -> None:
        """From here on frees are parked. Not nestable: an inner end would end the outer one."""
        if self.group_open:
            raise Refused("GroupOpen")
        self.group_open = True

    def free_group_end(self) -> None:
        """Release everything parked, together."""
        if not self.group_open:
            raise Refused("GroupNotOpen")
        self._release_parked()
        self._close_group()

    @contextmanager
    def free_group(self) -> Iterator[None]:
        """A group that ends also when its body raises, and quietly if a `clear()` has closed it."""
        self.free_group_begin()
        try:
            yield
        finally:
            if self.group_open:
                self.free_group_end()

    def _close_group(self) -> None:
        self.group_open = False
        self.parked_slots = []
        self.parked_pages = []
        self.slot_parked_pages = set()
