"""The second oracle: a system as one immutable value, an operation as a pure function.

The reference is tested against it on tiny sizes. It is written from the sentences of `spec/core.md`
§2-5a, in another style, and shares nothing with the reference but the names of the kinds. Functions
have the names and arguments of the methods; each returns the next state and an answer: a tuple of
slots, None, or the kind of a refusal. The types of arguments are not its business.
"""

from reference.oracle.allocation import alloc, alloc_decode, alloc_extend
from reference.oracle.release import (
    clear,
    free,
    free_full_segments,
    free_group_begin,
    free_group_end,
    free_page_ids,
    free_segments,
    resize,
)
from reference.oracle.row_calls import (
    House,
    Table,
    alloc_decode_rows,
    alloc_extend_rows,
    free_rows_segment,
    table,
    write,
)
from reference.oracle.rows import Rows, alloc_rows, clear_rows, free_rows, row_pool
from reference.oracle.state import Answer, State, merge_and_sort_free, paged, snapshot, token

__all__ = [
    "Answer",
    "House",
    "Rows",
    "State",
    "Table",
    "alloc",
    "alloc_decode",
    "alloc_decode_rows",
    "alloc_extend",
    "alloc_extend_rows",
    "alloc_rows",
    "clear",
    "clear_rows",
    "free",
    "free_full_segments",
    "free_group_begin",
    "free_group_end",
    "free_page_ids",
    "free_rows",
    "free_rows_segment",
    "free_segments",
    "merge_and_sort_free",
    "paged",
    "resize",
    "row_pool",
    "snapshot",
    "table",
    "token",
    "write",
]
