"""Allocation and release through a row table (core.md §5a), said with the plain operations."""

from itertools import pairwise
from typing import NamedTuple

from reference.oracle.allocation import appended
from reference.oracle.release import released
from reference.oracle.rows import Rows, row_pool
from reference.oracle.state import (
    Answer,
    Ids,
    Numbers,
    State,
    ceil_pages,
    holder_of,
    merged_for,
    repeated,
    why_not,
    worst,
)


class Table(NamedTuple):
    """§2: who holds which row, and what stands in the rows."""

    rows: Rows
    lines: tuple[Numbers, ...]

    @property
    def width(self) -> int:
        """Positions of a row."""
        return len(self.lines[0])


class House(NamedTuple):
    """An allocator and the tables beside it; a call names a table by its number."""

    state: State
    tables: tuple[Table, ...]


After = tuple[House, Answer]


def table(size: int, width: int) -> Table:
    """§2: row 0 included, all entries 0."""
    return Table(row_pool(size), ((0,) * width,) * (size + 1))


def write(house: House, number: int, row: int, start: int, values: Ids) -> House:
    """§2: these entries of one row."""
    line = house.tables[number].lines[row]
    changed = line[:start] + tuple(values) + line[start + len(values) :]
    return _with_lines(house, number, {row: changed})


def alloc_extend_rows(
    house: House,
    table: int,
    rows: Ids,
    rows_cpu: Ids,
    prefix_lens: Ids,
    prefix_lens_cpu: Ids,
    seq_lens: Ids,
    seq_lens_cpu: Ids,
    extend_num_tokens: int,
) -> After:
    """§5a: read `last`, allocate, write: as one call."""
    total = None if extend_num_tokens == sum(seq_lens_cpu) - sum(prefix_lens_cpu) else "BadLengths"
    columns = [rows, rows_cpu, prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu]
    bound = extend_num_tokens // house.state.page_size + len(rows_cpu) + 1
    return _grown(house, table, columns, bound, total)


def alloc_decode_rows(
    house: House, table: int, rows: Ids, rows_cpu: Ids, seq_lens: Ids, seq_lens_cpu: Ids
) -> After:
    """§5a: by one token each; the bound is the batch."""
    before, before_cpu = ([seq - 1 for seq in lens] for lens in (seq_lens, seq_lens_cpu))
    columns = [rows, rows_cpu, before, before_cpu, seq_lens, seq_lens_cpu]
    return _grown(house, table, columns, len(rows_cpu), None)


def _grown(house: House, number: int, columns: list[Ids], bound: int, total: str | None) -> After:
    if house.state.is_token:
        return house, "Unsupported"
    if len({len(column) for column in columns}) > 1:
        return house, "BadLengths"
    _, rows, _, prefixes, _, seqs = columns
    found = house.tables[number]
    spans = list(zip(rows, prefixes, seqs, strict=True))
    kind = worst(
        [
            total,
            *("BadLengths" for _, prefix, seq in spans if not 0 <= prefix <= seq),
            *("OutOfRange" for row in rows if row not in range(found.rows.size + 1)),
            *("OutOfRange" for seq in seqs if seq > found.width),
            "Reserved" if 0 in rows else None,
            repeated(rows),
            None if found.rows.held.issuperset(rows) else "RowNotHeld",
            _bound_elsewhere(house, number),
        ]
    )
    if kind:
        return house, kind
    state = house.state._replace(table=number)
    same = all(list(columns[i]) == list(columns[i + 1]) for i in (0, 2, 4))
    lasts = [found.lines[row][prefix - 1] if prefix else -1 for row, prefix, _ in spans]
    after, answer = appended(state, prefixes, seqs, lasts, bound, same)
    if answer is None:
        return house._replace(state=after), None
    strangers = [_continues_strangers(state, found, span) for span in spans]
    kind = worst([answer if isinstance(answer, str) else None, *strangers])
    if kind or isinstance(answer, str):
        return house._replace(state=merged_for(state, bound)), kind
    return _written(house._replace(state=after), number, spans, answer), answer


def _continues_strangers(state: State, table: Table, span: tuple[int, int, int]) -> str | None:
    """§5a: a never-written entry is 0; a half-filled page is its holder's, or anybody's."""
    row, prefix, _ = span
    if prefix == 0:
        return None
    page = table.lines[row][prefix - 1] // state.page_size
    mine = holder_of(state, page) in (None, (row, table.rows.generations[row]))
    return None if page > 0 and (mine or prefix % state.page_size == 0) else "BadLastLoc"


def _written(house: House, number: int, spans: list[tuple[int, int, int]], slots: Numbers) -> House:
    """§5a: the new slots stand in the rows, and the new pages are the rows'."""
    found, size = house.tables[number], house.state.page_size
    ends = [0]
    for _, prefix, seq in spans:
        ends.append(ends[-1] + seq - prefix)
    lines, held = {}, set(house.state.held)
    for (row, prefix, seq), (low, high) in zip(spans, pairwise(ends), strict=True):
        lines[row] = found.lines[row][:prefix] + slots[low:high] + found.lines[row][seq:]
        first_new = ceil_pages(prefix, size) * size
        for position in range(first_new, seq, size):
            page = lines[row][position] // size
            held.add((page, row, found.rows.generations[row]))
    state = house.state._replace(held=frozenset(held))
    return _with_lines(house._replace(state=state), number, lines)


def free_rows_segment(
    house: House, handle: tuple[int, int], start: int, end: int, *, table: int | None = None
) -> After:
    """§5a: the pages of positions `start .. end - 1`, read from the table."""
    state, size = house.state, house.state.page_size
    if state.is_token:
        return house, "Unsupported"
    number = state.table if table is None else table
    found = None if number is None else house.tables[number]
    kinds = [
        "NegativeSize" if not 0 <= start <= end else None,
        "Misaligned" if start % size else None,
        "TooMany" if ceil_pages(end - start, size) > len(state.owned) else None,
        "Unsupported" if number is None else _bound_elsewhere(house, number),
    ]
    row, generation = handle
    if found is not None:
        kinds.append("OutOfRange" if end > found.width else None)
        current = row in found.rows.held and found.rows.generations[row] == generation
        kinds.append(None if current else "StaleHandle")
    kind = worst(kinds)
    if kind or found is None:
        return house, kind
    state = state._replace(table=number)
    entries = found.lines[row][start:end]
    chunks = [entries[i : i + size] for i in range(0, len(entries), size)]
    pages = [chunk[0] // size for chunk in chunks]
    straight = all(
        chunk == tuple(range(page * size, page * size + len(chunk)))
        for page, chunk in zip(pages, chunks, strict=True)
    )
    others = [holder_of(state, page) not in (None, (row, generation)) for page in pages]
    kind = worst(
        [
            None if straight else "NotConsecutive",
            *(why_not(state, page) for page in pages),
            "NotOwned" if any(others) else None,
            repeated(pages),
        ]
    )
    return house._replace(state=state if kind else released(state, pages)), kind


def _bound_elsewhere(house: House, number: int) -> str | None:
    """Holders name rows of one table."""
    return None if house.state.table in (None, number) else "Unsupported"


def _with_lines(house: House, number: int, lines: dict[int, Numbers]) -> House:
    found = house.tables[number]
    changed = tuple(lines.get(row, line) for row, line in enumerate(found.lines))
    tables = [*house.tables]
    tables[number] = found._replace(lines=changed)
    return house._replace(tables=tuple(tables))
