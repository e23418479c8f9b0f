"""What every token allocator shares: state, groups, sizes, audit (`spec/core.md` §3, §4, §4a).

A page (in the token allocator: a slot) is free, staged, parked (freed in the open group) or owned.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from reference.allocators.forwarding import KVCacheForwarding
from reference.allocators.groups import FreeGroups
from reference.allocators.segments import Ids, Segments
from reference.allocators.sizes import size_faults
from reference.audit import partition_faults
from reference.refusal import Fault, as_int, refuse_smallest
from reference.rows import Handle, ReqToTokenPool


class BaseTokenToKVPoolAllocator(KVCacheForwarding, FreeGroups):
    """`size` is in tokens; what it has beyond whole pages is never issued (§4), nor is page 0."""

    free_pages: list[int]  # in the order in which they are handed out
    staged_pages: list[int]  # freed, waiting to be sorted in
    owned_pages: set[int]
    issued_pages: set[int]  # since the last clear: tells DoubleFree from NotOwned
    holder_of: dict[int, Handle]  # owned pages that came through the row calls; others: anonymous
    row_table: ReqToTokenPool | None  # whose rows the holders name

    def __init__(
        self, size: int, page_size: int, *, need_sort: bool = False, kvcache: Any = None
    ) -> None:
        faults = size_faults(size, page_size)
        if as_int(page_size) is None:
            faults.append(("WrongDtype", 0))
        elif page_size < 1:
            faults.append(("NegativeSize", 0))
        refuse_smallest(faults)
        self.size = size
        self.page_size = page_size
        self.need_sort = need_sort
        super().__init__(kvcache)
        self.clear()

    def clear(self) -> None:
        """The initial state: everything free and in order, nothing issued, no group (§4)."""
        self.num_pages = self.size // self.page_size
        self.free_pages = list(range(1, self.num_pages + 1))
        self.staged_pages = []
        self.owned_pages = set()
        self.issued_pages = set()
        self.holder_of = {}
        self.row_table = None
        self._close_group()

    def resize(self, config: Any) -> None:
        """Take `config.max_total_num_tokens` as size, and clear; refused while pages are owned."""
        size = getattr(config, "max_total_num_tokens", None)
        faults = size_faults(size, self.page_size)
        if self.group_open:
            faults.append(("GroupOpen", 0))
        if self.owned_pages:
            faults.append(("StillOwned", 0))
        refuse_smallest(faults)
        self.size = int(size)  # type: ignore[arg-type]  # an int, or it was refused
        self.clear()

    # --- allocation and release: the families differ ---

    @abstractmethod
    def alloc(self, need_size: int) -> list[int] | None:
        """`need_size` slots from the head of the free list, or None if there are too few."""

    @abstractmethod
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
        """Slots for positions `prefix .. seq - 1` of every request."""

    @abstractmethod
    def alloc_decode(self, seq_lens: Ids, seq_lens_cpu: Ids, last_loc: Ids) -> list[int] | None:
        """One slot for every request, for position `seq - 1`."""

    @abstractmethod
    def free(self, free_index: Ids) -> None:
        """Give back the pages of these slots."""

    @abstractmethod
    def free_page_ids(self, page_ids: Ids) -> None:
        """Give back exactly these pages, in this order."""

    @abstractmethod
    def free_segments(self, segments: Segments) -> None:
        """Give back runs of consecutive positions of one request, as (slots, start position)."""

    @abstractmethod
    def free_full_segments(self, segments: Segments) -> None:
        """Give back runs of positions as slot frees do; their starts are tested alike (§4a)."""

    @abstractmethod
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
        """`alloc_extend` that reads `last_loc` from the table and writes the new slots into it."""

    @abstractmethod
    def alloc_decode_rows(
        self, table: ReqToTokenPool, rows: Ids, rows_cpu: Ids, seq_lens: Ids, seq_lens_cpu: Ids
    ) -> list[int] | None:
        """`alloc_decode`, through the table."""

    @abstractmethod
    def free_rows_segment(
        self, handle: tuple[int, int], start: int, end: int, *, table: ReqToTokenPool | None = None
    ) -> None:
        """Give back the pages of these positions of a row."""

    def free_full(self, free_index: Ids) -> None:
        """On a single pool the same as `free` (§4a)."""
        self.free(free_index)

    def free_segment(self, free_index: Ids, *, start_pos: int) -> None:
        """`free_segments` with one segment."""
        self.free_segments([(free_index, start_pos)])

    def free_full_segment(self, free_index: Ids, *, start_pos: int) -> None:
        """`free_full_segments` with one segment."""
        self.free_full_segments([(free_index, start_pos)])

    # --- sorting and sizes ---

    def merge_and_sort_free(self) -> None:
        """Sort the staged pages in. With nothing staged it doesn't even sort (§4)."""
        if self.staged_pages:
            self.free_pages = sorted(self.free_pages + self.staged_pages)
            self.staged_pages = []

    def _merge_if_short(self, bound_pages: int) -> None:
        """The one effect of a call that then returns None or meets a value fault (§4)."""
        if bound_pages > len(self.free_pages):
            self.merge_and_sort_free()

    def available_size(self) -> int:
        """Slots that are free or staged; parked ones are neither."""
        return (len(self.free_pages) + len(self.staged_pages)) * self.page_size

    @property
    def size_full(self) -> int:
        """On a single pool the size."""
        return self.size

    def get_all_free_pages(self) -> list[int]:
        """Free pages, then staged ones."""
        return self.free_pages + self.staged_pages

    # --- inspection ---

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping: allocators with equal snapshots answer every later call alike."""
        return {
            "size": self.size,
            "page_size": self.page_size,
            "free": list(self.free_pages),
            "staged": list(self.staged_pages),
            "group": self.group_open,
            "parked_slots": [list(slots) for slots in self.parked_slots],
            "parked_pages": [list(pages) for pages in self.parked_pages],
            "holders": {p: self.holder_of.get(p, "anonymous") for p in sorted(self.owned_pages)},
            "bound": self.row_table is not None,
            "issued": sorted(self.issued_pages),
        }

    def audit(self) -> list[str]:
        """Recount everything from scratch: the invariants of `bugs.md` that are broken."""
        parked = {slot // self.page_size for slots in self.parked_slots for slot in slots}
        listed = self.free_pages + self.staged_pages + sorted(parked)
        for pages in self.parked_pages:
            listed += pages
        faults = partition_faults("page", listed, self.owned_pages, self.num_pages)
        if not self.owned_pages <= self.issued_pages <= set(range(1, self.num_pages + 1)):
            faults.append("I2: a page is owned that was never issued, or issued that isn't one")
        if not self.owned_pages.issuperset(self.holder_of):
            faults.append("I34: a page that isn't owned has a holder")
        if self.holder_of and self.row_table is None:
            faults.append("I28: a page is held by a row of no table")
        nothing_parked = not parked and not self.parked_pages
        if parked != self.slot_parked_pages or not (self.group_open or nothing_parked):
            faults.append("I21: what is parked disagrees with the group")
        return faults

    # --- tests that the families share ---

    def _take(self, num_pages: int) -> list[int]:
        """The first pages of the free list, now owned."""
        pages = self.free_pages[:num_pages]
        del self.free_pages[:num_pages]
        self.owned_pages.update(pages)
        self.issued_pages.update(pages)
        return pages

    def _disown(self, pages: Iterable[int]) -> None:
        """These pages are nobody's: their holders are forgotten too."""
        for page in pages:
            self.owned_pages.discard(page)
            self.holder_of.pop(page, None)

    def _page_fault(self, page: int) -> str | None:
        """Why this page can't be given back."""
        if page in self.owned_pages:
            return None
        if not 0 <= page <= self.num_pages:
            return "OutOfRange"
        if page == 0:
            return "Reserved"
        return "DoubleFree" if page in self.issued_pages else "NotOwned"

    def _dead(self, slots: list[int]) -> list[Fault]:
        """Slots whose page nobody owns; what became of it is no matter here."""
        faults: list[Fault] = []
        for index, slot in enumerate(slots):
            page = slot // self.page_size
            if not 0 <= page <= self.num_pages:
                faults.append(("OutOfRange", index))
            elif page == 0:
                faults.append(("Reserved", index))
            elif page not in self.owned_pages:
                faults.append(("NotOwned", index))
        return faults

    def _page_list_faults(self, pages: Ids, indices: Ids) -> list[Fault]:
        """Faults of pages that may be named once each; `pages[k]` is named at `indices[k]`."""
        faults: list[Fault] = []
        named: set[int] = set()
        for page, index in zip(pages, indices, strict=True):
            kind = self._page_fault(page)
            if kind is not None:
                faults.append((kind, index))
            if page in named:
                faults.append(("Duplicate", index))
            named.add(page)
        return faults
