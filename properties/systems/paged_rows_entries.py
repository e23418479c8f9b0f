"""Misuse that only the table's entries tell, as commands (`spec/core.md` §5a).

A row whose last entry was never written, or lies in a half page that isn't the row's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from properties.commands import Command
from properties.systems.paged_rows_misuse import BadSpans, Span
from properties.systems.paged_rows_model import LineModel, LineSide


class NeverWritten(BadSpans):
    """The entry before the new tokens was never written: it is 0, a slot of the reserved page."""

    weight: ClassVar[int] = 4

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        size, found = model.page_size, []
        if size == 1 and not model.available_pages:
            return []  # a new page would be needed, and None comes first
        for name in side.lines:
            row = side.row(name)
            # where slot 0 would fit; elsewhere it is wrong in any case
            for prefix in range(1 if size > 1 else 2, model.config.width, size):
                if side.entry(row, prefix - 1) == 0:
                    found.append([(row, prefix, prefix + 1)])
        return found


@dataclass(frozen=True)
class _OldHalfPage(BadSpans):
    """The entry lies in a half page that the row once had, or that was copied into it."""

    weight: ClassVar[int] = 6

    @classmethod
    def wrong(cls, model: LineModel, side: LineSide, page: int, handle: tuple[int, int]) -> bool:
        """Whether the page is one that the command is about."""
        raise NotImplementedError

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        size, found = model.page_size, []
        for handle in side.pool.held.values():
            for prefix in side.old.get(handle[0], ()):
                if prefix % size == 0 or prefix >= model.config.width:
                    continue
                last = side.entry(handle[0], prefix - 1)
                page = last // size
                if page > 0 and last % size == prefix % size - 1 and cls.wrong(
                    model, side, page, handle
                ):  # fmt: skip
                    found.append([(handle[0], prefix, prefix + 1)])
        return found


class HalfPageGone(_OldHalfPage):
    """Its page was given back: free, staged or parked."""

    @classmethod
    def wrong(cls, model: LineModel, side: LineSide, page: int, handle: tuple[int, int]) -> bool:
        return page not in side.ledger.owned_pages()


class HalfPageOfAnother(_OldHalfPage):
    """Another row has its page, or the row as it was handed out before."""

    weight: ClassVar[int] = 40  # such states don't last

    @classmethod
    def wrong(cls, model: LineModel, side: LineSide, page: int, handle: tuple[int, int]) -> bool:
        return page in side.ledger.owned_pages() and side.foreign(page, handle)


class ContinueTwiceInRows(BadSpans):
    """An anonymous half page, copied from one row to another, continued by both in a call."""

    weight: ClassVar[int] = 40  # few states allow it

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        size, width = model.page_size, model.config.width
        halves: dict[int, list[Span]] = {}
        for name, line in side.lines.items():
            row = side.row(name)
            for prefix in {line.length, *side.old.get(row, ())}:
                if prefix % size == 0 or prefix >= width:
                    continue
                last = side.entry(row, prefix - 1)
                if last % size == prefix % size - 1:
                    halves.setdefault(last // size, []).append((row, prefix, prefix + 1))
        owned, found = side.ledger.owned_pages(), []
        for page, spans in halves.items():
            rows = {span[0]: span for span in spans}
            if page in owned and page not in side.holders and len(rows) > 1:
                found.append(list(rows.values())[:2])
        return found


class SeveralWrongEntries(BadSpans):
    """Two rows of a call with a wrong entry each, in one order or the other."""

    weight: ClassVar[int] = 6

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        if model.page_size == 1:
            return []  # new pages would be needed, and None comes first
        spans = [
            span
            for kind in (NeverWritten, HalfPageGone, HalfPageOfAnother)
            for (span,) in kind.candidates(model, side)[:2]
        ]
        return [[first, second] for first in spans for second in spans if first[0] != second[0]]


ENTRIES: tuple[type[Command], ...] = (
    NeverWritten, HalfPageGone, HalfPageOfAnother, ContinueTwiceInRows, SeveralWrongEntries,
)  # fmt: skip
