"""Every form of `write` into the row table of `impl`, legal and not (`spec/core.md` §2)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import reference
from impl import Handle, PoolError, ReqToTokenPool
from impl.errors import OutOfRange, StaleHandle, WrongDtype, WrongShape
from properties.test_impl import ids, rows

T = torch.tensor
CELLS = {
    "a cell": ((2, 3), [(2, 3)]),
    "a slice": ((2, slice(1, 3)), [(2, 1), (2, 2)]),
    "the whole row": ((2, slice(None)), [(2, col) for col in range(6)]),
    "an open slice": ((2, slice(4, None)), [(2, 4), (2, 5)]),
    "an empty slice": ((2, slice(3, 3)), []),
    "columns": ((2, ids(5, 0)), [(2, 5), (2, 0)]),
    "rows": ((ids(1, 4), 2), [(1, 2), (4, 2)]),
    "pairs": ((ids(1, 4, 1), ids(0, 5, 1)), [(1, 0), (4, 5), (1, 1)]),
    "int32 pairs": ((T([3, 0], dtype=torch.int32), T([0, 1], dtype=torch.int32)), [(3, 0), (0, 1)]),
    "nothing": ((ids(), ids()), []),
    "row 0": ((0, slice(0, 2)), [(0, 0), (0, 1)]),
}


@pytest.mark.parametrize("values", ["scalar", "int64", "int32", "extreme"])
@pytest.mark.parametrize("form", CELLS)
def test_write_forms(form: str, values: str) -> None:
    """Each way to name cells, with each way to give values, writes just those cells."""
    indices, cells = CELLS[form]
    pool, expected = rows(), torch.zeros(5, 6, dtype=torch.int32)
    numbers = [(-(2**31), 2**31 - 1)[i % 2] if values == "extreme" else 7 + i for i in range(6)]
    given: Any = numbers[0]
    if values != "scalar":
        given = T(numbers[: len(cells)], dtype=torch.int32 if values == "int32" else torch.int64)
    pool.write(indices, given)
    for place, (row, col) in enumerate(cells):
        expected[row, col] = numbers[0 if values == "scalar" else place]
    assert torch.equal(pool.req_to_token, expected)
    assert pool.req_to_token.dtype == torch.int32


BAD_WRITES: list[tuple[Any, Any, type[PoolError]]] = [
    ((5, 0), 1, OutOfRange),
    ((-1, 0), 1, OutOfRange),
    ((1, 6), 1, OutOfRange),
    ((1, -1), 1, OutOfRange),
    ((1, slice(4, 7)), 1, OutOfRange),
    ((1, slice(-2, None)), 1, OutOfRange),
    ((1, slice(3, 2)), 1, OutOfRange),
    ((1, slice(0, 4, 2)), 1, WrongShape),
    ((ids(1, 5), 0), 1, OutOfRange),
    ((1, ids(0, 6)), 1, OutOfRange),
    ((ids(1, 5).to(torch.int32), 0), 1, OutOfRange),
    ((1, ids(0, 6).to(torch.int32)), 1, OutOfRange),
    ((1, 0), 2**31, OutOfRange),
    ((1, 0), -(2**31) - 1, OutOfRange),
    ((1, slice(0, 2)), ids(1, 2**31), OutOfRange),
    ((1, slice(0, 2)), ids(1, 2, 3), WrongShape),
    ((ids(1, 2), ids(1, 2, 3)), 1, WrongShape),
    ((ids(1, 2), ids(1, 2)), ids(1), WrongShape),
    ((1, 0), 1.0, WrongDtype),
    ((1, 0), True, WrongDtype),
    ((1, slice(0, 2)), torch.ones(2), WrongDtype),
    ((1.0, 0), 1, WrongDtype),
    ((torch.ones(1), ids(0)), 1, WrongDtype),
    ((1, slice(0.0, 2)), 1, WrongDtype),
]


@pytest.mark.parametrize(("indices", "values", "kind"), BAD_WRITES)
def test_bad_writes(indices: Any, values: Any, kind: type[PoolError]) -> None:
    """A write outside the table, of a value beyond int32 or of a wrong shape changes no cell."""
    pool = rows()
    with pytest.raises(PoolError) as caught:
        pool.write(indices, values)
    assert type(caught.value) is kind
    assert not pool.req_to_token.any()


def test_write_through_a_handle() -> None:
    """A handle lets writes reach its own row while it is current, and nothing else."""
    pool = rows()
    pool.alloc_rows(2)
    handle = pool.handle(4)
    pool.write((4, slice(0, 2)), ids(5, 6), handle=handle)
    pool.write((ids(4, 4), ids(2, 3)), ids(7, 8), handle=handle)
    written = pool.req_to_token.clone()
    assert written[4].tolist() == [5, 6, 7, 8, 0, 0]
    for other in (3, 0, ids(4, 3)):
        with pytest.raises(StaleHandle, match="row"):
            pool.write((other, 0), 1, handle=handle)
    pool.free_rows([4])
    for _ in range(2):
        with pytest.raises(StaleHandle, match="4"):
            pool.write((4, 0), 1, handle=handle)
        pool.alloc_rows(1)
    assert torch.equal(pool.req_to_token, written)


def test_handle_may_be_a_pair() -> None:
    """A plain (row, generation) is as good a handle as the one that `handle` returned."""
    pool: Any = rows()
    pool.alloc_rows(1)
    assert pool.is_current((4, 1))
    pool.write((4, 0), 9, handle=(4, 1))
    assert int(pool.req_to_token[4, 0]) == 9
    with pytest.raises(StaleHandle):
        pool.write((4, 0), 1, handle=(4, 2))


AXES: list[Any] = [0, 1, 2, 3, -1, [0], [1, 2], [2, 2], [3], []]
VALUES: list[Any] = [5, 2**31, [6], [6, 7], [2**31, 1], []]


@pytest.mark.parametrize("handle", [None, (1, 1), (2, 1), (2, 2), (9, 1)])
def test_writes_agree_with_the_reference(handle: tuple[int, int] | None) -> None:
    """Every small combination of rows, columns, values and handle has the reference's outcome."""

    def tensor(value: Any) -> Any:
        return T(value, dtype=torch.int64) if isinstance(value, list) else value

    columns = [*AXES, slice(0, 2), slice(2, 1), slice(0, 4), slice(None), slice(0, 3, 2)]
    ours, theirs = ReqToTokenPool(2, 3, device="cpu"), reference.ReqToTokenPool(2, 3)
    for pool in (ours, theirs):
        pool.alloc_rows(1)
    for row, col, value in itertools.product(AXES, columns, VALUES):
        if isinstance(row, list) and isinstance(col, slice):
            continue  # a block of cells: the spec has no such form
        found = expected = "written"
        try:
            theirs.write((row, col), value, handle=handle)
        except reference.Refused as refusal:
            expected = refusal.kind
        try:
            ours.write((tensor(row), tensor(col)), tensor(value), handle=handle and Handle(*handle))
        except PoolError as error:
            found = type(error).__name__
        assert found == expected, (row, col, value)
        assert ours.req_to_token.tolist() == theirs.req_to_token, (row, col, value)
