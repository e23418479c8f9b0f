"""The token allocator: a page is one slot, frees go to the end of the list (`spec/core.md` §3)."""

from collections.abc import Iterable
from typing import Any

from reference.allocators.base import BaseTokenToKVPoolAllocator
from reference.allocators.segments import Ids, Segments, read_segments
from reference.refusal import Fault, Refused, as_int, refuse_smallest
from reference.rows import ReqToTokenPool


class TokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    """Slots `1..size`, first freed is reused last."""

    def __init__(self, size: int, *, need_sort: bool = False, kvcache: Any = None) -> None:
        super().__init__(size, 1, need_sort=need_sort, kvcache=kvcache)

    def alloc(self, need_size: int) -> list[int] | None:
        """The first `need_size` slots of the free list."""
        need = as_int(need_size)
        if need is None:
            raise Refused("WrongDtype")
        if need < 0:
            raise Refused("NegativeSize")
        self._merge_if_short(need)
        if need > len(self.free_pages):
            return None
        return self._take(need)

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
        """Refused: there are no half-filled pages to go on with (§3)."""
        raise Refused("Unsupported")

    def alloc_decode(self, seq_lens: Ids, seq_lens_cpu: Ids, last_loc: Ids) -> list[int] | None:
        """Refused, like `alloc_extend`."""
        raise Refused("Unsupported")

    def alloc_extend_rows(
        self,
        table: ReqToTokenPool,
        rows: Ids,
        rows_cpu: Ids,
        prefix_lens: Ids,
        prefix_lens_cpu: Ids,
        seq_lens: Ids,
        seq_lens_cpu: Ids,
        extend_num_tokens: int,
    ) -> list[int] | None:
        """Refused, like `alloc_extend`."""
        raise Refused("Unsupported")

    def alloc_decode_rows(
        self, table: ReqToTokenPool, rows: Ids, rows_cpu: Ids, seq_lens: Ids, seq_lens_cpu: Ids
    ) -> list[int] | None:
        """Refused, like `alloc_extend`."""
        raise Refused("Unsupported")

    def free_rows_segment(
        self, handle: tuple[int, int], start: int, end: int, *, table: ReqToTokenPool | None = None
    ) -> None:
        """Refused: no slot here came through a table."""
        raise Refused("Unsupported")

    def free(self, free_index: Ids) -> None:
        """To the end of the list in the order given; no id may be in it twice (§3)."""
        self._free(list(free_index), [])

    def free_page_ids(self, page_ids: Ids) -> None:
        """The same as `free`: a page is a slot."""
        self.free(page_ids)

    def free_segments(self, segments: Segments) -> None:
        """The slots of all segments, in the order given, as one `free`."""
        parts, faults = read_segments(segments, page_size=1)
        self._free([slot for slots in parts for slot in slots], faults)

    def free_full_segments(self, segments: Segments) -> None:
        """The same as `free_segments`: every free is a plain free."""
        self.free_segments(segments)

    def _free(self, slots: list[int], faults: Iterable[Fault]) -> None:
        if not self.owned_pages.issuperset(slots) or len(set(slots)) < len(slots) or faults:
            self._refuse(slots, list(faults))
        if not slots:
            return
        self._disown(slots)
        if self.group_open:
            self.parked_slots.append(slots)
            self.slot_parked_pages.update(slots)
        elif self.need_sort:
            self.staged_pages += slots
        else:
            self.free_pages += slots

    def _refuse(self, slots: list[int], faults: list[Fault]) -> None:
        # Counts come before values (DESIGN, order of tests). Repeated ids count once, ids that the
        # open group has parked don't count, exactly as for pages in the paged allocator.
        if len(set(slots) - self.slot_parked_pages) > len(self.owned_pages):
            faults.append(("TooMany", 0))
        refuse_smallest(faults)
        refuse_smallest(self._page_list_faults(slots, range(len(slots))))

    def _release_parked(self) -> None:
        freed = [slot for slots in self.parked_slots for slot in slots]
        if self.need_sort:
            self.staged_pages += freed
        else:
            self.free_pages += freed
