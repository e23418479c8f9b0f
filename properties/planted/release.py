"""Bugs in the ways to give back, in groups, and in storage. Spec: `spec/core.md` §3 and §4."""

from __future__ import annotations

from properties.planted.allocation import BASE, LIST, OWNED, PAGED, STACK, TOKEN
from properties.planted.edit import Bug, edit

STATES = "allocators.states:PageStates"
SMALL = {"page_size": (2, 3), "num_pages": (4, 8)}
SORTED = {**SMALL, "need_sort": (True,)}
SEGMENTS = "allocators.segments:_position_fault"

FREES = (
    Bug("pages aren't deduplicated on free", "paged", "I1", edit(
        "kernels.release:distinct_pages", "torch.unique(", "torch.sort(",
        'rounding_mode="floor"))', 'rounding_mode="floor")).values',
    ), also=("I34",)),
    Bug("freed pages go to the wrong end", "paged", "I71", edit(
        f"{STACK}.give", "self._ids[head - count : head] = ids",
        "self._ids[head - count :] = torch.cat((self._ids[head:], ids))",
    ), False),
    Bug("freed slots go to the front", "token", "I71", edit(
        "allocators.free_list:SlotRing.give", "begin = self._start + self.num_free",
        "self._start = (self._start - count) % self.num_ids\n    begin = self._start",
    ), False),
    Bug("a page id may be freed again", "paged", "I4", edit(
        f"{PAGED}.free_page_ids", "if self.validate and not agree(self._all_owned_once(pages)):",
        "if False:",
    )),
    Bug("a staged page may be freed again", "paged", "I4", edit(
        f"{STATES}.owned", f"self.{OWNED}.amin()",
        f"torch.where(self.{OWNED} == STAGED, OWNED, self.{OWNED}).amin()",
    ), limits=SORTED),
    Bug("a parked page may be freed again", "paged", "I4", edit(
        f"{STATES}.owned", f"self.{OWNED}.amin()",
        f"torch.where(self.{OWNED} >= PARKED_PAGES, OWNED, self.{OWNED}).amin()",
    ), limits=SMALL),
    Bug("slots of a free page may be freed", "paged", "I4", edit(
        f"{PAGED}._free_slots", "lowest < PARKED_SLOTS:", "False:",
    )),
    Bug("a slot may be freed again", "token", "I4", edit(
        f"{TOKEN}._free", "[self._states.owned(clipped), ", "[",
    )),
    Bug("a slot may be named twice", "token", "I4", edit(
        f"{TOKEN}._free", ", self._states.once(clipped)", "",
    )),
    Bug("a page id may be named twice", "paged", "I4", edit(
        f"{STATES}.once", "return (ordered[1:] != ordered[:-1]).all(), self._all_differ",
        "return self._all_differ, self._all_differ",
    )),
    Bug("more ids than are out come back", "paged", "I4", edit(
        f"{PAGED}._require_out", "if num_pages > self._num_owned:", "if False:",
    ), False),  # each id is refused by itself then, as another kind
    Bug("a misaligned segment is accepted", "paged", "I36", edit(
        SEGMENTS, "if start % page_size:", "if False:",
    )),
    Bug("overlapping segments are accepted", "paged", "I36", edit(
        SEGMENTS, "<= end_page:", "< end_page:",
    )),
    Bug("segments aren't verified", "paged", "I36", edit(
        f"{PAGED}.free_segments", "agree(pairs + self", "agree(self",
    )),
    Bug("a segment's last, half-filled page is forgotten", "paged", "I2", edit(
        f"{PAGED}.free_segments", "each[:: self.page_size]",
        "each[:: self.page_size][: max(1, each.shape[0] // self.page_size)]",
    )),
    Bug("page ids come back in reverse", "paged", "I71", edit(
        f"{PAGED}._free_piles", "self._release(pile)", "self._release(pile.flip(0))",
    ), False),
    Bug("an empty free crashes", "paged", "I55", edit(
        f"{PAGED}.free", "if free_index.shape[0]:", "if 1:",
    )),
    Bug("the free list leaves room for one page less", "paged", "I2", edit(
        f"{STACK}.give", "self.num_free += count", "self.num_free += count - (count > 2)",
    ), also=("I21",)),
)  # fmt: skip

GROUPS = (
    Bug("a nested group loses the outer one", "paged", "I21", edit(
        f"{BASE}.free_group_begin",
        "if self._group_is_open:", "if self._group_is_open:\n        self._forget_group()\n"
        "    if False:",
    )),
    Bug("a nested group is accepted", "token", "I21", edit(
        f"{BASE}.free_group_begin", "if self._group_is_open:", "if False:",
    )),
    Bug("a group may end without a beginning", "paged", "I21", edit(
        f"{BASE}.free_group_end", "if not self._group_is_open:", "if False:",
    )),
    Bug("a group's page ids are lost", "paged", "I21", edit(
        f"{PAGED}._release_parked", "if self._parked_pages:", "if False:",
    )),
    Bug("a group's last slots are lost", "token", "I21", edit(
        f"{TOKEN}._release_parked", "torch.cat(self._parked_slots)",
        "torch.cat(self._parked_slots)[:1]",
    )),
    Bug("slots of a group aren't deduplicated", "paged", "I21", edit(
        f"{PAGED}._release_parked", "torch.unique(torch.cat(self._slot_piles))",
        "torch.cat(self._slot_piles).sort().values",
    ), also=("I1",)),
    Bug("a group's piles change places", "paged", "I71", edit(
        f"{PAGED}._release_parked", "for pile in piles:", "for pile in piles[::-1]:",
    ), False),
    Bug("a group frees page ids at once", "paged", "I1", edit(
        f"{PAGED}._free_piles", "if not self._group_is_open:",
        "if self._group_is_open:\n        self._list.give(pages)\n"
        "    if not self._group_is_open:",
    )),
    Bug("a group parks nothing", "paged", "I2", edit(
        f"{PAGED}._free_piles", "if not self._group_is_open:", "if True:",
    )),
)  # fmt: skip

STORAGE = (
    Bug("alloc gives a view of the free list", "token", "I54", edit(
        f"{TOKEN}.alloc", ".clone()", "",
    )),
    Bug("get_all_free_pages gives the list itself", "paged", "I54", edit(
        f"{BASE}.get_all_free_pages", "return torch.cat(",
        "return self._list.free() if not self._list.num_staged else torch.cat(",
    )),
    Bug("parked slots are kept by reference", "paged", "I54", edit(
        f"{PAGED}._free_slots", "[each.clone() for each in slots]", "slots",
    )),
    Bug("parked slots of the token allocator are kept by reference", "token", "I54", edit(
        f"{TOKEN}._free", "self._parked_slots.append(clipped)", "self._parked_slots.append(ids)",
    )),
    Bug("a decode writes to last_loc", "paged", "I54", edit(
        f"{PAGED}.alloc_decode", "after_last = last + self._one",
        "after_last = last.add_(self._one)",
    )),
    Bug("a translation gives its argument back", "paged", "I54", edit(
        f"{BASE}.translate_kv_indices_for_transfer", ".clone()", "",
    )),
)  # fmt: skip

LIFE_CYCLE = (
    Bug("clear forgets what is staged", "paged", "I66", edit(
        f"{LIST}.reset", "self.num_staged = 0", "pass",
    ), limits=SORTED),
    Bug("clear leaves the group open", "paged", "I66", edit(
        f"{BASE}.clear", "self._forget_group()", "self._num_parked = 0",
    )),
    Bug("clear forgets the owners only in part", "paged", "I66", edit(
        f"{BASE}.clear", "self._states.reset()", "pass",
    )),
    Bug("resize while pages are out", "paged", "I4", edit(
        f"{BASE}.resize", "if self._num_owned:", "if False:",
    )),
    Bug("resize in a group", "paged", "I21", edit(
        f"{BASE}.resize", "if self._group_is_open:", "if False:",
    ), limits=SMALL),
    Bug("resize keeps the old size", "paged", "I3", edit(
        f"{BASE}.resize", "self._build()", "self.clear()",
    ), also=("I2",)),
    Bug("get_all_free_pages leaves out what is staged", "paged", "I2", edit(
        f"{BASE}.get_all_free_pages", "self._list.staged()", "self._list.staged()[:0]",
    )),
    Bug("a translation changes ids", "paged", "I37", edit(
        f"{BASE}.translate_kv_indices_for_transfer", ".clone()", " + 1",
    )),
)  # fmt: skip

BUGS = (*FREES, *GROUPS, *STORAGE, *LIFE_CYCLE)
