"""An allocator as one immutable value, and the words to say operations in (core.md §3-4b)."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from reference.refusal import KINDS

Numbers = tuple[int, ...]
Answer = Numbers | str | None
Ids = Sequence[int]
Segments = Iterable[tuple[Ids, int]]


class State(NamedTuple):
    """`slot_pile` and `page_pile` are what the open group has parked, call by call."""

    is_token: bool
    size: int
    page_size: int
    need_sort: bool
    free: Numbers
    staged: Numbers = ()
    owned: frozenset[int] = frozenset()
    issued: frozenset[int] = frozenset()
    group: bool = False
    slot_pile: tuple[Numbers, ...] = ()
    page_pile: tuple[Numbers, ...] = ()
    held: frozenset[tuple[int, int, int]] = frozenset()  # (page, row, generation): §5a
    table: int | None = None  # the table whose rows hold pages


Next = tuple[State, Answer]


def token(size: int, need_sort: bool = False) -> State:
    """§3: a page is a slot."""
    return State(True, size, 1, need_sort, tuple(range(1, size + 1)))


def paged(size: int, page_size: int, need_sort: bool = False) -> State:
    """§4: `num_pages = size // page_size`; the remainder is never issued."""
    return State(False, size, page_size, need_sort, tuple(range(1, size // page_size + 1)))


def snapshot(state: State) -> dict[str, Any]:
    """The state in the form in which the reference shows its own."""
    return {
        "size": state.size,
        "page_size": state.page_size,
        "free": list(state.free),
        "staged": list(state.staged),
        "group": state.group,
        "parked_slots": [list(slots) for slots in state.slot_pile],
        "parked_pages": [list(pages) for pages in state.page_pile],
        "holders": {page: holder_of(state, page) or "anonymous" for page in sorted(state.owned)},
        "bound": state.table is not None,
        "issued": sorted(state.issued),
    }


def holder_of(state: State, page: int) -> tuple[int, int] | None:
    """§5a: who took the page through the table; None if nobody did."""
    return next(((row, generation) for p, row, generation in state.held if p == page), None)


def without(state: State, pages: Iterable[int]) -> State:
    """§5a: these are nobody's, and nobody holds them."""
    gone = set(pages)
    held = frozenset(entry for entry in state.held if entry[0] not in gone)
    return state._replace(owned=state.owned - gone, held=held)


def worst(kinds: Iterable[str | None]) -> str | None:
    """§4b: of several faults the error names the smallest."""
    return min((kind for kind in kinds if kind), key=KINDS.index, default=None)


def repeated(ids: Ids) -> str | None:
    """§4b: twice within one call."""
    return "Duplicate" if len(set(ids)) < len(ids) else None


def ceil_pages(num_tokens: int, page_size: int) -> int:
    """Pages that so many tokens touch."""
    return -(-num_tokens // page_size)


def why_not(state: State, page: int) -> str | None:
    """§4b: the kind of fault in giving `page` back."""
    if page in state.owned:
        return None
    if page not in range(state.size // state.page_size + 1):
        return "OutOfRange"
    if page == 0:
        return "Reserved"
    return "DoubleFree" if page in state.issued else "NotOwned"


def merge_and_sort_free(state: State) -> Next:
    """§4: with nothing staged it doesn't sort."""
    if not state.staged:
        return state, None
    return state._replace(free=tuple(sorted(state.free + state.staged)), staged=()), None


def merged_for(state: State, bound: int) -> State:
    """§4: merge if pages are staged and the bound exceeds the free list."""
    return merge_and_sort_free(state)[0] if bound > len(state.free) else state


def taken(state: State, count: int) -> State:
    """Without the first `count` free pages, which are out now."""
    pages = frozenset(state.free[:count])
    return state._replace(
        free=state.free[count:], owned=state.owned | pages, issued=state.issued | pages
    )


def given_back(state: State, pages: Ids) -> State:
    """§3: to the end. §4: to the front. With `need_sort`: staged."""
    freed = tuple(pages)
    state = without(state, freed)
    if state.need_sort:
        return state._replace(staged=state.staged + freed)
    return state._replace(free=state.free + freed if state.is_token else freed + state.free)


def parked(state: State, slots: Ids = (), pages: Ids = ()) -> State:
    """§4: copied and parked; empty frees are no-ops."""
    out = {slot // state.page_size for slot in slots} | set(pages)
    return without(state, out)._replace(
        slot_pile=state.slot_pile + ((tuple(slots),) if slots else ()),
        page_pile=state.page_pile + ((tuple(pages),) if pages else ()),
    )


def parked_by_slots(state: State) -> frozenset[int]:
    """Pages that a further slot free of this group may name again."""
    return frozenset(slot // state.page_size for slot in chain(*state.slot_pile))
