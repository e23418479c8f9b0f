"""Misuse of `free_rows_segment` as commands (`spec/core.md` §5a, §4b).

Each must be refused, and change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.commands import Call, Command
from properties.systems.paged_rows_growth import OTHER_TABLE, TABLE
from properties.systems.paged_rows_misuse import RowMisuse
from properties.systems.paged_rows_model import SHARED_PAGE, LineModel, LineSide

SEGMENT = "free_rows_segment"
Handle = tuple[int, int]
Part = tuple[Any, Any, Any]  # (handle, start, end)


@dataclass(frozen=True)
class _BadSegment(RowMisuse):
    """The candidates are (handle, start, end); the table is given too, unless a class says so."""

    methods: ClassVar[tuple[str, ...]] = (SEGMENT,)
    ways: ClassVar[tuple[str, ...]] = (SEGMENT,)
    table: ClassVar[int | None] = TABLE

    def build(self, model: LineModel, side: LineSide, fault: Part) -> Call:
        handle, start, end = fault
        args = {"handle": handle, "start": start, "end": end}
        return Call(SEGMENT, args if self.table is None else {**args, "table": self.table})


class StaleSegment(_BadSegment):
    """A handle whose row was freed, or handed out again, or never handed out so."""

    weight: ClassVar[int] = 4

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        stale = list(side.pool.stale.values())[-4:]
        stale += [(row, generation + step) for row, generation in list(side.pool.held.values())[:2]
                  for step in (-1, 1)]  # fmt: skip
        end = min(model.page_size, model.config.width)
        return [(handle, 0, stop) for handle in stale for stop in (0, end)]


class MalformedHandle(_BadSegment):
    """Something that is no handle."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        return [((1,), 0, 0), (None, 0, 0), ((1, 1, 1), 0, 0), ((1.0, 1), 0, 0), ((1, "1"), 0, 0)]


class SegmentBounds(_BadSegment):
    """Bounds that are no ints, negative, or the wrong way round."""

    weight: ClassVar[int] = 3

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        size = model.page_size
        bounds = ((-size, 0), (size, 0), (0, -1), (0.0, 0), (0, None), (True, True))
        return [(handle, *pair) for handle in side.pool.held.values() for pair in bounds]


class MisalignedRowSegment(_BadSegment):
    """A segment that begins inside a page, empty or not."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        if model.page_size == 1:
            return []
        end = min(2, model.config.width)
        return [(handle, 1, stop) for handle in side.pool.held.values() for stop in (1, end)]


class SegmentBeyondWidth(_BadSegment):
    """A segment that ends behind the row."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        width, size = model.config.width, model.page_size
        start = width // size * size
        return [(handle, start, width + n) for handle in side.pool.held.values() for n in (1, size)]


class SegmentTooLong(_BadSegment):
    """More pages than are out."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        most = len(side.ledger.owned_pages()) * model.page_size
        if most >= model.config.width:
            return []
        return [(handle, 0, most + 1) for handle in side.pool.held.values()]


class UnboundSegment(_BadSegment):
    """No table given, and the allocator isn't bound to one."""

    weight: ClassVar[int] = 60  # after a start or a clear, until the first row call
    table: ClassVar[int | None] = None
    # what isn't bound has no pages that a row holds
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", SHARED_PAGE)})

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        ends = () if model.bound else (0, min(model.page_size, model.config.width))
        return [(handle, 0, end) for handle in side.pool.held.values() for end in ends]


class OtherTableSegment(_BadSegment):
    """Another table than the one whose rows hold pages."""

    weight: ClassVar[int] = 3
    table: ClassVar[int | None] = OTHER_TABLE

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        # every row of that table is held, for the first time
        return [((row, 1), 0, 0) for row in range(1, model.config.rows + 1)] if model.bound else []


class SeveralBadBounds(_BadSegment):
    """A stale handle, or one of row 0, with bounds that are wrong in one way or several."""

    weight: ClassVar[int] = 4

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        width, size = model.config.width, model.page_size
        handles: list[Any] = [(0, 1), (1, 2.0), (), *list(side.pool.held.values())[:1]]
        handles += list(side.pool.stale.values())[-1:]
        starts, ends = (-1, -size, size + 1), (-1, 0, width + 1, 1.0)
        return [(handle, start, end) for handle in handles for start in starts for end in ends]


# ---- what the table tells --------------------


class SegmentOverHole(_BadSegment):
    """Slots that aren't consecutive: the row has fewer tokens, or others from there on."""

    weight: ClassVar[int] = 3

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        size, width, found = model.page_size, model.config.width, []
        if not side.ledger.owned_pages():
            return []
        for row, generation in side.pool.held.values():
            line = side.pool.table[row]
            for start in range(0, width, size):
                entries = line[start : start + size]
                first = entries[0]
                if first % size or entries != list(range(first, first + len(entries))):
                    found.append(((row, generation), start, min(start + size, width)))
        return found


@dataclass(frozen=True)
class _OldSegment(_BadSegment):
    """The last page of a length that the row once had, or took over from another request."""

    weight: ClassVar[int] = 4

    @classmethod
    def wrong(cls, side: LineSide, page: int, handle: Handle) -> bool:
        """Whether the page is one that the command is about."""
        raise NotImplementedError

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Part]:
        size, found = model.page_size, []
        if not side.ledger.owned_pages():
            return []
        for handle in side.pool.held.values():
            for length in side.old.get(handle[0], ()):
                start = (length - 1) // size * size
                if cls.wrong(side, side.entry(handle[0], start) // size, handle):
                    found.append((handle, start, length))
        return found


class SegmentGone(_OldSegment):
    """Its page is free, staged or parked."""

    @classmethod
    def wrong(cls, side: LineSide, page: int, handle: Handle) -> bool:
        return page not in side.ledger.owned_pages()


class SegmentOfAnother(_OldSegment):
    """Another row has its page: it was taken over, or handed out again in between."""

    weight: ClassVar[int] = 20  # such states don't last

    @classmethod
    def wrong(cls, side: LineSide, page: int, handle: Handle) -> bool:
        return page in side.ledger.owned_pages() and side.foreign(page, handle)


SEGMENTS: tuple[type[Command], ...] = (
    StaleSegment, MalformedHandle, SegmentBounds, MisalignedRowSegment, SegmentBeyondWidth,
    SegmentTooLong, SeveralBadBounds, UnboundSegment, OtherTableSegment, SegmentOverHole,
    SegmentGone, SegmentOfAnother,
)  # fmt: skip
