"""Bugs in the ways to take slots, in capacity, and in merging. Spec: `spec/core.md` §3 and §4."""

from __future__ import annotations

from properties.planted.edit import Bug, edit

PAGED = "allocators.paged:PagedTokenToKVPoolAllocator"
TOKEN = "allocators.token:TokenToKVPoolAllocator"
BASE = "allocators.base:BaseTokenToKVPoolAllocator"
LIST = "allocators.free_list:FreeList"
STACK = "allocators.free_list:PageStack"
FITS = "if not self._fits(plan.num_pages, bound):"
TAKE = "new_pages = self._take(plan.num_pages)"
OWNED = "by_page.index_select(0, clipped)"

CAPACITY = (
    Bug("the free list advances by one page too few", "paged", "I34", edit(
        f"{STACK}.take", "self.num_free -= count", "self.num_free -= max(0, count - 1)",
    )),
    Bug("slots are handed out and stay free", "token", "I34", edit(
        "allocators.free_list:SlotRing.take", "return taken",
        "self.num_free += count > 1\n    return taken",
    )),
    Bug("alloc tests capacity after the pages are taken", "paged", "I9", edit(
        f"{PAGED}.alloc",
        "if not self._fits(", "fits = self._fits(",
        "bound=num_pages):\n", "bound=num_pages)\n    pages = self._take(num_pages)\n"
        "    if not fits:\n",
        "self._take(num_pages))", "pages)",
    )),
    Bug("extend tests capacity after the pages are taken", "paged", "I9", edit(
        f"{PAGED}.alloc_extend",
        TAKE, "pass",
        FITS, f"fits = self._fits(plan.num_pages, bound)\n    {TAKE}\n    if not fits:",
    )),
    Bug("the token allocator takes before it tests", "token", "I9", edit(
        f"{TOKEN}.alloc",
        "if not self._fits(size, bound=size):",
        "fits = self._fits(size, bound=size)\n    taken = self._take(size)\n    if not fits:",
        "self._take(size).clone()", "taken.clone()",
    )),
    Bug("staged pages are ignored by extend", "paged", "I11", edit(
        f"{PAGED}.alloc_extend", FITS, "if plan.num_pages > self._list.num_free:",
    )),
    Bug("staged slots are ignored by alloc", "token", "I11", edit(
        f"{TOKEN}.alloc", "if not self._fits(size, bound=size):",
        "if size > self._list.num_free:",
    )),
    Bug("one page more than there is", "paged", "I8", edit(
        f"{BASE}._fits", "num_pages <= self._list.num_free", "num_pages <= self._list.num_free + 1",
    )),
    Bug("the last page is never used", "paged", "I11", edit(
        f"{BASE}._fits", "num_pages <= self._list.num_free",
        "num_pages < self._list.num_free or not num_pages",
    )),
    Bug("available_size forgets what is staged", "paged", "I2", edit(
        f"{BASE}.available_size", "(self._list.num_free + self._list.num_staged)",
        "self._list.num_free",
    )),
    Bug("a merge loses a page", "paged", "I2", edit(
        f"{LIST}.merge", "self.staged())", "self.staged()[1:])",
    ), also=("I6", "I9")),
    Bug("a merge doesn't sort", "paged", "I71", edit(
        f"{LIST}.merge", ".sort().values", "",
    ), False),
    Bug("an allocation sorts although it needn't", "paged", "I71", edit(
        f"{BASE}._fits", " and bound > self._list.num_free", "",
    ), False, also=("I9",)),
    Bug("page 0 is handed out", "paged", "I3", edit(
        f"{LIST}.reset", "torch.arange(1, self.num_ids + 1,", "torch.arange(0, self.num_ids,",
    )),
    Bug("slot 0 is handed out", "token", "I3", edit(
        f"{LIST}.reset", "torch.arange(1, self.num_ids + 1,", "torch.arange(0, self.num_ids,",
    )),
    Bug("half a page of rest is a page", "paged", "I3", edit(
        f"{BASE}._build", "self.size // self.page_size", "-(-self.size // self.page_size)",
    )),
    Bug("a negative size is no pages", "paged", "I68", edit(
        "checks:host_size", "if size < least:", "if size < least and least:",
    )),
    Bug("alloc rounds down to pages", "paged", "I4", edit(f"{PAGED}.alloc", "if rest:", "if 0:")),
)  # fmt: skip

PLACEMENT = (
    Bug("the last page of an extend is written from the wrong free page", "paged", "I6", edit(
        f"{PAGED}.alloc_extend", TAKE,
        f"{TAKE}\n    spare = self._list.free()[:1]\n"
        "    if plan.num_pages and spare.numel():\n"
        "        new_pages = torch.cat((new_pages[:-1], spare))",
    )),
    Bug("an extend writes its first page twice", "paged", "I6", edit(
        f"{PAGED}.alloc_extend", TAKE,
        f"{TAKE}.clone()\n    if plan.num_pages > 1:\n        new_pages[-1] = new_pages[0]",
    )),
    Bug("a decode goes on behind a full page", "paged", "I6", edit(
        "kernels.decode:place", "after_last.masked_scatter_(offsets.logical_not(), first_slots)",
        "torch.where(after_last == 0, first_slots[:1].sum(), after_last)",
    )),
    Bug("a decode lies one slot too far", "paged", "I7", edit(
        "kernels.decode:place", "return after_last.masked_scatter_(",
        "return (after_last + 1).masked_scatter_(",
    ), also=("I12",)),
    Bug("an extend lies one slot too near", "paged", "I7", edit(
        "kernels.extend:plan", "shifts=shifts,", "shifts=shifts - offsets.gt(1).to(torch.int64),",
    )),
    Bug("page offsets run backwards", "paged", "I7", edit(
        "kernels.release:expand_pages", "addcmul(page_offsets,", "addcmul(page_offsets.flip(0),",
    )),
    Bug("half-filled pages of a batch are swapped", "paged", "I12", edit(
        "kernels.extend:place", "half_at, half_pages)", "half_at, half_pages.flip(0))",
    )),
    Bug("requests take their new pages in reverse", "paged", "I71", edit(
        f"{PAGED}.alloc_extend", TAKE, f"{TAKE}.flip(0)",
    ), False),
)  # fmt: skip

ARGUMENTS = (
    Bug("num_new_pages is trusted", "paged", "I4", edit(
        "allocators.batches:plan_extend", "or pages not in (None, batch.num_pages)", "",
    )),
    Bug("seq below prefix is accepted", "paged", "I4", edit(
        "kernels.extend:plan", " or min(new_tokens) < 0:", ":",
    )),
    Bug("extend_num_tokens is trusted", "paged", "I4", edit(
        "allocators.batches:plan_extend", "batch.num_tokens != tokens or ", "",
    )),
    Bug("the device's lengths aren't compared", "paged", "I4", edit(
        f"{PAGED}._length_pairs", "zip(map(int64, lens), sent, strict=True)", "",
    )),
    Bug("nobody asks who owns last_loc's page", "paged", "I4", edit(
        f"{PAGED}._last_loc_pairs", "self._all_owned_once(pages)", "[self._states.once(pages)]",
    )),
    Bug("a half-filled page is continued twice", "paged", "I4", edit(
        f"{PAGED}._last_loc_pairs", "self._all_owned_once(pages)", "[self._states.owned(pages)]",
    )),
    Bug("last_loc may lie anywhere in its page", "paged", "I4", edit(
        f"{PAGED}._last_loc_pairs",
        "(torch.remainder(after_last, self._page_size), offsets)", "(offsets, offsets)",
    )),
    Bug("an empty prefix may have a last_loc", "paged", "I4", edit(
        f"{PAGED}._last_loc_pairs",
        "after_last.new_zeros(after_last.shape)", "after_last",
        "if not plan.shortest_prefix:", "if False:",
    )),
    Bug("an empty batch crashes", "paged", "I68", edit(
        f"{PAGED}.alloc_extend", "if not batch_size:", "if not batch_size > 0 / batch_size:",
    )),
)  # fmt: skip

BUGS = (*CAPACITY, *PLACEMENT, *ARGUMENTS)
