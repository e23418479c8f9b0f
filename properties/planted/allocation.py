"""Bugs in the ways to take slots, in capacity, and in merging. Spec: `spec/core.md` §3 and §4."""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

PAGED = "allocators.paged:PagedTokenToKVPoolAllocator"
TOKEN = "allocators.token:TokenToKVPoolAllocator"
BASE = "allocators.base:BaseTokenToKVPoolAllocator"
BOOK = "allocators.book:Book"
PAGES = "allocators.page_book:PageBook"
SLOTS = "allocators.slot_book:SlotBook"
LIST = "allocators.free_list:FreeList"
STACK = "allocators.free_list:PageStack"
TAKE = "pages = self.take(plan.num_pages)"
FREE = "self.free_list.num_free"

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
        "if not self._book.fits(num_pages, bound=num_pages):",
        "fits = self._book.fits(num_pages, bound=num_pages)\n"
        "    slots = self._book.take_slots(num_pages)\n    if not fits:",
        "return self._book.take_slots(num_pages)", "return slots",
    ), entry=81),
    Bug("extend tests capacity after the pages are taken", "paged", "I9", edit(
        f"{PAGED}.alloc_extend",
        "return None", "self._book.take(plan.num_pages)\n        return None",
    ), entry=11),
    Bug("an extend goes on past the end of the free list", "paged", "I8", edit(
        f"{PAGED}.alloc_extend", "return None", "pass",
    ), entry=11),
    Bug("an extend tests capacity in tokens", "paged", "I8", edit(
        f"{PAGED}.alloc_extend", "fits(plan.num_pages, bound)",
        "fits(plan.num_tokens // self.page_size, bound)",
    ), also=("I11",), entry=17),
    Bug("the token allocator takes before it tests", "token", "I9", edit(
        f"{TOKEN}.alloc",
        "if not self._book.fits(size, bound=size):",
        "fits = self._book.fits(size, bound=size)\n"
        "    slots = self._book.take_slots(size)\n    if not fits:",
        "return self._book.take_slots(size)", "return slots",
    )),
    Bug("staged pages are ignored by extend", "paged", "I11", edit(
        f"{PAGED}.alloc_extend", "if not self._book.fits(plan.num_pages, bound):",
        "if plan.num_pages > self._book.free_list.num_free:",
    ), also=("I4",), entry=13),
    Bug("an extend of more tokens than a block is never served", "paged", "I11", edit(
        f"{PAGED}.alloc_extend", "if not self._book.fits(plan.num_pages, bound):",
        "if plan.num_tokens > 32 or not self._book.fits(plan.num_pages, bound):",
    ), limits={"page_size": (16,), "num_pages": (4,)}, entry=12),
    Bug("staged pages are ignored by decode", "paged", "I11", edit(
        f"{PAGED}.alloc_decode", "if not self._book.fits(plan.num_pages, bound=batch_size):",
        "if plan.num_pages > self._book.free_list.num_free:",
    ), also=("I4",), entry=13),
    Bug("staged slots are ignored by alloc", "token", "I11", edit(
        f"{TOKEN}.alloc", "if not self._book.fits(size, bound=size):",
        "if size > self._book.free_list.num_free:",
    )),
    Bug("one page more than there is", "paged", "I8", edit(
        f"{BOOK}.fits", f"num_pages <= {FREE}", f"num_pages <= {FREE} + 1",
    )),
    Bug("the last page is never used", "paged", "I11", edit(
        f"{BOOK}.fits", f"num_pages <= {FREE}", f"num_pages < {FREE} or not num_pages",
    )),
    Bug("available_size forgets what is staged", "paged", "I2", edit(
        f"{BASE}.available_size",
        "(self._book.free_list.num_free + self._book.free_list.num_staged)",
        "self._book.free_list.num_free",
    )),
    Bug("a merge loses a page", "paged", "I2", edit(
        f"{LIST}.merge", "self.staged())", "self.staged()[1:])",
    ), also=("I6", "I9", "I68")),
    Bug("a merge doesn't sort", "paged", "I71", edit(
        f"{LIST}.merge", "self._arrays.sorted(both)", "both",
    ), False),
    Bug("an allocation sorts although it needn't", "paged", "I71", edit(
        f"{BOOK}.fits", f" and bound > {FREE}", "",
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
        f"{PAGES}.extend", TAKE,
        f"{TAKE}\n    spare = self.free_list.free()[:1]\n"
        "    if plan.num_pages and spare.shape[0]:\n"
        "        pages = self.arrays.joined((pages[:-1], spare))",
    ), entry=10),
    Bug("an extend writes its first page twice", "paged", "I6", edit(
        f"{PAGES}.extend", TAKE,
        "pages = self.arrays.copy(self.take(plan.num_pages))\n"
        "    if plan.num_pages > 1:\n        pages[-1] = pages[0]",
    )),
    Bug("a decode goes on behind a full page", "paged", "I6", edit(
        "kernels.decode:place", "after_last[opening] = new_pages * page_size",
        "behind = after_last[opening]\n"
        "        after_last[opening] = behind + (behind == 0) * new_pages * page_size",
    )),
    Bug("a decode lies one slot too far", "paged", "I7", edit(
        "kernels.decode:place", "if batch.num_pages:", "after_last += 1\n    if batch.num_pages:",
    ), also=("I12",)),
    Bug("an extend lies one slot too near", "paged", "I7", edit(
        "kernels.extend:place", "firsts[half_at] = after_last[half]",
        "firsts[half_at] = after_last[half] - (batch.offsets[half] > 1)",
    )),
    Bug("a decode counts its pages without the new token", "paged", "I8", edit(
        "kernels.decode:plan", "(opening.shape[0],", "(int((seq_lens % page_size == 0).sum()),",
    ), also=("I3", "I6", "I7", "I11", "I12", "I34"), entry=16),
    Bug("alloc begins one slot into its pages", "paged", "I52", edit(
        "kernels.release:expand_pages", "+ page_offsets)", "+ page_offsets + 1)",
    ), also=("I6",), limits={"page_size": (2, 3, 4)}),
    Bug("a pool says another page size than it has", "paged", "I52", edit(
        f"{BASE}.snapshot", '"page_size": self.page_size', '"page_size": 2 * self.page_size',
    )),
    Bug("alloc gives 32-bit ids", "paged", "I53", edit(
        f"{PAGES}.take_slots", "self.arrays.tensor(pages)",
        "self.arrays.tensor(pages).to(torch.int32)",
    )),
    Bug("page offsets run backwards", "paged", "I7", edit(
        "kernels.release:expand_pages", "+ page_offsets)", "+ page_offsets[::-1])",
    )),
    Bug("half-filled pages of a batch are swapped", "paged", "I12", edit(
        "kernels.extend:place", "firsts[half_at] = after_last[half]",
        "offsets = batch.offsets[half]\n"
        "        firsts[half_at] = (after_last[half] - offsets)[::-1] + offsets",
    )),
    Bug("requests take their new pages in reverse", "paged", "I71", edit(
        f"{PAGES}.extend", TAKE, f"{TAKE}[::-1]",
    ), False),
)  # fmt: skip

OWNED_ONCE = "truths += [self.states.owned(halves), self.arrays.once(halves)]"

ARGUMENTS = (
    Bug("num_new_pages is trusted", "paged", "I4", edit(
        "allocators.batches:extend_errors",
        "if pages is not None and pages != batch.num_pages:", "if False:",
    )),
    Bug("seq below prefix is accepted", "paged", "I4", edit(
        "kernels.extend:plan", "np.minimum.reduce(lengths, None) < 0:",
        "np.minimum.reduce(prefix_lens) < 0:",
    )),
    Bug("extend_num_tokens is trusted", "paged", "I4", edit(
        "allocators.batches:extend_errors",
        "if tokens is not None and tokens != batch.num_tokens:", "if False:",
    )),
    Bug("the device's lengths aren't compared", "paged", "I4", edit(
        f"{PAGES}._batch_agrees", "zip(lens, hosts, strict=True)", "()",
    )),
    Bug("nobody asks who owns last_loc's page", "paged", "I4", edit(
        f"{PAGES}._batch_agrees", OWNED_ONCE, "truths.append(self.arrays.once(halves))",
    )),
    Bug("a half-filled page is continued twice", "paged", "I4", edit(
        f"{PAGES}._batch_agrees", OWNED_ONCE, "truths.append(self.states.owned(halves))",
    )),
    Bug("last_loc may lie anywhere in its page", "paged", "I4", edit(
        f"{PAGES}._batch_agrees",
        "truths.append(self.arrays.same(pages * self.page_size, starts))", "pass",
    )),
    Bug("an empty prefix may have a last_loc", "paged", "I4", edit(
        f"{PAGES}._batch_agrees", "if fresh.shape[0]:", "if False:",
    )),
    Bug("an empty batch crashes", "paged", "I68", edit(
        f"{PAGED}.alloc_extend", "if not batch_size:", "if not batch_size > 0 / batch_size:",
    )),
)  # fmt: skip

BUGS = (*CAPACITY, *PLACEMENT, *ARGUMENTS)
