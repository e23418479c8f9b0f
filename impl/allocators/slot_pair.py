"""The pair where a page is a slot. Spec: `spec/swa_unified.md` §2.4, §2.5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import torch

from impl.allocators.pair_book import Gives, PairBook
from impl.allocators.slot_book import SlotBook
from impl.kernels.arrays import Array


class SlotPair(PairBook[SlotBook]):
    """Single slots; one that is named twice, in a call or in a group, is refused."""

    def take_slots(self, count: int) -> torch.Tensor:
        """The first `count` free slots, which fit on both sides, with as many window slots."""
        self.full.fits(count, bound=count)
        self.swa.fits(count, bound=count)
        slots = self.arrays.copy(self.full.take(count))
        windows = self.swa.take(count)
        self.windows.pair(slots, windows)
        self.windows.write(slots, windows)
        return self.arrays.tensor(slots)

    def free_slots(self, call: str, slots: torch.Tensor, gives: Gives) -> None:
        ids = self.arrays.ids(slots)
        peers = self.windows.peers(ids)
        if gives is Gives.FULL:
            if self.validate and not self.arrays.all_hold([peers == 0]):
                self._refuse(call, ids, self.refuse_paired)
            self.full.free_slots(call, slots)
            return
        if not self.validate:
            ids = self.arrays.distinct(ids[peers > 0])
            self.swa.require_out(call, ids.shape[0])
        elif not self.arrays.all_hold([peers > 0, self.arrays.once(ids)]):
            self._refuse(call, ids, self.refuse_unpaired)
        if gives is Gives.BOTH:
            self.full.free_slots(call, slots)
        self.swa.give_slots(self.windows.release(ids))

    def _refuse(self, call: str, ids: Array, refuse_by_windows: Callable[..., None]) -> NoReturn:
        self.full._refuse(call, ids)
        refuse_by_windows(call, enumerate(ids.tolist()))
        raise AssertionError(
            "slots that are out, once each, have the wrong windows or are no fault"
        )

    def free_pages(self, page_ids: torch.Tensor) -> None:
        self.free_slots("free_page_ids", page_ids, Gives.BOTH)

    def free_segments(self, call: str, segments: Sequence[torch.Tensor], gives: Gives) -> None:
        self.free_slots(call, torch.cat(tuple(segments)), gives)

    def release_parked(self) -> None:
        if self.swa.num_parked:
            self.swa.release_parked()

    def named_again(self) -> list[int]:
        return []
