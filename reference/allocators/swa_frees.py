"""Giving back what the pair handed out, and moving windows (`spec/swa_unified.md` §2.5 to §2.7).

Every call is tested on the full side exactly as that side would, then for windows; only then does
either side change.
"""

from collections.abc import Iterable

from reference.allocators.paged import PagedTokenToKVPoolAllocator
from reference.allocators.segments import Ids, Segments, read_segments
from reference.allocators.swa_state import SWAState
from reference.refusal import Fault, Refused, refuse_smallest


class SWAFrees(SWAState):
    """`free…` gives back both sides, `free_swa…` the window side, `free_full…` the full side."""

    # --- slots in any order ---

    def free(self, free_index: Ids) -> None:
        """The pages of these slots and their windows."""
        self._test_slots(free_index, with_windows=True)
        self._release_windows_of(free_index)
        self.full_attn_allocator.free(free_index)

    def free_swa(self, free_index: Ids) -> None:
        """The windows of these slots' pages; the slots stay."""
        if not self.ring_cost:
            self._test_slots(free_index, with_windows=True)
            self._release_windows_of(free_index)

    def free_full(self, free_index: Ids) -> None:
        """The pages of slots whose windows have gone back already."""
        self._test_slots(free_index, with_windows=False)
        self.full_attn_allocator.free(free_index)

    def _test_slots(self, slots: Ids, *, with_windows: bool) -> None:
        full = self.full_attn_allocator
        if isinstance(full, PagedTokenToKVPoolAllocator):
            full._tested_slots([list(slots)], [])
        else:
            full._refuse(list(slots), [])
        pages = [slot // self.page_size for slot in slots]
        # Slots of one page count once in a group: where its window has gone, that is no fault.
        named_before = self.windows_freed_in_group | (
            full.slot_parked_pages if self.page_size > 1 else set()
        )
        asked = [(i, page) for i, page in enumerate(pages) if page not in named_before]
        if not with_windows:
            asked = list(enumerate(pages))
        refuse_smallest(self._window_faults(asked, with_windows))

    def _release_windows_of(self, slots: Ids) -> None:
        if self.ring_cost:
            return
        named = dict.fromkeys(slot // self.page_size for slot in slots)
        pages = [page for page in named if self._live(page)]
        windows = [self._resolve(page) for page in pages]
        if self.page_size == 1:
            self.swa_attn_allocator.free(windows)
        elif windows:
            self.swa_attn_allocator.free([window * self.page_size for window in sorted(windows)])
            if self.group_open:
                self.windows_freed_in_group.update(pages)

    def _window_faults(self, asked: Iterable[tuple[int, int]], with_windows: bool) -> list[Fault]:
        """Pages, as (index, page), that have no window where they need one, or the reverse."""
        if self.ring_cost:
            return []
        kind = "NoWindowPeer" if with_windows else "StillOwned"
        return [(kind, index) for index, page in asked if self._live(page) != with_windows]

    # --- pages by their ids ---

    def free_page_ids(self, page_ids: Ids) -> None:
        """Exactly these pages and their windows, in the order given."""
        full = self.full_attn_allocator
        if isinstance(full, PagedTokenToKVPoolAllocator):
            pages = full._tested_pages(page_ids)
            refuse_smallest(self._window_faults(enumerate(pages), with_windows=True))
            self._release_windows([pages])
            full.free_page_ids(pages)
        else:
            self.free(page_ids)

    # --- segments of a request's row ---

    def free_segment(self, free_index: Ids, *, start_pos: int) -> None:
        """`free_segments` with one segment."""
        self.free_segments([(free_index, start_pos)])

    def free_swa_segment(self, free_index: Ids, *, start_pos: int) -> None:
        """`free_swa_segments` with one segment."""
        self.free_swa_segments([(free_index, start_pos)])

    def free_full_segment(self, free_index: Ids, *, start_pos: int) -> None:
        """`free_full_segments` with one segment."""
        self.free_full_segments([(free_index, start_pos)])

    def free_segments(self, segments: Segments) -> None:
        """Runs of positions and their windows; every page must have one."""
        segments = list(segments)
        self._release_windows(self._tested_segments(segments, with_windows=True))
        self.full_attn_allocator.free_segments(segments)

    def free_swa_segments(self, segments: Segments) -> None:
        """The windows of runs of positions; the slots stay."""
        segments = list(segments)
        if self.ring_cost:
            refuse_smallest(read_segments(segments, self.page_size)[1])
        else:
            self._release_windows(self._tested_segments(segments, with_windows=True))

    def free_full_segments(self, segments: Segments) -> None:
        """Runs of positions whose windows have gone back already."""
        segments = list(segments)
        self._tested_segments(segments, with_windows=False)
        self.full_attn_allocator.free_segments(segments)

    def _tested_segments(self, segments: Segments, *, with_windows: bool) -> list[list[int]]:
        """The pages of each segment; raises what is wrong with any of them."""
        full = self.full_attn_allocator
        if isinstance(full, PagedTokenToKVPoolAllocator):
            pages, indices = full._tested_segments(segments)
        else:
            pages, faults = read_segments(segments, page_size=1)
            full._refuse([slot for slots in pages for slot in slots], faults)
            indices = list(range(sum(map(len, pages))))
        named = [page for segment in pages for page in segment]
        asked = zip(indices, named, strict=True)
        refuse_smallest(self._window_faults(asked, with_windows))
        return pages

    def _release_windows(self, pages: list[list[int]]) -> None:
        """Resolve and give back the windows of these pages, pile by pile."""
        if self.ring_cost:
            return
        windows = [[self._resolve(page) for page in pile] for pile in pages]
        if self.page_size == 1:
            self.swa_attn_allocator.free([window for pile in windows for window in pile])
            return
        for pile in windows:
            self.swa_attn_allocator.free_page_ids(pile)

    # --- moving windows between full slots ---

    def set_full_to_swa_mapping(self, full_indices: Ids, swa_indices: Ids) -> None:
        """Give full slots without windows these window slots, which nobody has."""
        slots, windows = list(full_indices), list(swa_indices)
        if self.ring_cost:
            raise Refused("Unsupported")
        if len(slots) != len(windows):
            raise Refused("WrongShape")
        refuse_smallest(self._pairing_faults(slots, windows))
        for slot, window in zip(slots, windows, strict=True):
            self.full_to_swa_index_mapping[slot] = window

    def clear_full_to_swa_mapping(self, full_indices: Ids) -> None:
        """Full slots let go of their windows; nothing is given back."""
        slots = list(full_indices)
        if self.ring_cost:
            raise Refused("Unsupported")
        refuse_smallest(self._dead(slots))
        for slot in slots:
            self.full_to_swa_index_mapping[slot] = 0

    def _pairing_faults(self, slots: list[int], windows: list[int]) -> list[Fault]:
        full, side, size = self.full_attn_allocator, self.swa_attn_allocator, self.page_size
        faults = self._dead(slots) + side._dead(windows)
        host_of = {self._peer(page): page for page in full.owned_pages if self._live(page)}
        peer_here: dict[int, int] = {}  # what this call has named before
        host_here: dict[int, int] = {}
        for index, (slot, window) in enumerate(zip(slots, windows, strict=True)):
            page, peer = slot // size, window // size
            if slot % size != window % size:
                faults.append(("Misaligned", index))
            if slot in slots[:index]:
                faults.append(("Duplicate", index))
            if peer_here.setdefault(page, peer) != peer or host_here.setdefault(peer, page) != page:
                faults.append(("Duplicate", index))
            if (self._live(page) and self._peer(page) != peer) or host_of.get(peer, page) != page:
                faults.append(("StillOwned", index))
        return faults
