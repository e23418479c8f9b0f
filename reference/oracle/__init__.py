"""The second oracle: a system as one immutable value, an operation as a pure function.

The reference is tested against it on tiny sizes. It is written from the sentences of `spec/core.md`
§2-4b, in another style, and shares nothing with the reference but the names of the kinds. Functions
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
from reference.oracle.rows import Rows, alloc_rows, clear_rows, free_rows, row_pool
from reference.oracle.state import Answer, State, merge_and_sort_free, paged, snapshot, token

__all__ = [
    "Answer",
    "Rows",
    "State",
    "alloc",
    "alloc_decode",
    "alloc_extend",
    "alloc_rows",
    "clear",
    "clear_rows",
    "free",
    "free_full_segments",
    "free_group_begin",
    "free_group_end",
    "free_page_ids",
    "free_rows",
    "free_segments",
    "merge_and_sort_free",
    "paged",
    "resize",
    "row_pool",
    "snapshot",
    "token",
]
