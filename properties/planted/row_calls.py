"""Bugs in allocation and release through the row table. Spec: `spec/core.md` §5a."""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

PAGED = "allocators.paged:PagedTokenToKVPoolAllocator"
BOOK = "allocators.page_book:PageBook"
STATES = "allocators.states:PageStates"
BATCHES = "allocators.row_batches"
SYSTEM = "paged_rows"
WRITE = "self._write(batch.table, batch.rows, plan.prefix_lens, slots)"
# One row, handed out again and again.
REUSED = {"page_size": (2, 3), "rows": (1,)}
HOLDERS = "batch.rows, batch.generations, new_pages)"

HELD = (
    Bug("new pages are held by the wrong row of the batch", SYSTEM, "I34", edit(
        f"{BOOK}._hold", HOLDERS, "batch.rows[::-1], batch.generations[::-1], new_pages)",
    )),
    Bug("new pages are held by the first generation", SYSTEM, "I34", edit(
        f"{BOOK}._hold", HOLDERS, "batch.rows, batch.generations * 0 + 1, new_pages)",
    )),
    Bug("decoded pages have no holder", SYSTEM, "I34", edit(
        f"{BOOK}.decode_rows", "self._hold(", "0 and self._hold(",
    )),
    Bug("what is freed keeps its holder", SYSTEM, "I34", edit(
        f"{STATES}.mark", "if self.has_holders:", "if self.has_holders and state == OWNED:",
    )),
    Bug("what is taken plainly keeps an old holder", SYSTEM, "I34", edit(
        f"{STATES}.mark", "if self.has_holders:", "if False:",
    )),
    Bug("a half page that is continued becomes the row's", SYSTEM, "I34", edit(
        f"{BOOK}.decode_rows", WRITE,
        f"{WRITE}\n    self.states.hold(slots // self.page_size, batch.rows, batch.generations)",
    ), limits={"page_size": (3, 4), "rows": (2, 3)}),
    Bug("clear keeps the holders", SYSTEM, "I34", edit(
        f"{STATES}.reset", "self.holder_rows.zero_()", "pass",
    ), also=("I4", "I9", "I11")),
    Bug("clear keeps the table", SYSTEM, "I66", edit(
        "allocators.book:Book.clear", "self.table = None", "pass",
    )),
)  # fmt: skip

ENTRIES = (
    Bug("a decoded slot is written one position too far", SYSTEM, "I7", edit(
        f"{BOOK}.decode_rows", WRITE,
        WRITE.replace("plan.prefix_lens", "(plan.prefix_lens + 1) % batch.table.shape[1]"),
    ), also=("I33",)),
    Bug("an extend's slots are written one position too far", SYSTEM, "I7", edit(
        f"{BOOK}.extend_rows", "positions += np.arange(plan.num_tokens)",
        "positions += np.arange(1, plan.num_tokens + 1)\n    positions %= batch.table.shape[1]",
    ), also=("I33",)),
    Bug("an extend's slots are written into the first row", SYSTEM, "I7", edit(
        f"{BOOK}.extend_rows", "batch.rows.repeat(new_tokens)",
        "batch.rows[:1].repeat(new_tokens.sum())",
    ), also=("I33",)),
    Bug("a decode writes to the padding row", SYSTEM, "I33", edit(
        f"{BOOK}.decode_rows", WRITE, f"{WRITE}\n    batch.table[0, :1] = 1",
    )),
    Bug("the last slot is read one position too far", SYSTEM, "I11", edit(
        f"{BOOK}._checked_rows", "plan.prefix_lens[begun] - 1",
        "plan.prefix_lens[begun] % batch.table.shape[1]",
    ), also=("I4", "I68")),
    Bug("the table is written although the pool is short", SYSTEM, "I9", edit(
        f"{PAGED}.alloc_extend_rows", "return None",
        "table.req_to_token[batch.rows[:1], -1] += 1\n        return None",
    )),
    Bug("the table is written although an entry is wrong", SYSTEM, "I9", edit(
        f"{BOOK}._checked_rows", "self._refuse_batch(",
        "batch.table[batch.rows[:1], -1] += 1\n        self._refuse_batch(",
    )),
)  # fmt: skip

REFUSALS = (
    Bug("a stale handle is accepted", SYSTEM, "I28", edit(
        f"{BATCHES}:checked_handle", "and not table.is_current(holder)", "and False",
    )),
    Bug("a half page of another holder is continued", SYSTEM, "I4", edit(
        f"{BOOK}._batch_agrees",
        "truths.append(self.states.held_by(halves, *self.arrays.send(rows, generations)))", "pass",
    )),
    Bug("pages of another holder are freed", SYSTEM, "I4", edit(
        f"{BOOK}.checked_segments", "truths.append(self.states.held_by(pages, *holder))", "pass",
    )),
    Bug("an older generation of the row counts as the holder", SYSTEM, "I4", edit(
        f"{STATES}.held_by", "== generations", "<= generations",
    ), limits=REUSED),
    Bug("an entry never written is a last slot", SYSTEM, "I4", edit(
        f"{BOOK}._batch_agrees", "truths.append(after_last[begun] > self.page_size)", "pass",
    ), limits={"page_size": (1,)}),
    Bug("the device's rows aren't compared", SYSTEM, "I4", edit(
        f"{BOOK}._batch_agrees",
        "truths.append(self.arrays.same(self.arrays.ids(batch.on_device), rows))", "pass",
    )),
    Bug("one row twice in a batch is accepted", SYSTEM, "I4", edit(
        f"{BATCHES}:_row_errors", "and (ordered[1:] != ordered[:-1]).all()", "",
    )),
    Bug("a row that nobody holds is accepted", SYSTEM, "I4", edit(
        f"{BATCHES}:_row_errors", "and held_and_generations(table, rows)[0].all()", "",
    )),
    Bug("tokens beyond the row are accepted", SYSTEM, "I4", edit(
        f"{BATCHES}:_row_errors", "and np.maximum.reduce(seq_lens) <= width", "",
    ), also=("I28",)),  # where it is short then, the pool is bound to the table
    Bug("row 0 is a row like any other", SYSTEM, "I4", edit(
        f"{BATCHES}:_row_errors", "ordered[0] >= 1", "ordered[0] >= 0",
        "table, rows)[0]", "table, rows[rows > 0])[0]",
    )),
    Bug("a row of another table is accepted", SYSTEM, "I4", edit(
        f"{BATCHES}:_table_errors", "if book.table not in (None, table):", "if False:",
    )),
    Bug("a row's segment may begin inside a page", SYSTEM, "I36", edit(
        f"{BATCHES}:_position_errors", "and start % book.page_size:", "and False:",
    )),
    Bug("a row's segment is read from its first positions", SYSTEM, "I34", edit(
        f"{BOOK}.free_row", "[holder.row, start:end]", "[holder.row, : end - start]",
    ), also=("I4", "I36", "I1")),
)  # fmt: skip

BUGS = (*HELD, *ENTRIES, *REFUSALS)
