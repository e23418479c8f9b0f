"""What the sliding-window pair keeps: two allocators and a map (`spec/swa_unified.md` §2.2, §2.3).

Callers see full ids only. The map gives the window slot of each full slot, 0 where there is none.
A full page has a peer, a window page, while any of its slots has a window slot (A4: all of one page
are in one window page, at equal offsets).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reference.allocators.forwarding import KVCacheForwarding
from reference.allocators.paged import PagedTokenToKVPoolAllocator
from reference.allocators.segments import Ids
from reference.allocators.sizes import size_faults
from reference.allocators.token import TokenToKVPoolAllocator
from reference.refusal import Fault, Refused, as_int, refuse_smallest

Side = TokenToKVPoolAllocator | PagedTokenToKVPoolAllocator


class SWAState(KVCacheForwarding):
    """`size` and `size_swa` in tokens. `kvcache` may say that windows are rings of request rows."""

    windows_freed_in_group: set[int]  # full pages whose window a slot free of the group released

    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int,
        *,
        kvcache: Any = None,
        need_sort: bool = False,
        req_to_token_pool: Any = None,
    ) -> None:
        super().__init__(kvcache)
        ring_size = getattr(kvcache, "swa_req_ring_size", None)
        refuse_smallest(_construction_faults(size, size_swa, page_size, ring_size))
        self.ring_cost = 0  # tokens of one request's ring; 0 without rings
        if ring_size is not None:
            # Rings are counted by request rows; without pages they could never be given back (D3).
            if req_to_token_pool is None or page_size == 1:
                raise Refused("Unsupported")
            self.ring_cost = -(-ring_size // page_size) * page_size
            size_swa = 0
        self.page_size = page_size
        self.req_to_token_pool = req_to_token_pool
        self.full_attn_allocator = _new_side(size, page_size, need_sort)
        self.swa_attn_allocator = _new_side(size_swa, page_size, need_sort)
        self._ring_slots = self._free_rows() * self.ring_cost
        # The last entry: the window slot of "no location" is "no location".
        self.full_to_swa_index_mapping = [0] * (size + page_size) + [-1]
        self.windows_freed_in_group = set()
        if kvcache is not None:
            kvcache.register_mapping(self.full_to_swa_index_mapping)

    # --- sizes ---

    @property
    def size_full(self) -> int:
        """Tokens of the full side."""
        return self.full_attn_allocator.size

    @property
    def size_swa(self) -> int:
        """Tokens of the window side; with rings those of the rows free at construction."""
        return self._ring_slots if self.ring_cost else self.swa_attn_allocator.size

    @property
    def size(self) -> int:
        """What both sides have."""
        return min(self.size_full, self.size_swa)

    def full_available_size(self) -> int:
        """Slots free or staged on the full side."""
        return self.full_attn_allocator.available_size()

    def swa_available_size(self) -> int:
        """Slots free or staged on the window side; with rings those of the free rows."""
        if self.ring_cost:
            return self._free_rows() * self.ring_cost
        return self.swa_attn_allocator.available_size()

    def available_size(self) -> int:
        """What can be had on both sides; a ring never limits how a request grows."""
        if self.ring_cost:
            return self.full_available_size()
        return min(self.full_available_size(), self.swa_available_size())

    def new_pages_available(self, num_full_pages: int, num_swa_pages: int) -> bool:
        """Whether both sides have so many pages."""
        numbers = (as_int(num_full_pages), as_int(num_swa_pages))
        if None in numbers:
            raise Refused("WrongDtype")
        if num_full_pages < 0 or num_swa_pages < 0:
            raise Refused("NegativeSize")
        return self._fits(num_full_pages, num_swa_pages)

    def _fits(self, num_full_pages: int, num_swa_pages: int) -> bool:
        full, windows = self.full_available_size(), self.swa_available_size()
        fits = num_full_pages <= full // self.page_size
        return fits and (self.ring_cost > 0 or num_swa_pages <= windows // self.page_size)

    def _free_rows(self) -> int:
        return self.req_to_token_pool.available_size() if self.ring_cost else 0

    def get_all_free_pages(self) -> list[int]:
        """Free pages of the full side, then staged ones."""
        return self.full_attn_allocator.get_all_free_pages()

    def merge_and_sort_free(self) -> None:
        """Both sides sort in what is staged."""
        self.full_attn_allocator.merge_and_sort_free()
        self.swa_attn_allocator.merge_and_sort_free()

    def _dead(self, slots: list[int]) -> list[Fault]:
        """Full slots whose page nobody owns."""
        return self.full_attn_allocator._dead(slots)

    # --- the map ---

    def _entries(self, page: int) -> list[int]:
        """The map's entries of a full page."""
        first = page * self.page_size
        return self.full_to_swa_index_mapping[first : first + self.page_size]

    def _peer(self, page: int) -> int:
        """The window page of a full page, 0 for none."""
        return max(self._entries(page)) // self.page_size

    def _live(self, page: int) -> bool:
        """Whether a full page, of the pool or not, has a peer."""
        return 0 < page <= self.full_attn_allocator.num_pages and self._peer(page) > 0

    def _resolve(self, page: int) -> int:
        """The peer of a full page, which has none from here on."""
        peer = self._peer(page)
        first = page * self.page_size
        for slot in range(first, first + self.page_size):
            self.full_to_swa_index_mapping[slot] = 0
        return peer

    def translate_loc_from_full_to_swa(self, kv_indices: Ids) -> list[int]:
        """The window slots of these full slots: 0 for none, -1 for -1."""
        ids = list(kv_indices)
        last = len(self.full_to_swa_index_mapping) - 2
        refuse_smallest(("OutOfRange", i) for i, slot in enumerate(ids) if not -1 <= slot <= last)
        return [self.full_to_swa_index_mapping[slot] for slot in ids]

    def translate_swa_indices_for_transfer(self, kv_indices: Ids) -> list[int]:
        """The same, as a transfer asks for it."""
        return self.translate_loc_from_full_to_swa(kv_indices)

    # --- groups ---

    @property
    def group_open(self) -> bool:
        """Whether frees are parked; both sides are always in step."""
        return self.full_attn_allocator.group_open

    def free_group_begin(self) -> None:
        """From here on releases are parked; which windows they are is settled at each call."""
        self.full_attn_allocator.free_group_begin()
        self.swa_attn_allocator.free_group_begin()

    def free_group_end(self) -> None:
        """Release what is parked: window page ids, window slots, then the full side (§2.6)."""
        self.full_attn_allocator.free_group_end()
        side = self.swa_attn_allocator
        if isinstance(side, PagedTokenToKVPoolAllocator):
            side._put_back([page for pages in side.parked_pages for page in pages])
            side._put_back(sorted(side.slot_parked_pages))
            side._close_group()
        else:
            side.free_group_end()
        self.windows_freed_in_group = set()

    @contextmanager
    def free_group(self) -> Iterator[None]:
        """A group that ends also when its body raises, and quietly if a `clear()` has closed it."""
        self.free_group_begin()
        try:
            yield
        finally:
            if self.group_open:
                self.free_group_end()

    # --- from the beginning ---

    def clear(self) -> None:
        """Both sides initial, nothing mapped, no group."""
        self.full_attn_allocator.clear()
        self.swa_attn_allocator.clear()
        entries = len(self.full_to_swa_index_mapping) - 1
        self.full_to_swa_index_mapping[:entries] = [0] * entries
        self.windows_freed_in_group = set()

    def resize(self, config: Any) -> None:
        """Smaller sides, and clear; the map keeps its length, so no side may grow."""
        full = getattr(config, "full_max_total_num_tokens", None)
        windows = getattr(config, "swa_max_total_num_tokens", None)
        sides = [(self.full_attn_allocator, full)]
        if not self.ring_cost:
            sides.append((self.swa_attn_allocator, windows))
        faults: list[Fault] = []
        for side, size in sides:
            found = size_faults(size, self.page_size)
            faults += found
            if not found and int(size) > side.size:  # type: ignore[arg-type]  # an int, as tested
                faults.append(("OutOfRange", 0))
            if side.owned_pages:
                faults.append(("StillOwned", 0))
        if self.group_open:
            faults.append(("GroupOpen", 0))
        refuse_smallest(faults)
        for side, size in sides:
            side.size = int(size)  # type: ignore[arg-type]
        self.clear()

    # --- inspection ---

    def snapshot(self) -> dict[str, Any]:
        """The full side's own, and beside it the window side, the map, and the group's memory."""
        return {
            **self.full_attn_allocator.snapshot(),
            "size_swa": self.size_swa,
            "window": self.swa_attn_allocator.snapshot(),
            "mapping": list(self.full_to_swa_index_mapping),
            "again": sorted(self.windows_freed_in_group),
        }

    def audit(self) -> list[str]:
        """Both sides recounted, and the map against them (A2, A3, A4)."""
        full, side = self.full_attn_allocator, self.swa_attn_allocator
        faults = full.audit() + [f"{line} (window side)" for line in side.audit()]
        if self.full_to_swa_index_mapping[-1] != -1:
            faults.append("I23: the map's last entry isn't -1")
        host_of: dict[int, int] = {}
        for slot, window in enumerate(self.full_to_swa_index_mapping[:-1]):
            page = slot // self.page_size
            if window == 0:
                continue
            if page not in full.owned_pages or window // self.page_size not in side.owned_pages:
                faults.append(f"I17: slot {slot} has window slot {window}, and one isn't owned")
            if host_of.setdefault(window // self.page_size, page) != page:
                faults.append(f"I17: window slot {window} is in the window page of two pages")
            if window != self._peer(page) * self.page_size + slot % self.page_size:
                faults.append(f"I17: slot {slot} has window slot {window}, in no step with others")
        return faults


def _new_side(size: int, page_size: int, need_sort: bool) -> Side:
    if page_size == 1:
        return TokenToKVPoolAllocator(size, need_sort=need_sort)
    return PagedTokenToKVPoolAllocator(size, page_size, need_sort=need_sort)


def _construction_faults(
    size: object, size_swa: object, page_size: object, ring_size: object
) -> list[Fault]:
    faults = size_faults(size, page_size) + size_faults(size_swa, page_size)
    for number in (page_size, *([] if ring_size is None else [ring_size])):
        value = as_int(number)
        if value is None:
            faults.append(("WrongDtype", 0))
        elif value < 1:
            faults.append(("NegativeSize", 0))
    return faults
