"""The paged allocator, one token at a time (`spec/core.md` §4).

`slot = page * page_size + offset`. A request goes on in its half-filled page, which only `last_loc`
knows, and then on pages from the head of the free list. Frees give back whole pages, to the front.
"""

from collections.abc import Iterable
from typing import Any

from reference.allocators.row_calls import RowCalls
from reference.allocators.segments import Ids, Segments, read_segments, segment_pages
from reference.refusal import Fault, Refused, as_int, refuse_smallest

Lengths = tuple[Ids, Ids, Ids, Ids, Ids]
"""Prefix and seq lengths of a batch, each as on the device and on the host; and `last_loc`."""


class PagedTokenToKVPoolAllocator(RowCalls):
    """Any page size from 1 on, powers of two or not."""

    def __init__(
        self, size: int, page_size: int, *, need_sort: bool = False, kvcache: Any = None
    ) -> None:
        super().__init__(size, page_size, need_sort=need_sort, kvcache=kvcache)

    # --- allocation ---

    def alloc(self, need_size: int) -> list[int] | None:
        """Whole pages from the head of the free list, slot by slot."""
        need = as_int(need_size)
        if need is None:
            raise Refused("WrongDtype")
        if need < 0:
            raise Refused("NegativeSize")
        if need % self.page_size != 0:
            raise Refused("NotPageMultiple")
        num_pages = need // self.page_size
        self._merge_if_short(num_pages)
        if num_pages > len(self.free_pages):
            return None
        slots = []
        for page in self._take(num_pages):
            for offset in range(self.page_size):
                slots.append(page * self.page_size + offset)
        return slots

    def alloc_extend(
        self,
        prefix_lens: Ids,
        prefix_lens_cpu: Ids,
        seq_lens: Ids,
        seq_lens_cpu: Ids,
        last_loc: Ids,
        extend_num_tokens: int,
        num_new_pages: int | None = None,
    ) -> list[int] | None:
        """Slots for positions `prefix .. seq - 1`, batch order, then position order."""
        lengths = (prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc)
        need_pages = self._extend_need(lengths, extend_num_tokens, num_new_pages)
        bound_pages = extend_num_tokens // self.page_size + len(last_loc) + 1
        return self._alloc_positions(lengths, need_pages, bound_pages)

    def _extend_need(
        self, lengths: Lengths, extend_num_tokens: int, num_new_pages: int | None
    ) -> int:
        """The pages that an extend needs; raises what its lengths and counts have wrong."""
        _, prefix_lens, _, seq_lens, _ = lengths
        if len({len(column) for column in lengths}) > 1:
            raise Refused("BadLengths")
        num_tokens = need_pages = 0
        for prefix, seq in zip(prefix_lens, seq_lens, strict=True):
            if prefix < 0 or seq < prefix:
                raise Refused("BadLengths")
            num_tokens += seq - prefix
            need_pages += self._pages_of(seq) - self._pages_of(prefix)
        _check_count(extend_num_tokens, num_tokens, num_new_pages, need_pages)
        return need_pages

    def alloc_decode(self, seq_lens: Ids, seq_lens_cpu: Ids, last_loc: Ids) -> list[int] | None:
        """One slot per request for position `seq - 1`: an extend by one, with a tighter bound."""
        lengths, need_pages = self._decode_need(seq_lens, seq_lens_cpu, last_loc)
        return self._alloc_positions(lengths, need_pages, bound_pages=len(last_loc))

    def _decode_need(self, seq_lens: Ids, seq_lens_cpu: Ids, last_loc: Ids) -> tuple[Lengths, int]:
        """A decode as an extend by one, and the pages it needs; raises what lengths have wrong."""
        if not len(seq_lens) == len(seq_lens_cpu) == len(last_loc):
            raise Refused("BadLengths")
        need_pages = 0
        for seq in seq_lens_cpu:
            if seq < 1:
                raise Refused("BadLengths")
            if (seq - 1) % self.page_size == 0:
                need_pages += 1
        before = [seq - 1 for seq in seq_lens]
        before_cpu = [seq - 1 for seq in seq_lens_cpu]
        return (before, before_cpu, seq_lens, seq_lens_cpu, last_loc), need_pages

    def _alloc_positions(
        self, lengths: Lengths, need_pages: int, bound_pages: int
    ) -> list[int] | None:
        # Capacity before values. The bound, not the exact need, decides whether staged pages are
        # sorted in, because the original can only afford the bound.
        self._merge_if_short(bound_pages)
        if need_pages > len(self.free_pages):
            return None
        refuse_smallest(self._length_faults(lengths))
        new_pages, page_size = iter(self._take(need_pages)), self.page_size
        _, prefix_lens, _, seq_lens, last_loc = lengths
        slots = []
        for prefix, seq, slot in zip(prefix_lens, seq_lens, last_loc, strict=True):
            for position in range(prefix, seq):
                if position % page_size == 0:
                    slot = next(new_pages) * page_size
                else:
                    slot += 1
                slots.append(slot)
        return slots

    def _length_faults(self, lengths: Lengths) -> list[Fault]:
        faults: list[Fault] = []
        continued: set[int] = set()  # half-filled pages that a request of this call goes on with
        for index, request in enumerate(zip(*lengths, strict=True)):
            prefix_on_device, prefix, seq_on_device, seq, last = request
            if prefix_on_device != prefix or seq_on_device != seq:
                faults.append(("BadLengths", index))
            offset = prefix % self.page_size
            if (last + 1) % self.page_size != offset or (prefix == 0 and last != -1):
                faults.append(("BadLastLoc", index))
            if offset == 0:
                continue
            page = last // self.page_size
            if page not in self.owned_pages:
                faults.append(("BadLastLoc", index))
            if seq > prefix:
                if page in continued:
                    faults.append(("Duplicate", index))
                continued.add(page)
        return faults

    # --- release ---

    def free(self, free_index: Ids) -> None:
        """The distinct pages of these slots, ascending. One slot of a page frees all of it."""
        self._free_slots([list(free_index)], [])

    def free_full_segments(self, segments: Segments) -> None:
        """A slot free for each segment; no page may be in two of them (§4a)."""
        parts, faults = read_segments(segments, self.page_size)
        self._free_slots(parts, faults)

    def free_page_ids(self, page_ids: Ids) -> None:
        """Exactly these pages, in the order given."""
        self._release(self._tested_pages(page_ids))

    def _tested_pages(self, page_ids: Ids) -> list[int]:
        """The pages that may be given back by their ids; raises what is wrong with them."""
        pages = list(page_ids)
        if len(pages) > len(self.owned_pages):
            raise Refused("TooMany")
        refuse_smallest(self._page_list_faults(pages, range(len(pages))))
        return pages

    def free_segments(self, segments: Segments) -> None:
        """Every `page_size`-th slot names a page; each segment goes in front of earlier ones."""
        pages, _ = self._tested_segments(segments)
        for segment in pages:
            self._release(segment)

    def _tested_segments(self, segments: Segments) -> tuple[list[list[int]], list[int]]:
        """The pages of each segment, and where each is named; raises what is wrong with them."""
        parts, faults = read_segments(segments, self.page_size)
        if sum(self._pages_of(len(slots)) for slots in parts) > len(self.owned_pages):
            faults.append(("TooMany", 0))
        refuse_smallest(faults)
        pages, indices, faults = segment_pages(parts, self.page_size)
        named = [page for segment in pages for page in segment]
        refuse_smallest(faults + self._page_list_faults(named, indices))
        return pages, indices

    def _free_slots(self, parts: list[list[int]], faults: list[Fault]) -> None:
        pages = self._tested_slots(parts, faults)
        for slots, named in zip(parts, pages, strict=True):
            if not self.group_open:
                self._release(sorted(named))
            elif slots:
                self._disown(named)
                self.slot_parked_pages |= named
                self.parked_slots.append(slots)

    def _tested_slots(self, parts: list[list[int]], faults: list[Fault]) -> list[set[int]]:
        """The pages of each part of a slot free; raises what is wrong with them."""
        pages = [{slot // self.page_size for slot in slots} for slots in parts]
        # A page that a slot free of the open group has parked may be named again (§4).
        returned = set().union(*pages) - self.slot_parked_pages
        if len(returned) > len(self.owned_pages):
            faults.append(("TooMany", 0))
        refuse_smallest(faults)
        # One part of owned pages has no fault: this spares the common free a look at every slot.
        if len(parts) > 1 or not returned <= self.owned_pages:
            refuse_smallest(self._slot_faults(parts))
        return pages

    def _slot_faults(self, parts: list[list[int]]) -> Iterable[Fault]:
        index = 0
        pages_before: set[int] = set()  # those of earlier segments
        for slots in parts:
            pages_here: set[int] = set()
            for slot in slots:
                page = slot // self.page_size
                kind = self._page_fault(page)
                if kind is not None and page not in self.slot_parked_pages:
                    yield kind, index
                if page in pages_before:
                    yield "Duplicate", index
                pages_here.add(page)
                index += 1
            pages_before |= pages_here

    def _release(self, pages: list[int]) -> None:
        self._disown(pages)
        if self.group_open:
            if pages:
                self.parked_pages.append(pages)
        else:
            self._put_back(pages)

    def _put_back(self, pages: list[int]) -> None:
        if self.need_sort:
            self.staged_pages += pages
        else:
            self.free_pages[:0] = pages

    def _release_parked(self) -> None:
        page_pile = [page for pages in self.parked_pages for page in pages]
        slot_pile = sorted(self.slot_parked_pages)
        # Without need_sort what is put back last comes first: page pile, slot pile, old list (§4).
        self._put_back(slot_pile)
        self._put_back(page_pile)


def _check_count(
    extend_num_tokens: int, num_tokens: int, num_new_pages: int | None, need_pages: int
) -> None:
    """The counts that the caller states must be exact; one that isn't an int can't be compared."""
    stated_tokens, stated_pages = as_int(extend_num_tokens), as_int(num_new_pages)
    if stated_tokens is not None and stated_tokens != num_tokens:
        raise Refused("BadLengths")
    if stated_pages is not None and stated_pages != need_pages:
        raise Refused("BadLengths")
    if stated_tokens is None or (num_new_pages is not None and stated_pages is None):
        raise Refused("WrongDtype")
