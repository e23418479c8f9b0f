"""Frees, groups, clear and resize (core.md §3, §4, §4a)."""

from itertools import chain, pairwise
from typing import Any

from reference.oracle.state import (
    Ids,
    Next,
    Numbers,
    Segments,
    State,
    given_back,
    paged,
    parked,
    parked_by_slots,
    repeated,
    token,
    why_not,
    worst,
)


def free(state: State, free_index: Ids) -> Next:
    """§4: the distinct pages, ascending. §3: the ids in the order given."""
    return free_parts(state, [tuple(free_index)], [])


def free_page_ids(state: State, page_ids: Ids) -> Next:
    """§4: exactly these pages."""
    if state.is_token:
        return free(state, page_ids)
    if len(page_ids) > len(state.owned):
        return state, "TooMany"
    kind = worst([*(why_not(state, page) for page in page_ids), repeated(page_ids)])
    if kind:
        return state, kind
    return released(state, page_ids), None


def free_segments(state: State, segments: Segments) -> Next:
    """§4: every B-th slot names a page; no page twice."""
    given = [(tuple(slots), start) for slots, start in segments if slots]
    if state.is_token:
        return free_full_segments(state, given)
    size = state.page_size
    chunked = [[s[i : i + size] for i in range(0, len(s), size)] for s, _ in given]
    chunks = list(chain(*chunked))
    too_many = "TooMany" if len(chunks) > len(state.owned) else None
    kind = worst([*start_faults(given, size), too_many])
    if kind:
        return state, kind
    pages = [chunk[0] // size for chunk in chunks]
    broken = any(
        chunk[0] % size or chunk != tuple(range(chunk[0], chunk[0] + len(chunk)))
        for chunk in chunks
    )
    kind = worst(
        [
            "NotConsecutive" if broken else None,
            *(why_not(state, page) for page in pages),
            repeated(pages),
        ]
    )
    if kind:
        return state, kind
    for segment in chunked:
        state = released(state, [chunk[0] // size for chunk in segment])
    return state, None


def free_full_segments(state: State, segments: Segments) -> Next:
    """§4a: alignment check, then slot frees."""
    given = [(tuple(slots), start) for slots, start in segments if slots]
    parts = [slots for slots, _ in given]
    if state.is_token:
        parts = [tuple(chain(*parts))]
    return free_parts(state, parts, start_faults(given, state.page_size))


def start_faults(given: list[tuple[Numbers, int]], page_size: int) -> list[str]:
    """§4: page-aligned starts, ascending, page-disjoint."""
    starts = [start for _, start in given]
    pages = [(start // page_size, (start + len(s) - 1) // page_size) for s, start in given]
    return (
        ["NegativeSize"] * any(start < 0 for start in starts)
        + ["Misaligned"] * any(start % page_size for start in starts)
        + ["OverlappingSegments"] * any(b[0] <= a[1] for a, b in pairwise(pages))
    )


def free_parts(state: State, parts: list[Numbers], kinds: list[str]) -> Next:
    """Slot frees that are judged together."""
    pages = [{slot // state.page_size for slot in slots} for slots in parts]
    again = parked_by_slots(state)
    fresh = frozenset(chain(*pages)) - again
    kind = worst([*kinds, "TooMany" if len(fresh) > len(state.owned) else None])
    if kind:
        return state, kind
    judged = chain(*pages) if state.is_token else fresh
    twice = repeated(list(chain(*(parts if state.is_token else pages))))
    kind = worst([*(why_not(state, page) for page in judged), twice])
    if kind:
        return state, kind
    for slots in parts:
        if state.group:
            state = parked(state, slots=slots)
        elif state.is_token:
            state = given_back(state, slots)
        else:
            state = given_back(state, sorted({slot // state.page_size for slot in slots}))
    return state, None


def released(state: State, pages: Ids) -> State:
    """Parked in a group, given back otherwise."""
    return parked(state, pages=pages) if state.group else given_back(state, pages)


def free_group_begin(state: State) -> Next:
    """§4: not nestable."""
    return (state, "GroupOpen") if state.group else (state._replace(group=True), None)


def free_group_end(state: State) -> Next:
    """§4: page-id pile in call order, slot pile ascending, old list; staged the other way round."""
    if not state.group:
        return state, "GroupNotOpen"
    page_pile = tuple(chain(*state.page_pile))
    slot_pile = tuple(sorted(parked_by_slots(state)))
    if state.is_token:
        freed = tuple(chain(*state.slot_pile))
    else:
        freed = slot_pile + page_pile if state.need_sort else page_pile + slot_pile
    closed = state._replace(group=False, slot_pile=(), page_pile=())
    return given_back(closed, freed), None


def clear(state: State) -> Next:
    """§4: initial state; closes an open group."""
    maker = token(state.size, state.need_sort)
    if not state.is_token:
        maker = paged(state.size, state.page_size, state.need_sort)
    return maker, None


def resize(state: State, config: Any) -> Next:
    """§4a: refused while anything is owned."""
    size = config.max_total_num_tokens
    kind = worst(
        [
            "NegativeSize" if size < 0 else None,
            "OutOfRange" if size + state.page_size >= 2**31 else None,
            "GroupOpen" if state.group else None,
            "StillOwned" if state.owned else None,
        ]
    )
    return (state, kind) if kind else clear(state._replace(size=size))
