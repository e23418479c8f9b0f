"""The pair with pages of several slots. Spec: `spec/swa_unified.md` §2.4 to §2.6, §2.8."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch

from impl.allocators.book import joined
from impl.allocators.page_book import Lens, PageBook
from impl.allocators.pair_book import Gives, PairBook
from impl.allocators.states import PARKED_SLOTS
from impl.allocators.window_map import WindowMap
from impl.kernels import decode, extend
from impl.kernels.arrays import Array, HostArray
from impl.kernels.decode import DecodePlan
from impl.kernels.extend import ExtendPlan

#: pages as (index, page), for an error
Named = Callable[[], Iterable[tuple[int, int]]]


class PagePair(PairBook[PageBook]):
    """Both sides page in step: a full page's slots have their windows at equal offsets."""

    def __init__(self, full: PageBook, swa: PageBook, windows: WindowMap, *, rings: bool) -> None:
        super().__init__(full, swa, windows, rings=rings)
        #: by full page, whether a slot free of the open group has released its window
        self.named = torch.zeros(full.num_pages + 2, dtype=torch.uint8, device=full.device)
        self._named_pages: list[Array] = []

    # Taking

    def nothing(self, bound: int) -> torch.Tensor:
        """What an empty batch gets; its `bound` may have the sides sort in what is staged."""
        for book in (self.full,) if self.rings else (self.full, self.swa):
            book.fits(0, bound)
        return self.arrays.tensor(self.arrays.empty(0))

    def extend(
        self, plan: ExtendPlan, lens: Sequence[Lens], last_loc: torch.Tensor, bound: int
    ) -> torch.Tensor:
        """Slots of a batch that fits on both sides; lengths as (prefix, seq)."""
        after_last = self._checked("alloc_extend", plan, lens, last_loc)
        growing = plan.each[extend.TOKENS] > 0
        after_window = self._after_windows("alloc_extend", plan.offsets, growing, after_last)
        slots, pages = self._place_extend(self.full, plan, after_last, bound)
        if not self.rings:
            windows, peers = self._place_extend(self.swa, plan, after_window, bound)
            self._write(slots, windows, pages, peers)
        return self.arrays.tensor(slots)

    def extend_tail(
        self, plan: ExtendPlan, lens: Sequence[Lens], last_loc: torch.Tensor, bound: int, tail: int
    ) -> torch.Tensor:
        """Slots of one request, of which the last `tail`, from a page border on, have windows."""
        after_last = self._checked("alloc_extend_swa_tail", plan, lens, last_loc)
        slots, pages = self._place_extend(self.full, plan, after_last, bound)
        if self.rings:
            return self.arrays.tensor(slots)
        head = plan.num_tokens - tail
        if plan.offsets[0] and head:
            # the page that goes on may still say something of slots that were dropped
            self.windows.forget(slots[:head], slots[:1] // self.page_size)
        if tail:
            of_tail = extend.plan(np.array([0]), np.array([tail]), self.page_size)
            assert of_tail is not None, "a tail is no negative length"
            tail_bound = tail // self.page_size + 2
            none = self.arrays.zeros(1)
            windows, peers = self._place_extend(self.swa, of_tail, none, tail_bound)
            self._write(slots[head:], windows, pages[plan.num_pages - of_tail.num_pages :], peers)
        return self.arrays.tensor(slots)

    def decode(self, plan: DecodePlan, seq_lens: Lens, last_loc: torch.Tensor) -> torch.Tensor:
        """One slot for each request of a batch that fits on both sides."""
        after_last = self._checked("alloc_decode", plan, [seq_lens], last_loc)
        after_window = self._after_windows("alloc_decode", plan.offsets, None, after_last)
        slots, pages = self._place_decode(self.full, plan, after_last)
        if not self.rings:
            windows, peers = self._place_decode(self.swa, plan, after_window)
            self._write(slots, windows, pages, peers)
        return self.arrays.tensor(slots)

    def _checked(
        self,
        call: str,
        plan: ExtendPlan | DecodePlan,
        lens: Sequence[Lens],
        last_loc: torch.Tensor,
    ) -> Array:
        """The slot after each request's last one; the full side has looked at everything."""
        after_last = self.arrays.ids(last_loc) + 1
        if self.validate and not self.full._batch_agrees(plan, lens, after_last):
            self.full._refuse_batch(call, lens, last_loc.tolist())
        return after_last

    def _after_windows(
        self, call: str, offsets: HostArray, growing: HostArray | None, after_last: Array
    ) -> Array:
        """The window slot after each request's last one where it goes on in a page, else 0.

        `growing` says which requests get any tokens; all if None. D2: a page whose window was
        released can't be gone on with.
        """
        after_window = self.arrays.zeros(offsets.shape[0])
        going_on = offsets > 0 if growing is None else (offsets > 0) & growing
        requests = going_on.nonzero()[0]
        if self.rings or not requests.shape[0]:
            return after_window
        at, sent_offsets = self.arrays.send(requests, offsets[requests])
        pages = after_last[at] // self.page_size
        peers = self.windows.peers(pages)
        if self.validate and not self.arrays.all_hold([peers > 0]):
            named = zip(requests.tolist(), pages.tolist(), strict=True)
            self.refuse_unpaired(call, named)
            raise AssertionError("a page without a window is refused")
        after_window[at] = peers * self.page_size + sent_offsets
        return after_window

    def _place_extend(
        self, book: PageBook, plan: ExtendPlan, after_last: Array, bound: int
    ) -> tuple[Array, Array]:
        """Slots and new pages on one side, which has them."""
        book.fits(plan.num_pages, bound)
        pages = book.take(plan.num_pages)
        return extend.place(self.arrays, plan, after_last, pages, self.page_size), pages

    def _place_decode(
        self, book: PageBook, plan: DecodePlan, after_last: Array
    ) -> tuple[Array, Array]:
        book.fits(plan.num_pages, bound=plan.prefix_lens.shape[0])
        pages = book.take(plan.num_pages)
        return decode.place(self.arrays, plan, after_last, pages, self.page_size), pages

    def _write(self, slots: Array, windows: Array, pages: Array, peers: Array) -> None:
        self.windows.pair(pages, peers)
        self.windows.write(slots, windows)

    # Giving back

    def free_slots(self, call: str, slots: torch.Tensor, gives: Gives) -> None:
        ids, piles = self.full.checked_slots(call, [slots])
        if not self.rings:
            if gives is Gives.FULL:
                self._require_unpaired(call, piles[0], lambda: self._by_slot(ids[0]))
            else:
                asked = partial(self._unnamed, ids[0])
                self._free_windows_of_slots(call, self._paired(call, piles[0], asked))
        if gives is not Gives.WINDOWS:
            self.full.give_slots(ids, piles)

    def free_pages(self, page_ids: torch.Tensor) -> None:
        pages = self.full.checked_pages(page_ids)
        if not self.rings:
            paired = self._paired("free_page_ids", pages, lambda: enumerate(pages.tolist()))
            self._free_windows("free_page_ids", paired, [paired.shape[0]])
        self.full.give_pages(pages, [pages.shape[0]])

    def free_segments(self, call: str, segments: Sequence[torch.Tensor], gives: Gives) -> None:
        slots = joined(self.arrays, [self.arrays.ids(each) for each in segments])
        pages, plan = self.full.checked_segments(call, slots, [each.shape[0] for each in segments])

        def named() -> Iterable[tuple[int, int]]:
            return zip(plan.firsts.tolist(), pages.tolist(), strict=True)

        if not self.rings:
            if gives is Gives.FULL:
                self._require_unpaired(call, pages, named)
            else:
                paired = self._paired(call, pages, named)
                whole = paired.shape[0] == pages.shape[0]
                self._free_windows(call, paired, plan.num_pages if whole else [paired.shape[0]])
        if gives is not Gives.WINDOWS:
            self.full.give_pages(pages, plan.num_pages)

    def _require_unpaired(self, call: str, pages: Array, named: Named) -> None:
        if self.validate and not self.arrays.all_hold([self.windows.peers(pages) == 0]):
            self.refuse_paired(call, named())
            raise AssertionError("a page with a window is refused")

    def _paired(self, call: str, pages: Array, named: Named) -> Array:
        """Those of `pages` that have windows: all, but for what a group has named before."""
        live = self.windows.all_live(pages)
        if self.arrays.all_hold([live]):
            return pages
        if self.validate:
            self.refuse_unpaired(call, named())
        return pages[live]

    def _free_windows(self, call: str, pages: Array, piles: Sequence[int]) -> None:
        """Give back the windows of paired pages, in their order."""
        self.swa.require_out(call, pages.shape[0])
        if pages.shape[0]:
            self.swa.give_pages(self.windows.release(pages), piles)

    def _free_windows_of_slots(self, call: str, pages: Array) -> None:
        """Give back the windows of paired pages, ascending; a group remembers the pages."""
        self.swa.require_out(call, pages.shape[0])
        if not pages.shape[0]:
            return
        if self.swa.group_is_open:
            self.arrays.view(self.named)[pages] = 1
            self._named_pages.append(pages)
        windows = self.arrays.sorted(self.windows.release(pages))
        self.swa.give_slots([windows * self.page_size], [windows])

    def _by_slot(self, ids: Array) -> list[tuple[int, int]]:
        return list(enumerate((ids // self.page_size).tolist()))

    def _unnamed(self, ids: Array) -> list[tuple[int, int]]:
        """Pages by slot, without those that a slot free of the group named: they count once."""
        pages = ids // self.page_size
        parked = self.full.states.look(pages) == PARKED_SLOTS
        asked = ((self.arrays.view(self.named)[pages] == 0) & ~parked).tolist()
        return [each for each, is_asked in zip(self._by_slot(ids), asked, strict=True) if is_asked]

    # Groups

    def release_parked(self) -> None:
        piles = []
        if self.swa.parked_pages:
            piles.append(self.arrays.joined(self.swa.parked_pages))
        if self.swa.slot_piles:
            piles.append(self.arrays.sorted(self.arrays.joined(self.swa.slot_piles)))
        for pile in piles:
            self.swa.release(pile)

    def named_again(self) -> list[int]:
        return [page for page, is_named in enumerate(self.named.tolist()) if is_named]

    def forget_group(self) -> None:
        super().forget_group()
        for pages in self._named_pages:
            self.arrays.view(self.named)[pages] = 0
        self._named_pages = []
