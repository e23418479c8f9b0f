"""Bugs in the Triton kernels. Spec: `spec/core.md` §4, §5, §5a.

None of them reads or writes outside the buffers of a pool: those are for the kernel tests, which
have guards around them: their table stands in `properties/kernels/test_planted.py`.
"""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

EXTEND = "kernels.device.extend"
RELEASE = "kernels.device.release"
SLOTS = "kernels.device.slots"
TAKE = "kernels.device.take"
MERGE = "kernels.device.merge"
COMMON = "kernels.device.common"
ROWS, LATE, LATE_TOKEN = "paged_rows", "paged_deferred", "token_deferred"

LOOKS = "if tl.load(record) == 0:"
BLIND = "if tl.load(record) >= 0:"
UNCLAIM = "tl.store(claim + page, NO_CLAIM"
# Several void calls behind the faulty one.
LAGS = {"lag": (2, 3, 5), "delay": (100,), "page_size": (1, 2, 3), "num_pages": (1, 2, 4, 8)}
# Fewer are soon made short, where a step takes long.
FEW = {**LAGS, "lag": (2, 3), "page_size": (1, 2)}
PILED = {"page_size": (1, 2), "num_pages": (8,), "need_sort": (False,)}
SORTED = {"need_sort": (True,)}
# More than a tile of tokens, and more than a plan fills by itself.
LONG = {"page_size": (700,), "num_pages": (4,)}
LONGER = {"page_size": (4096,), "num_pages": (2,)}
# One row, handed out again and again.
REUSED = {"page_size": (2, 3), "rows": (1,)}
HALF = {"page_size": (3, 4), "num_pages": (4, 8)}

# Commands that show a bug soon.
GROWTH = ("extend", "decode", "free")
LINES = ("admit", "extend_rows", "decode_rows", "free_line")
TOKENS = ("alloc", "free", "free_twice_in_call", "free_again")
# A fault of plain calls is the soonest to come up, and to be made short.
FAULTY = ("alloc", "free", "free_page_ids", "free_twice_in_call")
GROWING = ("admit", "extend_rows", "free_line", "row_copies_differ")

PLACED = (
    Bug("the rank of a new page is another request's", "paged", "I6", edit(
        f"{EXTEND}:_fill_tile", "tl.load(sums + n + i,", "tl.load(sums + n + i * 0,",
    ), commands=GROWTH),
    Bug("a tile of tokens starts one too late", "paged", "I7", edit(
        f"{EXTEND}:plan", "range(0, fused_tokens, BLOCK)", "range(0, fused_tokens, BLOCK + 1)",
    ), limits=LONG, commands=GROWTH),
    Bug("tiles of a fill of its own overlap by one", "paged", "I7", edit(
        f"{EXTEND}:fill", "to(tl.int64) * BLOCK,", "to(tl.int64) * (BLOCK - 1),",
    ), limits=LONGER, commands=("extend", "free")),
    Bug("the second token of a page goes on in it", "paged", "I12", edit(
        f"{EXTEND}:_fill_tile", "(offset > 0)", "(offset > 1)",
    ), limits=HALF, commands=GROWTH),
    Bug("an extend opens its pages at their second token", "paged", "I34", edit(
        f"{EXTEND}:_fill_tile", "fresh & (in_page == 0)", "fresh & (in_page == 1)",
    ), limits=HALF, commands=GROWTH),
    Bug("a page is taken from one past the list", "paged", "I6", edit(
        f"{TAKE}:take_slots", "at = head + page_at\n", "at = head + page_at + 1\n",
    ), commands=("alloc", "free")),
    Bug("a slot is taken from one past the list", "token", "I6", edit(
        f"{TAKE}:take_slots", "at = head + page_at\n", "at = head + page_at + 1\n",
    ), commands=("alloc", "free")),
    Bug("what is taken isn't owned", "token", "I34", edit(
        f"{TAKE}:take_slots", "mask=live & (in_page == 0)", "mask=live & (in_page > 0)",
    )),
    Bug("holders are the first request's", ROWS, "I34", edit(
        f"{EXTEND}:_fill_tile",
        "holder_row + page, row.to(", "holder_row + page, tl.load(host).to(",
    ), commands=LINES),
    Bug("entries are written one position too early", ROWS, "I33", edit(
        f"{EXTEND}:_fill_tile", "position = prefix + t - before",
        "position = tl.maximum(prefix + t - before - 1, 0)",
    ), also=("I7",), commands=LINES),
    Bug("the last slot is read from a row's first entry", ROWS, "I11", edit(
        f"{EXTEND}:_last_loc", "(prefix - 1) * column_stride", "0 * prefix",
    ), commands=LINES),
)  # fmt: skip

CHECKED = (
    Bug("the device's seq isn't compared", "paged", "I4", edit(
        f"{EXTEND}:_differing", "differs = found_end != end", "differs = end < 0",
    ), commands=(*GROWTH, "copies_differ")),
    Bug("the device's prefix isn't compared", "paged", "I4", edit(
        f"{EXTEND}:_differing", "| (found_prefix != prefix)", "",
    ), commands=(*GROWTH, "copies_differ")),
    Bug("the device's row isn't compared", ROWS, "I4", edit(
        f"{EXTEND}:_differing", "| (found_row != row)", "",
    ), commands=(*LINES, "row_copies_differ")),
    Bug("nobody asks who owns last_loc's page", "paged", "I4", edit(
        f"{EXTEND}:_misplaced", " | (state != OWNED)", "",
    ), limits=HALF, commands=(*GROWTH, "last_loc_not_owned")),
    Bug("a half-filled page of another generation is continued", ROWS, "I4", edit(
        f"{EXTEND}:_misplaced", "((holder != row) | (since != generation))", "(holder != row)",
    ), limits=REUSED, commands=(*LINES, "give_rows", "adopt", "half_page_of_another")),
    Bug("an entry never written is a last slot", ROWS, "I4", edit(
        f"{EXTEND}:_misplaced", "(last < page_size)", "(last < 0)",
    ), limits={"page_size": (1,)}, commands=(*LINES, "never_written")),
    Bug("half-filled pages aren't claimed", "paged", "I4", edit(
        f"{EXTEND}:plan", "where(clash, CLASH, NO_FAULT)", "where(clash & ~m, CLASH, NO_FAULT)",
    ), limits=HALF, commands=(*GROWTH, "continue_twice")),
    Bug("the claims of a refused extend aren't rolled back", "paged", "I9", edit(
        f"{EXTEND}:plan", UNCLAIM, f"if key == NO_FAULT: {UNCLAIM}",
    ), limits=HALF, commands=(*GROWTH, "continue_twice")),
    Bug("pages given back aren't claimed", "paged", "I4", edit(
        f"{RELEASE}:_page_faults", "where(clash, CLASH, NO_FAULT)",
        "where(clash & bad, CLASH, NO_FAULT)",
    ), commands=("alloc", "free_twice_in_call")),
    Bug("the claims of a refused release aren't rolled back", "paged", "I9", edit(
        f"{RELEASE}:release_runs", UNCLAIM, f"if key == NO_FAULT: {UNCLAIM}",
    ), commands=("alloc", "free_twice_in_call")),
    Bug("a slot's claim isn't rolled back", "token", "I9", edit(
        f"{RELEASE}:release_runs", "NO_CLAIM, mask=valid)", "NO_CLAIM, mask=valid & (page > 1))",
    ), commands=("alloc", "free")),
    Bug("pages of another holder are given back", ROWS, "I4", edit(
        f"{RELEASE}:_page_faults", "fault(other,", "fault(other & bad,",
    ), commands=(*LINES, "give_rows", "adopt", "segment_of_another")),
    Bug("a page beyond the pool is one given back twice", "paged", "I4", edit(
        f"{COMMON}:page_fault", " | (page > num_pages)", "",
    ), renamed=False, commands=("alloc", "free_out_of_range")),  # refused, as another kind
    Bug("what is free may be given back", "token", "I4", edit(
        f"{RELEASE}:_page_faults", "bad = state != OWNED", "bad = (state != OWNED) & (state != 3)",
    ), commands=("alloc", "free", "free_again")),
    Bug("more pages than are out come back", "paged", "I4", edit(
        f"{SLOTS}:release_slots", "if num_distinct > num_out:", "if num_distinct > num_out + 1:",
    ), renamed=False, commands=("alloc", "free", "free_too_many")),  # one id is refused by itself
    Bug("a segment's slots needn't follow each other", "paged", "I36", edit(
        f"{RELEASE}:_expected", "(slot != wanted) | (slot < first)", "slot < 0",
    ), limits=HALF, commands=("extend", "scrambled_segment")),
)  # fmt: skip

GIVEN_BACK = (
    Bug("what is freed keeps its holder", ROWS, "I34", edit(
        f"{RELEASE}:release_runs", "tl.store(holder_row + page, 0, mask=valid)", "pass",
    ), commands=LINES),
    Bug("what is freed by slots keeps its holder", ROWS, "I34", edit(
        f"{SLOTS}:release_slots", "tl.store(holder_row + entry, 0, mask=valid)", "pass",
    ), commands=(*LINES, "free_line_plainly")),
    Bug("segments come back in the order of the call", "paged", "I71", edit(
        f"{RELEASE}:_place", "reverse != 0", "reverse < 0",
    ), limits=PILED, commands=("extend", "free_segments")),
    Bug("full segments come back in the order of the call", "paged", "I71", edit(
        f"{SLOTS}:sort_keys", "reverse != 0", "reverse < 0",
    ), limits=PILED, commands=("extend", "free_full_segments")),
    Bug("a free counts one page too few", "paged", "I2", edit(
        f"{SLOTS}:release_slots", "num_given = num_distinct",
        "num_given = num_distinct - (num_distinct > 1)",
    ), commands=("alloc", "free")),
    Bug("a parked page counts again", "paged", "I1", edit(
        f"{SLOTS}:_judge", "first & (state != PARKED_SLOTS)", "first",
    ), also=("I21", "I34"), commands=(*GROWTH, "free_parked", "group_begin", "group_end")),
    Bug("a merge loses the last tile", "paged", "I34", edit(
        f"{MERGE}:merge_states", "range(0, num_pages, BLOCK)",
        "range(0, num_pages // BLOCK * BLOCK, BLOCK)",
    ), limits=SORTED, also=("I1", "I6"), commands=("alloc", "free", "merge")),
    Bug("a merge loses the last page", "paged", "I34", edit(
        f"{MERGE}:merge_states", "m = page <= num_pages", "m = page < num_pages",
    ), limits=SORTED, also=("I1", "I6"), commands=("alloc", "free", "merge")),
    Bug("what is merged stays staged", "token", "I34", edit(
        f"{MERGE}:merge_states", "tl.store(states + page, FREE, mask=state == STAGED)", "pass",
    ), limits=SORTED, commands=("alloc", "free", "merge")),
)  # fmt: skip

VOID = (
    Bug("a plan doesn't look at the record", LATE, "I9", edit(
        f"{EXTEND}:plan", LOOKS, BLIND,
    ), limits=FEW, commands=GROWING),
    Bug("a take doesn't look at the record", LATE, "I9", edit(
        f"{TAKE}:take_slots", "tl.load(record) == 0", "tl.load(record) >= 0",
    ), limits=LAGS, commands=FAULTY),
    Bug("a take of slots doesn't look at the record", LATE_TOKEN, "I9", edit(
        f"{TAKE}:take_slots", "tl.load(record) == 0", "tl.load(record) >= 0",
    ), limits=LAGS, commands=TOKENS),
    Bug("a release of ids doesn't look at the record", LATE, "I9", edit(
        f"{RELEASE}:release_runs", LOOKS, BLIND,
    ), limits=LAGS, commands=FAULTY),
    Bug("a release of slots doesn't look at the record", LATE, "I9", edit(
        f"{SLOTS}:release_slots", LOOKS, BLIND,
    ), also=("I4",), limits=LAGS, commands=FAULTY),
    Bug("a merge doesn't look at the record", LATE_TOKEN, "I9", edit(
        f"{MERGE}:merge_states", LOOKS, BLIND,
    ), limits={**LAGS, **SORTED}, commands=(*TOKENS, "merge")),
    Bug("a void extend has slots", LATE, "I9", edit(
        f"{EXTEND}:_fill_tile", "tl.where(live, page * page_size + in_page, 0)",
        "page * page_size + in_page",
    ), limits={**FEW, "page_size": (2,), "num_pages": (4, 8)}, commands=GROWING),
    Bug("a refused batch opens its pages", LATE, "I9", edit(
        f"{EXTEND}:plan", "tl.where(key == NO_FAULT, fused_tokens, 0)", "fused_tokens",
    ), limits=LAGS, commands=GROWING),
    Bug("a refused release moves its pages", LATE, "I9", edit(
        f"{RELEASE}:release_runs", "if key == NO_FAULT:\n                    tl.store(states",
        "if key >= 0:\n                    tl.store(states",
    ), limits=LAGS, commands=("alloc", "free_twice_in_call")),
    Bug("the record names the call before", LATE, "I9", edit(
        f"{COMMON}:write_record", "tl.store(record, seq)", "tl.store(record, seq - 1)",
    ), also=("I4",), limits=LAGS, commands=("alloc", "free_twice_in_call")),
)  # fmt: skip

BUGS = (*PLACED, *CHECKED, *GIVEN_BACK, *VOID)
