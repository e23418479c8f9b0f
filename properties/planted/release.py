"""Bugs in the ways to give back, in groups, and in storage. Spec: `spec/core.md` §3 and §4."""

from __future__ import annotations

from properties.planted.allocation import BASE, BOOK, LIST, PAGED, PAGES, SLOTS, STACK
from properties.planted.bug import Bug
from properties.planted.edit import edit

STATES = "allocators.states:PageStates"
SMALL = {"page_size": (1, 2, 3), "num_pages": (1, 2, 3, 4, 8)}
SORTED = {**SMALL, "need_sort": (True,)}
SEGMENTS = "allocators.segments:_position_fault"
ALL_OWNED = "self._arrays.all_are(self.look(ids), OWNED)"
GIVE_BACK = "self.give_pages(pages, segments.num_pages)"
JOINED = "self.arrays.joined((self.free_list.free(), self.free_list.staged()))"
OPEN = "if self._book.group_is_open:"

FREES = (
    Bug("pages aren't deduplicated on free", "paged", "I1", edit(
        f"{PAGES}._newly_freed",
        "return self.arrays.distinct(pages)", "return self.arrays.sorted(pages)",
    ), also=("I34",), entry=79),
    Bug("freed pages go to the wrong end", "paged", "I71", edit(
        f"{STACK}.give", "self._ids[head - count : head] = ids",
        "self._ids[head - count :] = self._arrays.joined((self._ids[head:], ids))",
    ), False),
    Bug("freed slots go to the front", "token", "I71", edit(
        "allocators.free_list:SlotRing.give", "count, begin = ids.shape[0], self.end",
        "count = ids.shape[0]\n    begin = self._start = (self._start - count) % self.num_ids",
    ), False),
    Bug("a page id may be freed again", "paged", "I4", edit(
        f"{PAGES}.checked_pages", "if self.validate and not", "if False and not",
    )),
    Bug("a staged page may be freed again", "paged", "I4", edit(
        f"{STATES}.owned", ALL_OWNED, "(self.look(ids) == OWNED) | (self.look(ids) == STAGED)",
    ), limits=SORTED),
    Bug("a parked page may be freed again", "paged", "I4", edit(
        f"{STATES}.owned", ALL_OWNED, "self.look(ids) >= PARKED_PAGES",
    ), limits=SMALL),
    Bug("slots of a free page may be freed", "paged", "I4", edit(
        f"{PAGES}._slots_agree", "[self.states.owned(pages)]", "[]",
    )),
    Bug("a slot may be freed again", "token", "I4", edit(
        f"{SLOTS}.free_slots", "self.states.owned(ids), ", "",
    ), entry=7),
    Bug("a staged slot may be freed again", "token", "I4", edit(
        f"{STATES}.owned", ALL_OWNED, "(self.look(ids) == OWNED) | (self.look(ids) == STAGED)",
    ), limits={"need_sort": (True,)}, entry=7),
    Bug("a parked slot may be freed again", "token", "I4", edit(
        f"{STATES}.owned", ALL_OWNED, "self.look(ids) >= PARKED_SLOTS",
    ), entry=7),
    Bug("a slot may be named twice", "token", "I4", edit(
        f"{SLOTS}.free_slots", ", self.arrays.once(ids)", "",
    ), entry=9),
    Bug("any id is a slot to be freed", "token", "I4", edit(
        f"{SLOTS}.free_slots", "self.validate\n", "False\n",
    ), entry=9),
    Bug("a page id may be named twice", "paged", "I4", edit(
        f"{PAGES}.checked_pages", ", self.arrays.once(pages)", "",
    )),
    Bug("more ids than are out come back", "paged", "I4", edit(
        f"{BOOK}.too_many", "if count <= self.num_owned:", "if True:",
    ), False),  # each id is refused by itself then, as another kind
    Bug("a misaligned segment is accepted", "paged", "I36", edit(
        SEGMENTS, "if start % page_size:", "if False:",
    )),
    Bug("overlapping segments are accepted", "paged", "I36", edit(
        SEGMENTS, "(end_page + 1)", "end_page",
    ), entry=19),
    Bug("segments aren't verified", "paged", "I36", edit(
        f"{PAGES}.checked_segments", "self.arrays.same(slots, due),", "",
    ), entry=19),
    Bug("free_full frees the first page only", "paged", "I22", edit(
        f"{BASE}.free_full", "self.free(free_index)", "self.free(free_index[:1])",
    ), also=("I2", "I4")),
    Bug("a segment's last, half-filled page is forgotten", "paged", "I22", edit(
        f"{PAGES}._free_segments", GIVE_BACK,
        "forgets = lengths[-1] > self.page_size and lengths[-1] % self.page_size > 0\n"
        "    segments.num_pages[-1] -= forgets\n"
        f"    pages = pages[: pages.shape[0] - forgets]\n    {GIVE_BACK}",
    ), also=("I2",), entry=19),
    Bug("page ids come back in reverse", "paged", "I71", edit(
        f"{PAGES}.give_pages", "self.release(pages)", "self.release(pages[::-1])",
    ), False),
    Bug("a staged page has an owner until it is sorted in", "paged", "I20", edit(
        f"{BOOK}.release", "self.states.mark(pages, STAGED)", "pass",
    ), limits=SORTED, also=("I4", "I34")),
    Bug("an empty free crashes", "paged", "I55", edit(
        f"{PAGED}.free", "if free_index.shape[0]:", "if free_index.amax() is not None:",
    )),
    Bug("the free list leaves room for one page less", "paged", "I2", edit(
        f"{STACK}.give", "self.num_free += count", "self.num_free += count - (count > 2)",
    ), also=("I21",)),
)  # fmt: skip

GROUPS = (
    Bug("a nested group loses the outer one", "paged", "I21", edit(
        f"{BASE}.free_group_begin",
        OPEN, f"{OPEN}\n        self._book.forget_group()\n    if False:",
    ), entry=20),
    Bug("a nested group is accepted", "token", "I21", edit(
        f"{BASE}.free_group_begin", OPEN, "if False:",
    )),
    Bug("a group may end without a beginning", "paged", "I21", edit(
        f"{BASE}.free_group_end", "if not self._book.group_is_open:", "if False:",
    )),
    Bug("a group's page ids are lost", "paged", "I21", edit(
        f"{PAGES}.release_parked", "if self.parked_pages:", "if False:",
    )),
    Bug("a group's last slots are lost", "token", "I21", edit(
        f"{SLOTS}.release_parked", "self.arrays.joined(self.parked_slots)",
        "self.arrays.joined(self.parked_slots)[:1]",
    )),
    Bug("slots of a group aren't deduplicated", "paged", "I21", edit(
        f"{PAGES}.release_parked", "self.arrays.distinct(self.arrays.joined(self.slot_piles))",
        "self.arrays.sorted(self.arrays.joined(self.parked_slots) // self.page_size)",
    ), also=("I1",)),
    Bug("a group's piles change places", "paged", "I71", edit(
        f"{PAGES}.release_parked", "for pile in piles:", "for pile in piles[::-1]:",
    ), False, entry=84),
    Bug("a parked page has an owner until the group ends", "paged", "I20", edit(
        f"{PAGES}.give_pages", "self.states.mark(pages, PARKED_PAGES)", "pass",
    ), also=("I4",), entry=84),
    Bug("a group frees page ids at once", "paged", "I1", edit(
        f"{PAGES}.give_pages", "if self.group_is_open:",
        "if self.group_is_open:\n        self.free_list.give(pages)\n"
        "    if self.group_is_open:",
    )),
    Bug("a group parks nothing", "paged", "I2", edit(
        f"{PAGES}.give_pages", "if self.group_is_open:", "if False:",
    )),
)  # fmt: skip

STORAGE = (
    Bug("alloc gives a view of the free list", "token", "I54", edit(
        f"{SLOTS}.take_slots", "self.arrays.copy(self.take(count))", "self.take(count)",
    ), entry=53),
    Bug("get_all_free_pages gives the list itself", "paged", "I54", edit(
        f"{BOOK}.all_free", JOINED,
        f"self.free_list.free() if not self.free_list.num_staged else {JOINED}",
    )),
    Bug("parked slots are kept by reference", "paged", "I54", edit(
        f"{PAGES}.give_slots", "[self.arrays.copy(each) for each in ids]", "ids",
    )),
    Bug("parked slots of the token allocator are kept by reference", "token", "I54", edit(
        f"{SLOTS}.give_slots", "self.arrays.copy(ids)", "ids",
    )),
    Bug("a decode writes to last_loc", "paged", "I54", edit(
        f"{PAGES}.decode", "self.arrays.ids(last_loc) + 1",
        "self.arrays.ids(last_loc)\n    after_last += 1",
    )),
    Bug("a translation gives its argument back", "paged", "I54", edit(
        f"{BASE}.translate_kv_indices_for_transfer", ".clone()", "",
    )),
)  # fmt: skip

LIFE_CYCLE = (
    Bug("clear forgets what is staged", "paged", "I66", edit(
        f"{LIST}.reset", "self.num_staged = 0", "pass",
    ), limits=SORTED, entry=56),
    Bug("clear leaves the group open", "paged", "I66", edit(
        f"{BOOK}.clear", "self.forget_group()", "self.num_parked = 0",
    )),
    Bug("clear forgets the owners only in part", "paged", "I66", edit(
        f"{BOOK}.clear", "self.states.reset()", "pass",
    )),
    Bug("resize while pages are out", "paged", "I4", edit(
        f"{BASE}.resize", "if owned := self._book.num_owned:", "if False:",
    )),
    Bug("resize in a group", "paged", "I21", edit(
        f"{BASE}.resize", OPEN, "if False:",
    ), limits=SMALL),
    Bug("resize keeps the old size", "paged", "I3", edit(
        f"{BASE}.resize", "self._build()", "self.clear()",
    ), also=("I2",)),
    Bug("get_all_free_pages leaves out what is staged", "paged", "I2", edit(
        f"{BOOK}.all_free", "self.free_list.staged()", "self.free_list.staged()[:0]",
    )),
    Bug("a translation changes ids", "paged", "I37", edit(
        f"{BASE}.translate_kv_indices_for_transfer", ".clone()", " + 1",
    )),
    Bug("a backup leaves out the last slot", "paged", "I38", edit(
        f"{BASE}.get_cpu_copy", "indices, mamba_indices", "indices[:-1], mamba_indices",
    )),
    Bug("a backup is forwarded to a method that the pool lacks", "paged", "I53", edit(
        f"{BASE}.get_cpu_copy", "pool.get_cpu_copy(", "pool.copy_to_host(",
    ), entry=50),
    Bug("slots that nobody owns are copied", "paged", "I4", edit(
        f"{BASE}._require_kvcache", "if book.validate:", "if False:",
    )),
    Bug("one owned slot lets a load pass", "token", "I4", edit(
        f"{BASE}._require_kvcache", "book.states.owned(pages)", "book.states.owned(pages[:1])",
    )),
    Bug("a load may name a slot twice", "paged", "I4", edit(
        f"{BASE}.load_cpu_copy", "once=True", "once=False",
    )),
)  # fmt: skip

BUGS = (*FREES, *GROUPS, *STORAGE, *LIFE_CYCLE)
