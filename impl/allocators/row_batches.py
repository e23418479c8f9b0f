"""What the host alone knows about a call through the row table: arguments, rows, the plan.

Spec: `spec/core.md` §5a.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from impl import checks
from impl.allocators.batches import (
    argument_errors,
    extend_errors,
    int_or_none,
    seq_error,
    usable,
    well_formed,
)
from impl.allocators.book import Book
from impl.allocators.page_book import RowBatch
from impl.errors import (
    Duplicate,
    Fault,
    Misaligned,
    NegativeSize,
    OutOfRange,
    PoolError,
    StaleHandle,
    Unsupported,
    WrongDevice,
    WrongDtype,
    refusal,
)
from impl.kernels import decode, extend
from impl.kernels.arrays import HostArray, host_array
from impl.rows import ADVICE, Handle, ReqToTokenPool, handle_fields, held_and_generations, row_fault

Tensors = Sequence[torch.Tensor]


def plan_extend_rows(
    book: Book, table: Any, on_device: Tensors, on_host: Tensors, extend_num_tokens: Any
) -> tuple[extend.ExtendPlan, RowBatch]:
    """Plan and rows of an extend whose host data holds together; tensors (rows, prefix, seq)."""
    call = "alloc_extend_rows"
    errors = _table_errors(call, book, table)
    if not well_formed(on_device, on_host, book.device):
        names = ("rows", "prefix_lens", "seq_lens")
        errors += argument_errors(names, on_device, _host(names), on_host, book.device)
    tokens = int_or_none(extend_num_tokens, "extend_num_tokens", errors)
    plan = None
    if usable(on_host):
        rows, prefix_lens, seq_lens = (host_array(each) for each in on_host)
        plan = extend.plan(prefix_lens, seq_lens, book.page_size)
        errors += extend_errors(call, plan, on_host[1:], tokens, None)
        errors += _row_errors(call, table, rows, seq_lens)
    return _bound(book, table, errors, plan, on_device, on_host)


def plan_decode_rows(
    book: Book, table: Any, on_device: Tensors, on_host: Tensors
) -> tuple[decode.DecodePlan, RowBatch]:
    """Plan and rows of a decode whose host data holds together; tensors (rows, seq)."""
    call = "alloc_decode_rows"
    errors = _table_errors(call, book, table)
    if not well_formed(on_device, on_host, book.device):
        names = ("rows", "seq_lens")
        errors += argument_errors(names, on_device, _host(names), on_host, book.device)
    plan = None
    if usable(on_host):
        rows, seq_lens = (host_array(each) for each in on_host)
        plan = decode.plan(seq_lens, book.page_size)
        if plan is None:
            errors.append(seq_error(call, on_host[1]))
        errors += _row_errors(call, table, rows, seq_lens)
    return _bound(book, table, errors, plan, on_device, on_host)


def _host(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}_cpu" for name in names)


def _bound(
    book: Book,
    table: Any,
    errors: list[PoolError | None],
    plan: Any,
    on_device: Tensors,
    on_host: Tensors,
) -> tuple[Any, RowBatch]:
    """The plan and its rows, unless there are errors; the book is bound to the table then."""
    checks.raise_first(errors)
    assert plan is not None, "a batch without a plan has an error"
    book.table = table
    rows = host_array(on_host[0])
    _, generations = held_and_generations(table, rows)
    return plan, RowBatch(table.req_to_token, on_device[0], rows, generations)


def _table_errors(call: str, book: Book, table: Any) -> list[PoolError | None]:
    if not isinstance(table, ReqToTokenPool):
        found = type(table).__name__
        return [WrongDtype(f"{call}: the table must be a ReqToTokenPool, got {found}.")]
    if table.device != book.device:
        return [WrongDevice(f"{call}: the table is on {table.device}, the pool on {book.device}.")]
    if book.table not in (None, table):
        return [
            Unsupported(
                f"{call}: the pages of this pool are held by rows of another table. Use one "
                "table with a pool, or clear it before another."
            )
        ]
    return []


def _row_errors(
    call: str, table: Any, rows: HostArray, seq_lens: HostArray
) -> list[PoolError | None]:
    """What is wrong with the rows of a batch, if anything."""
    if not isinstance(table, ReqToTokenPool) or not rows.shape[0]:
        return []
    size, width = table.size, table.max_context_len
    ordered = np.sort(rows)
    if (
        ordered[0] >= 1
        and ordered[-1] <= size
        and (ordered[1:] != ordered[:-1]).all()
        and np.maximum.reduce(seq_lens) <= width
        and held_and_generations(table, rows)[0].all()
    ):
        return []
    return [refusal(call, _row_faults(table, rows.tolist(), seq_lens.tolist()), ADVICE)]


def _row_faults(table: ReqToTokenPool, rows: list[int], seq_lens: list[int]) -> list[Fault]:
    faults = []
    first_at: dict[int, int] = {}
    for index, (row, seq) in enumerate(zip(rows, seq_lens, strict=True)):
        if seq > table.max_context_len:
            found = f"seq {seq} is beyond the table's {table.max_context_len} positions"
            faults.append(Fault(OutOfRange, index, found))
        fault = row_fault(table, index, row)
        if fault is not None:
            faults.append(fault)
        if row in first_at:
            found = f"row {row} was named at {first_at[row]} already"
            faults.append(Fault(Duplicate, index, found))
        first_at.setdefault(row, index)
    return faults


def checked_handle(
    book: Book, table: Any, handle: Any, start: Any, end: Any
) -> tuple[ReqToTokenPool, Handle, int, int]:
    """Table, holder and positions of a release through the table, whose host data is right."""
    call = "free_rows_segment"
    errors: list[PoolError | None] = []
    if table is None:
        errors.append(Unsupported(f"{call}: no row call has named a table yet. Pass table=."))
    else:
        errors += _table_errors(call, book, table)
    first = int_or_none(start, "start", errors)
    stop = int_or_none(end, "end", errors)
    errors += _position_errors(call, first, stop, book, table)
    holder = None
    try:
        holder = Handle(*handle_fields(handle))
    except PoolError as error:
        errors.append(error)
    if holder is not None and isinstance(table, ReqToTokenPool) and not table.is_current(holder):
        errors.append(
            StaleHandle(f"{call}: {tuple(holder)} isn't current: the row was freed. Free first.")
        )
    checks.raise_first(errors)
    assert holder is not None, "a handle that can't be read has an error"
    assert first is not None, "a start that can't be read has an error"
    assert stop is not None, "an end that can't be read has an error"
    return table, holder, first, stop


def _position_errors(
    call: str, start: int | None, end: int | None, book: Book, table: Any
) -> list[PoolError | None]:
    """What is wrong with start..end-1 as positions; one that is no int is None here."""
    errors: list[PoolError | None] = []
    if start is not None and (start < 0 or (end is not None and end < start)):
        errors.append(NegativeSize(f"{call}: positions {start}:{end}. Positions ascend from 0."))
    if start is not None and start % book.page_size:
        errors.append(
            Misaligned(
                f"{call}: position {start} isn't a multiple of the page size {book.page_size}. "
                "Start at a page border."
            )
        )
    if end is not None and isinstance(table, ReqToTokenPool) and end > table.max_context_len:
        width = table.max_context_len
        errors.append(OutOfRange(f"{call}: position {end} is beyond the table's {width}."))
    if start is not None and end is not None:
        errors.append(book.too_many(call, -(-(end - start) // book.page_size)))
    return errors
