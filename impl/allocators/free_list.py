"""Which ids are free, in which order, and which are staged: fixed arrays, O(k) for k ids.

`PageStack` gives and takes at the front, `SlotRing` takes at the front and gives at the back.
Ids staged wait in a second array until a merge sorts everything (O(pool), the only operation
besides `reset` that isn't O(k)). Ids are trusted: whoever calls has checked them and their
number. A kernel may move the ids instead; then `advance`, `grow` and `merged` keep the counts.
Ids go in and out as int64 arrays of the pool's device. Spec: `spec/core.md` §3, §4, §5
(structure of the free list).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch

from impl.kernels.arrays import Array, Arrays, Viewed


class FreeList(Viewed, ABC):
    """The staged half, which both have; free ids are the heirs' business."""

    _views: ClassVar[Mapping[str, str]] = {"_ids": "ids", "_staged": "staged_ids"}
    _ids: Array
    _staged: Array

    def __init__(
        self, num_ids: int, device: torch.device, arrays: Arrays, *, need_sort: bool
    ) -> None:
        self.num_ids = num_ids
        self.num_free = num_ids
        self.num_staged = 0
        self.ids = torch.empty(num_ids, dtype=torch.int64, device=device)
        # Without `need_sort` nothing is ever staged.
        self.staged_ids = torch.empty(num_ids if need_sort else 0, dtype=torch.int64, device=device)
        self._arrays = arrays
        self._view()
        self.reset()

    def reset(self) -> None:
        """Everything free, ascending; nothing staged. O(pool)."""
        torch.arange(1, self.num_ids + 1, out=self.ids)
        self.num_free = self.num_ids
        self.num_staged = 0

    @property
    @abstractmethod
    def begin(self) -> int:
        """Where in `ids` the first free id stands."""

    @abstractmethod
    def advance(self, count: int) -> None:
        """The first `count` ids are out."""

    def grow(self, count: int) -> None:
        """`count` ids stand at this list's end for returns."""
        self.num_free += count

    @property
    @abstractmethod
    def merged_begin(self) -> int:
        """Where in `ids` the free list begins once all that is staged is in it."""

    def merged(self) -> None:
        """All staged and free ids are the free list, from `merged_begin` on."""
        self.num_free += self.num_staged
        self.num_staged = 0

    def position(self) -> tuple[int, ...]:
        """The counts, for `restore`."""
        return (self.num_free, self.num_staged)

    def restore(self, position: tuple[int, ...]) -> None:
        """The counts as they were at `position`; ids moved by nobody since."""
        self.num_free, self.num_staged = position

    @abstractmethod
    def take(self, count: int) -> Array:
        """Remove the first `count` ids; the result may be a view, valid until the next call."""

    @abstractmethod
    def give(self, ids: Array) -> None:
        """Put `ids` back, in the order given, at this list's end for returns."""

    @abstractmethod
    def free(self) -> Array:
        """The free ids in order; may be a view, valid until the next call."""

    @abstractmethod
    def _rewrite(self, ids: Array) -> None:
        """Make `ids` the whole free list."""

    def stage(self, ids: Array) -> None:
        """Put `ids` behind what is staged."""
        end = self.num_staged + ids.shape[0]
        self._staged[self.num_staged : end] = ids
        self.num_staged = end

    def staged(self) -> Array:
        """The staged ids in order: a view, valid until the next call."""
        return self._staged[: self.num_staged]

    def merge(self) -> None:
        """Sort staged and free ids together, ascending; nothing if none are staged. O(pool)."""
        if self.num_staged:
            both = self._arrays.joined((self.free(), self.staged()))
            self._rewrite(self._arrays.sorted(both))
            self.num_staged = 0


class PageStack(FreeList):
    """`_ids[head:]` is free. What is out or staged equals `head`, so what comes back fits."""

    @property
    def begin(self) -> int:
        return self.num_ids - self.num_free

    @property
    def merged_begin(self) -> int:
        return self.num_ids - self.num_free - self.num_staged

    def advance(self, count: int) -> None:
        self.num_free -= count

    def take(self, count: int) -> Array:
        head = self.num_ids - self.num_free
        self.num_free -= count
        return self._ids[head : head + count]

    def give(self, ids: Array) -> None:
        head = self.num_ids - self.num_free
        count = ids.shape[0]
        self._ids[head - count : head] = ids
        self.num_free += count

    def free(self) -> Array:
        return self._ids[self.num_ids - self.num_free :]

    def _rewrite(self, ids: Array) -> None:
        self.num_free = ids.shape[0]
        self._ids[self.num_ids - self.num_free :] = ids


class SlotRing(FreeList):
    """`num_free` ids from `_start` on, around the end of an array of exactly `num_ids`."""

    def reset(self) -> None:
        super().reset()
        self._start = 0

    @property
    def begin(self) -> int:
        return self._start

    @property
    def end(self) -> int:
        """Where in `ids` the next id given back goes."""
        end = self._start + self.num_free
        return end - self.num_ids if end >= self.num_ids else end

    def advance(self, count: int) -> None:
        self.num_free -= count
        start = self._start + count
        self._start = start - self.num_ids if start >= self.num_ids else start

    @property
    def merged_begin(self) -> int:
        return 0

    def merged(self) -> None:
        super().merged()
        self._start = 0

    def position(self) -> tuple[int, ...]:
        return (*super().position(), self._start)

    def restore(self, position: tuple[int, ...]) -> None:
        self.num_free, self.num_staged, self._start = position

    def take(self, count: int) -> Array:
        taken = self._span(count)
        self.advance(count)
        return taken

    def give(self, ids: Array) -> None:
        count, begin = ids.shape[0], self.end
        self.num_free += count
        end = begin + count
        if end <= self.num_ids:
            self._ids[begin:end] = ids
            return
        upper = self.num_ids - begin
        self._ids[begin:] = ids[:upper]
        self._ids[: count - upper] = ids[upper:]

    def free(self) -> Array:
        return self._span(self.num_free)

    def _span(self, count: int) -> Array:
        end = self._start + count
        if end <= self.num_ids:
            return self._ids[self._start : end]
        return self._arrays.joined((self._ids[self._start :], self._ids[: end - self.num_ids]))

    def _rewrite(self, ids: Array) -> None:
        self._start = 0
        self.num_free = ids.shape[0]
        self._ids[: self.num_free] = ids
