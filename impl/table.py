"""Checked writes into the row table. Spec: `spec/core.md` §2 (`write`)."""

from __future__ import annotations

import math
from typing import Any

import torch

from impl import checks
from impl.errors import MAX_IDS_SHOWN, OutOfRange, PoolError, StaleHandle, WrongDtype, WrongShape

INT32 = torch.iinfo(torch.int32)

Errors = list[PoolError | None]


def write(table: torch.Tensor, indices: Any, values: Any, only_row: int | None, stale: str) -> None:
    """Store `values` at `indices` = (rows, cols), or raise the smallest fault and store nothing.

    `only_row` is the one row that may be named, `stale` what is wrong with the handle, if
    anything. O(cells); on an accelerator one host read per tensor given.
    """
    if not isinstance(indices, tuple) or len(indices) != 2:
        raise WrongShape("write: indices must be a pair (rows, cols).")
    rows, cols = indices
    num_rows, width = table.shape
    errors: Errors = [StaleHandle(stale) if stale else None]
    _check_index(rows, "row", num_rows, table.device, errors)
    if isinstance(cols, slice):
        _check_slice(cols, width, errors)
    else:
        _check_index(cols, "column", width, table.device, errors)
    _check_values(values, table.device, errors)
    if only_row is not None and not isinstance(rows, torch.Tensor) and rows != only_row:
        errors.append(StaleHandle(_other_rows([rows], only_row)))
    checks.raise_first(errors)
    shape = _shape(rows, cols, width)
    if isinstance(values, torch.Tensor) and values.numel() != math.prod(shape):
        raise WrongShape(
            f"write: {values.numel()} values for {math.prod(shape)} cells. Give one for each."
        )
    _check_elements(rows, cols, values, table)
    if only_row is not None and isinstance(rows, torch.Tensor):
        others = rows[rows != only_row].tolist()
        if others:
            raise StaleHandle(_other_rows(others, only_row))
    if isinstance(values, torch.Tensor):
        values = values.reshape(shape).to(torch.int32)
    table[rows, cols] = values


def _check_index(value: Any, name: str, limit: int, device: torch.device, errors: Errors) -> None:
    if isinstance(value, torch.Tensor):
        errors.append(checks.ids_fault(value, f"{name}s", device))
        return
    try:
        number = checks.host_int(value, f"a {name}")
    except WrongDtype as error:
        errors.append(error)
        return
    if not 0 <= number < limit:
        errors.append(OutOfRange(f"write: {name} {number} is outside 0..{limit - 1}."))


def _check_slice(cols: slice, width: int, errors: Errors) -> None:
    try:
        start = 0 if cols.start is None else checks.host_int(cols.start, "slice start")
        stop = width if cols.stop is None else checks.host_int(cols.stop, "slice stop")
        step = 1 if cols.step is None else checks.host_int(cols.step, "slice step")
    except WrongDtype as error:
        errors.append(error)
        return
    if not 0 <= start <= stop <= width:
        errors.append(OutOfRange(f"write: columns {start}:{stop} aren't within 0:{width}."))
    if step != 1:
        errors.append(WrongShape(f"write: columns in steps of {step}. Use a tensor for them."))


def _check_values(values: Any, device: torch.device, errors: Errors) -> None:
    if isinstance(values, torch.Tensor):
        # Any shape will do, as long as the number of values is right.
        if not checks.is_ids(values, device):
            errors.append(checks.ids_fault(values.reshape(-1), "values", device))
        return
    try:
        number = checks.host_int(values, "a value")
    except WrongDtype as error:
        errors.append(error)
        return
    if not INT32.min <= number <= INT32.max:
        errors.append(OutOfRange(f"write: value {number} doesn't fit the int32 table."))


def _shape(rows: Any, cols: Any, width: int) -> tuple[int, ...]:
    """The shape of the cells that (rows, cols) names."""
    row_shape = tuple(rows.shape) if isinstance(rows, torch.Tensor) else ()
    if isinstance(cols, slice):
        if row_shape:
            raise WrongShape("write: a slice of columns goes with one row. Use tensors for both.")
        return (len(range(*cols.indices(width))),)
    col_shape = tuple(cols.shape) if isinstance(cols, torch.Tensor) else ()
    if row_shape and col_shape and row_shape != col_shape:
        raise WrongShape(
            f"write: {row_shape[0]} rows with {col_shape[0]} columns. Give as many of each."
        )
    return col_shape or row_shape


def _check_elements(rows: Any, cols: Any, values: Any, table: torch.Tensor) -> None:
    """`OutOfRange` for the first element of a tensor that the table or int32 can't take."""
    num_rows, width = table.shape
    for name, tensor, least, most in (
        ("row", rows, 0, num_rows - 1),
        ("column", cols, 0, width - 1),
        ("value", values, INT32.min, INT32.max),
    ):
        if not isinstance(tensor, torch.Tensor) or not tensor.numel():
            continue
        if name == "value" and tensor.dtype is torch.int32:
            continue
        lowest, highest = torch.stack(tensor.aminmax()).tolist()
        if not (least <= lowest and highest <= most):
            outside = [each for each in tensor.reshape(-1).tolist() if not least <= each <= most]
            raise OutOfRange(
                f"write: {name}s {outside[:MAX_IDS_SHOWN]} are outside {least}..{most}. "
                "Stay inside the table."
            )


def _other_rows(rows: list[int], row: int) -> str:
    return (
        f"write: rows {rows[:MAX_IDS_SHOWN]} aren't the handle's row {row}. "
        "Write each row with its own handle."
    )
