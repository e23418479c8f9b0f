"""The request rows of `impl`: handles, the hook on allocation, requests (`write` has its own file).

Spec: `spec/core.md` §2, `spec/pools_states_sizing.md` §1.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from impl import Handle, PoolError
from impl.errors import (
    Duplicate,
    NegativeSize,
    OutOfRange,
    Reserved,
    RowNotHeld,
    Unsupported,
    WrongDtype,
)
from properties.test_impl import rows


def request(row: int | None, allocated: int = 4) -> Any:
    """A request that holds `row`, with as much KV as `alloc` wants of a holder."""
    kv = SimpleNamespace(req_pool_idx=row, kv_allocated_len=allocated, holds_kv=row is not None)
    return SimpleNamespace(kv=kv)


# ---- handles --------------------


def test_handle_lives_as_long_as_its_row_is_held() -> None:
    """A handle is current until its row is freed, and stale when the row is handed out again."""
    pool = rows(1)
    pool.alloc_rows(1)
    first = pool.handle(1)
    assert first == Handle(row=1, generation=1)
    assert pool.is_current(first)
    pool.free_rows([1])
    assert not pool.is_current(first)
    pool.alloc_rows(1)
    second = pool.handle(1)
    assert (second.row, second.generation) == (1, 2)
    assert pool.is_current(second)
    assert not pool.is_current(first)


def test_clear_makes_handles_stale_for_ever() -> None:
    """`clear` makes handles stale, and generations go on from where they were."""
    pool = rows(2)
    pool.alloc_rows(2)
    old = [pool.handle(row) for row in (1, 2)]
    pool.clear()
    assert not any(pool.is_current(handle) for handle in old)
    with pytest.raises(RowNotHeld):
        pool.free_rows([1])
    pool.alloc_rows(2)
    assert not any(pool.is_current(handle) for handle in old)
    assert [pool.handle(row).generation for row in (1, 2)] == [2, 2]


@pytest.mark.parametrize("handle", [(0, 0), (-1, 1), (5, 1), (2**40, 1), (1, 0), (1, 2), (2, 0)])
def test_is_current_answers_for_any_numbers(handle: tuple[int, int]) -> None:
    """`is_current` of a row or generation that never was is False, not an error."""
    pool = rows(4)
    pool.alloc_rows(4)
    pool.free_rows([2])
    assert pool.is_current(Handle(*handle)) is False
    assert pool.is_current(Handle(1, 1)) is True


@pytest.mark.parametrize(
    ("row", "kind"),
    [(0, Reserved), (-1, OutOfRange), (5, OutOfRange), (1, RowNotHeld), (2.0, WrongDtype)],
)
def test_handle_refuses(row: Any, kind: type[PoolError]) -> None:
    """`handle` of a row that nobody holds is refused by kind, and names it."""
    pool = rows(4)
    pool.alloc_rows(2)
    with pytest.raises(kind, match=str(row) if kind is not WrongDtype else "float"):
        pool.handle(row)


# ---- the hook --------------------


def test_hook_sees_every_hand_out() -> None:
    """The hook gets a fresh list of the new rows, after their generations went up, and no other."""
    pool, seen = rows(4), []

    def hook(taken: list[int]) -> None:
        seen.append((list(taken), [int(pool.req_generation[row]) for row in taken]))
        taken.clear()

    pool.register_on_alloc_rows(hook)
    assert pool.alloc_rows(2) == [3, 4]
    assert pool.alloc_rows(0) == []
    assert pool.alloc_rows(3) is None
    holder = request(3)
    assert pool.alloc([holder, request(None)]) == [3, 2]
    assert pool.alloc([holder]) == [3]
    assert seen == [([3, 4], [1, 1]), ([2], [1])]


def test_hook_that_raises() -> None:
    """If the hook raises, the rows are back in their places and the error passes on."""
    pool, asks = rows(4), [request(None), request(None)]
    pool.alloc_rows(1)
    fails = [True]

    def hook(taken: list[int]) -> None:
        if fails:
            raise KeyError("mine")

    pool.register_on_alloc_rows(hook)
    before = pool.snapshot()
    with pytest.raises(KeyError, match="mine"):
        pool.alloc_rows(2)
    with pytest.raises(KeyError, match="mine"):
        pool.alloc(asks)
    after = pool.snapshot()
    assert {**after, "generations": None} == {**before, "generations": None}
    assert after["generations"] == [0, 0, 2, 2, 1]
    assert [ask.kv.req_pool_idx for ask in asks] == [None, None]
    assert pool.audit() == []
    fails.clear()
    assert pool.alloc(asks) == [2, 3]


def test_second_hook() -> None:
    """A second hook is Unsupported, and the first one stays."""
    seen: list[list[int]] = []
    pool = rows(4)
    pool.register_on_alloc_rows(seen.append)
    with pytest.raises(Unsupported, match="hook"):
        pool.register_on_alloc_rows(print)
    pool.alloc_rows(1)
    assert seen == [[4]]


# ---- requests --------------------


def test_two_requests_with_one_free_row() -> None:
    """Two requests that claim one row are a Duplicate, whether anybody holds the row or not."""
    pool = rows(4)
    with pytest.raises(Duplicate):
        pool.alloc([request(2), request(2)])
    pool.alloc_rows(3)
    with pytest.raises(Duplicate):
        pool.alloc([request(2), request(2)])


@pytest.mark.parametrize("row", [None, 0, 1, 5, -1])
def test_free_of_a_request_without_a_held_row(row: int | None) -> None:
    """`free` of a request whose row isn't held is RowNotHeld, whatever row it claims."""
    pool, claims = rows(4), request(row)
    pool.alloc_rows(2)
    with pytest.raises(RowNotHeld):
        pool.free(claims)
    assert claims.kv.req_pool_idx == row
    assert pool.available_size() == 2


def test_sizes_of_rows() -> None:
    """Zero rows are an empty list that nobody else has, and a negative number is refused."""
    pool = rows()
    nothing = pool.alloc_rows(0)
    assert nothing == []
    assert nothing is not pool.free_slots
    with pytest.raises(NegativeSize, match="-1"):
        pool.alloc_rows(-1)
    with pytest.raises(WrongDtype, match="float"):
        pool.alloc_rows(1.0)  # type: ignore[arg-type]
    assert pool.available_size() == 4
