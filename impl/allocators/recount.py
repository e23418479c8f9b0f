"""The audit: every id counted again from the lists, in plain Python. Spec: I34 of `bugs.md`."""

from __future__ import annotations

from collections.abc import Mapping

from impl.allocators.states import (
    BEYOND,
    FREE,
    MEANING,
    NEVER,
    OWNED,
    PARKED_PAGES,
    PARKED_SLOTS,
    RESERVED,
    STAGED,
)
from impl.rows import Handle


def audit(
    *,
    states: list[int],
    free: list[int],
    staged: list[int],
    parked_slots: list[list[int]],
    parked_pages: list[list[int]],
    page_size: int,
    num_parked: int,
    holders: Mapping[int, Handle],
) -> list[str]:
    """Violations of: free, staged, parked and owned are a partition of 1..num_pages.

    `states` has an entry per page and one on either side. O(pool).
    """
    expected = [OWNED] * len(states)
    expected[0], expected[-1] = RESERVED, BEYOND
    slot_pages = {slot // page_size for slots in parked_slots for slot in slots}
    page_pages = [page for pages in parked_pages for page in pages]
    problems: list[str] = []
    for where, pages, state in (
        ("free", free, FREE),
        ("staged", staged, STAGED),
        ("parked by page ids", page_pages, PARKED_PAGES),
        ("parked by slots", slot_pages, PARKED_SLOTS),
    ):
        for page in pages:
            if not 0 < page < len(states) - 1:
                problems.append(f"I34: page {page} is {where} but not one of this pool's")
            elif expected[page] != OWNED:
                problems.append(f"I34: page {page} is {where} and also {MEANING[expected[page]]}")
            else:
                expected[page] = state
    if len(slot_pages) + len(page_pages) != num_parked:
        problems.append(
            f"I34: {num_parked} pages count as parked, the piles hold "
            f"{len(slot_pages) + len(page_pages)}"
        )
    problems += [
        f"I34: page {page} is held by {tuple(holder)} and {MEANING[expected[page]]}"
        for page, holder in holders.items()
        if expected[page] != OWNED
    ]
    # a page never issued is free as well
    if [FREE if state == NEVER else state for state in states] != expected:
        problems += [
            f"I34: page {page} is {MEANING[want]} by the lists, {MEANING[have]} by its state"
            for page, (want, have) in enumerate(zip(expected, states, strict=True))
            if want != have and (want, have) != (FREE, NEVER)
        ]
    return problems
