"""Bugs of the sliding-window pair and of what its callers reckon with.

Spec: `spec/swa_unified.md` §2, §10.2.
"""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

SWA = "allocators.swa:SWATokenToKVPoolAllocator"
BASE = "allocators.swa_base"
SIDES = "allocators.swa_sides"
ROOM = "allocators.swa_room:SWARoom"
PAIR = "allocators.pair_book:PairBook"
PAGES = "allocators.page_pair:PagePair"
SLOTS = "allocators.slot_pair:SlotPair"
MAP = "allocators.window_map:WindowMap"
FITS = "if not pair.fits(plan.num_pages, plan.num_pages):"
# Where windows are rings none of this can show.
PAGED = {"page_size": (2, 3, 4), "ring": (0,)}
SINGLE = {"page_size": (1,)}
CLEARS = "tl.store(mapping + page * page_size + in_page, 0, mask=inside)"
RESOLVE = "windows = self.arrays.sorted(self.windows.release(pages))"

BUGS = (
    Bug("a window page goes back, one slot's entry is cleared", "swa", "I17", edit(
        "kernels.windows:resolve_and_clear", "rows[pages] = 0", "rows[pages, 0] = 0",
    ), also=("I20",), limits=PAGED, entry=22),
    Bug("a tail leaves what dropped slots were mapped to", "swa", "I18", edit(
        f"{PAGES}.extend_tail", "if plan.offsets[0] and head:", "if False:",
    ), limits=PAGED, commands=("extend", "extend_tail_in_page", "trim", "release_row"), entry=23),
    Bug("a group's frees leave the map as it is", "swa", "I20", edit(
        f"{PAGES}._free_windows_of_slots", RESOLVE,
        "windows = self.arrays.sorted(self.windows.peers(pages))\n"
        "    if not self.swa.group_is_open:\n"
        "        self.windows.release(pages)",
    ), limits=PAGED, entry=24),
    Bug("segments of pages without windows are freed as they are", "swa", "I23", edit(
        f"{PAGES}.free_segments", "self._paired(call, pages, named)", "pages",
    ), limits=PAGED, entry=25),
    Bug("a window smaller than a page may go whole", "swa", "I24", edit(
        "sizing:window_frontier", "kept = -(-max(window, page_size) // page_size) * page_size",
        "kept = window",
    ), entry=27),
    Bug("the frontier counts a token where keys are pairs", "swa", "I24", edit(
        "sizing:window_frontier", "n - bool(bigram) - kept", "n - kept",
    ), limits=PAGED, entry=27),
    Bug("pages without windows are freed silently", "swa", "I23", edit(
        f"{PAGES}._paired", "if self.validate:", "if False:",
    ), limits=PAGED, entry=28),
    Bug("slots without windows are freed silently", "swa", "I23", edit(
        f"{SLOTS}.free_slots", "[peers > 0, self.arrays.once(ids)]", "[self.arrays.once(ids)]",
    ), also=("I4",), limits=SINGLE, entry=28),
    Bug("copies are of slots that the window side has out", "swa", "I4", edit(
        f"{BASE}:SWAPair._owners", "self.full_attn_allocator", "self.swa_attn_allocator",
    )),
    Bug("a decode takes full pages before it looks at windows", "swa", "I9", edit(
        f"{SWA}.alloc_decode", FITS,
        f"{FITS}\n        if pair.full.fits(plan.num_pages, plan.num_pages):\n"
        "            pair.full.take(plan.num_pages)",
    ), limits=PAGED, entry=29),
    Bug("only the full side is asked to make room", "swa", "I11", edit(
        f"{ROOM}.evict_to_free_tokens",
        "windows = 0 if self.swa_req_ring else max(0, size - self.swa_available_size())",
        "windows = 0",
    ), entry=31),
    Bug("a pair that is short sorts its full side in", "swa", "I9", edit(
        f"{PAIR}.fits", "num_full <= _available(self.full)", "self.full.fits(num_full, num_full)",
    ), False, limits={"need_sort": (True,), "ring": (0,)}),
    Bug("one page too many is promised", "swa", "I8", edit(
        f"{PAIR}.fits", "num_windows <= _available(self.swa)",
        "num_windows <= _available(self.swa) + 1",
    ), also=("I11",), limits={"ring": (0,)}),
    Bug("windows lie at the beginning of a half-filled page", "swa", "I17", edit(
        f"{PAGES}._after_windows", "peers * self.page_size + sent_offsets",
        "peers * self.page_size",
    ), limits=PAGED),
    Bug("a released page is gone on with", "swa", "I23", edit(
        f"{PAGES}._after_windows", "if self.validate and not", "if False and not",
    ), limits=PAGED),
    Bug("a full page goes back without its window", "swa", "I4", edit(
        f"{PAGES}._require_unpaired", "if self.validate and not", "if False and not",
    ), limits=PAGED),
    Bug("a window that passes on keeps its first page", "swa", "I4", edit(
        "allocators.window_moves:_agree",
        "(map_.owners(peers) == 0) | (map_.owners(peers) == pages),", "",
    ), False, limits={"ring": (0,)}),
    Bug("a group's window piles change places", "swa", "I71", edit(
        f"{PAGES}.release_parked", "for pile in piles:", "for pile in piles[::-1]:",
    ), False, limits=PAGED),
    Bug("a page whose window a group released must have one", "swa", "I20", edit(
        f"{PAGES}._free_windows_of_slots", "if self.swa.group_is_open:", "if False:",
    ), False, also=("I23",), limits=PAGED),
    Bug("a side may grow", "swa", "I4", edit(
        f"{SIDES}:smaller", "if size > side.size:", "if False:",
    )),
    Bug("windows of rings are counted in slots", "swa", "I2", edit(
        f"{BASE}:SWAPair.available_size", "full if self.swa_req_ring else", "",
    ), limits={"ring": (1,), "page_size": (2, 3)}),
)  # fmt: skip

OF_CALLERS = (
    Bug("an eviction of windows begins at the first position again", "swa", "I23",
        limits={"ring": (0,)}, faulty="evict_from_the_front"),
    Bug("a failed admission keeps what it took", "swa", "I31", faulty="keep_failed_admission"),
)  # fmt: skip

SLOW = (
    Bug("a window page goes back, one slot's entry is cleared", "swa", "I17", edit(
        "kernels.device.windows:resolve_pages", CLEARS, CLEARS.replace("inside", "first"),
    ), also=("I20",), limits=PAGED, commands=("extend", "free_swa", "free_swa_segment")),
    Bug("a window page that went back has an owner still", "swa", "I17", edit(
        "kernels.device.windows:resolve_pages",
        "tl.store(owners + peer, 0, mask=first)", "tl.store(owners + peer, page, mask=first)",
    ), commands=("alloc", "extend", "free_swa", "free_swa_segment")),
)  # fmt: skip
