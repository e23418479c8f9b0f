"""Audits: each way in which the books of a pool can contradict each other is told, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from impl import ReqToTokenPool
from impl.allocators import recount, states
from impl.rows import Handle
from properties.test_impl import ids, paged

#: pages 1 and 2 of 2 slots free, 3 staged, 4 parked by slots, 5 by page ids, 6 and 7 out
SOUND: dict[str, Any] = {
    "states": [
        states.RESERVED,
        states.FREE,
        states.NEVER,
        states.STAGED,
        states.PARKED_SLOTS,
        states.PARKED_PAGES,
        states.OWNED,
        states.OWNED,
        states.BEYOND,
    ],
    "free": [1, 2],
    "staged": [3],
    "parked_slots": [[8, 9]],
    "parked_pages": [[5]],
    "page_size": 2,
    "num_parked": 2,
    "holders": {6: Handle(1, 4)},
}


def with_state(page: int, state: int) -> list[int]:
    by_page = list(SOUND["states"])
    by_page[page] = state
    return by_page


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"free": [1, 2, 6]}, ["page 6 is held by (1, 4) and free", "owned by its state"]),
        ({"free": [1, 2, 3]}, ["page 3 is staged and also free"]),
        ({"free": [2]}, ["page 1 is owned by the lists, free by its state"]),
        ({"free": [1, 2, 2]}, ["page 2 is free and also free"]),
        ({"free": [1, 2, 0]}, ["page 0 is free but not one of this pool's"]),
        ({"free": [1, 2, 8]}, ["page 8 is free but not one of this pool's"]),
        ({"free": [1, 2, 9]}, ["page 9 is free but not one of this pool's"]),
        ({"free": [1, 2, 7]}, ["page 7 is free by the lists, owned by its state"]),
        ({"staged": []}, ["page 3 is owned by the lists, freed and staged by its state"]),
        ({"staged": [3, 5]}, ["page 5 is parked by page ids and also freed and staged"]),
        ({"parked_slots": []}, ["2 pages count as parked, the piles hold 1"]),
        ({"parked_pages": [[5], [5]]}, ["the piles hold 3", "page 5 is parked"]),
        ({"num_parked": 1}, ["1 pages count as parked, the piles hold 2"]),
        ({"holders": {3: Handle(1, 4)}}, ["page 3 is held by (1, 4) and freed and staged"]),
        ({"holders": {2: Handle(5, 1)}}, ["page 2 is held by (5, 1) and free"]),
        (
            {"states": with_state(6, states.FREE)},
            ["page 6 is owned by the lists, free by its state"],
        ),
        ({"states": with_state(0, states.FREE)}, ["page 0 is reserved by the lists, free"]),
        (
            {"states": with_state(3, states.NEVER)},
            ["page 3 is freed and staged by the lists, not issued"],
        ),
    ],
    ids=str,
)
def test_pages(changes: dict[str, Any], words: list[str]) -> None:
    """A page that is nowhere, in two places, or elsewhere than its state says is I34."""
    assert recount.audit(**SOUND) == []
    found = recount.audit(**{**SOUND, **changes})
    assert found
    assert all(line.startswith("I34: ") for line in found)
    for word in words:
        assert any(word in line for line in found), found


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: rows.free_slots.append(rows.free_slots[0]), "aren't a partition of 1..3"),
        (lambda rows: rows.free_slots.pop(), "aren't a partition of 1..3"),
        (lambda rows: rows._is_held.__setitem__(2, 0), "aren't a partition of 1..3"),
        (lambda rows: rows.req_generation.__setitem__(0, 1), "have row 0 or a negative one"),
        (lambda rows: rows.req_generation.__setitem__(1, -1), "have row 0 or a negative one"),
        (lambda rows: rows.req_generation.__setitem__(1, 1), "rows were handed out 2 times"),
        (lambda rows: rows.req_generation.__setitem__(2, 0), "row 2 is held at generation 0"),
    ],
)
def test_rows(spoil: Callable[[Any], None], words: str) -> None:
    """Rows that are nowhere or in two places, and generations that don't add up, are I34."""
    rows = ReqToTokenPool(size=3, max_context_len=4, device="cpu")
    assert rows.alloc_rows(2) == [2, 3]
    assert rows.audit() == []
    spoil(rows)
    found = rows.audit()
    assert found
    assert all(line.startswith("I34: ") for line in found)
    assert any(words in line for line in found), found


def test_a_pool_counts_its_own_books() -> None:
    """The audit of an allocator is of its own lists, states, piles and holders."""
    pool = paged(4)
    pool.alloc(3 * 48)
    pool.free_group_begin()
    pool.free_page_ids(ids(3))
    assert pool.audit() == []
    pool._book.num_parked += 1
    assert len(pool.audit()) == 1
    pool._book.num_parked -= 1
    pool._book.states.by_page[4] = states.OWNED
    assert [line for line in pool.audit() if "page 4 is free by the lists" in line]
