"""`req_to_token[rows, cols] = values`, taken apart into single cells (`spec/core.md` §2).

A lone int and a slice are host data and judged at once; the elements of lists stand for tensors and
are judged after that (DESIGN, order of tests).
"""

from collections.abc import Sequence
from typing import NamedTuple

from reference.refusal import Fault, as_int, refuse_smallest

Rows = int | Sequence[int]
Columns = int | slice | Sequence[int]
Values = int | Sequence[int]

INT32 = range(-(2**31), 2**31)


class Axis(NamedTuple):
    """One of the three arguments. A single int goes with every cell."""

    numbers: list[int]
    is_single: bool
    immediate: list[Fault]
    late: list[Fault]

    def spread(self, num_cells: int) -> list[int]:
        """A number for each cell."""
        return self.numbers * num_cells if self.is_single else self.numbers


def read_axis(given: int | Sequence[int], legal: range) -> Axis:
    """The numbers of an int or a list of ints, and which of them are out of range."""
    number = as_int(given)
    if number is not None:
        return Axis([number], True, [] if number in legal else [("OutOfRange", 0)], [])
    if not isinstance(given, Sequence) or isinstance(given, str):
        return Axis([], False, [("WrongDtype", 0)], [])
    late = [("OutOfRange", i) for i, element in enumerate(given) if element not in legal]
    return Axis(list(given), False, [], late)


def read_columns(cols: Columns, width: int) -> Axis:
    """A slice names the columns from its start to before its stop, which must lie in the table."""
    if not isinstance(cols, slice):
        return read_axis(cols, range(width))
    start = 0 if cols.start is None else as_int(cols.start)
    stop = width if cols.stop is None else as_int(cols.stop)
    if start is None or stop is None:
        return Axis([], False, [("WrongDtype", 0)], [])
    faults: list[Fault] = [] if 0 <= start <= stop <= width else [("OutOfRange", 0)]
    if cols.step not in (None, 1):
        faults.append(("WrongShape", 0))
    return Axis([] if faults else list(range(start, stop)), False, faults, [])


def cells_to_write(
    indices: tuple[Rows, Columns],
    values: Values,
    num_rows: int,
    width: int,
    stale: bool,
    handle_row: int | None,
) -> list[tuple[int, int, int]]:
    """(row, column, value) of every cell; `handle_row` is the only row allowed, if there is one."""
    rows = read_axis(indices[0], range(num_rows))
    cols = read_columns(indices[1], width)
    numbers = read_axis(values, INT32)
    immediate = rows.immediate + cols.immediate + numbers.immediate
    late = rows.late + cols.late + numbers.late
    strangers = [i for i, row in enumerate(rows.numbers) if handle_row not in (None, row)]
    if stale or (strangers and rows.is_single):
        immediate.append(("StaleHandle", 0))
    late += [("StaleHandle", i) for i in strangers]
    # Lists go together cell by cell; a row and a column alone are one cell.
    lengths = {len(axis.numbers) for axis in (rows, cols) if not axis.is_single} or {1}
    if not numbers.is_single:
        lengths.add(len(numbers.numbers))
    # Several rows with a slice would be a block.
    if len(lengths) > 1 or (isinstance(indices[1], slice) and not rows.is_single):
        immediate.append(("WrongShape", 0))
    refuse_smallest(immediate)
    refuse_smallest(late)
    (num_cells,) = lengths
    columns = [axis.spread(num_cells) for axis in (rows, cols, numbers)]
    return list(zip(*columns, strict=True))
