"""Misuse of allocation through the row table as commands (`spec/core.md` §5a, §4b).

Each must be refused, and change nothing: not the table either. The kind comes from the reference.
Here is what host data tell, or the tensors; what the table tells is in `paged_rows_entries.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import MOST_ENUMERATED, Choices
from properties.commands import Call, Command, Distortion
from properties.systems.misuse import Misuse, open_ways
from properties.systems.paged_rows_growth import OTHER_TABLE, batch, row_call, spans_of
from properties.systems.paged_rows_model import LineModel, LineSide

EXTEND, DECODE = "alloc_extend_rows", "alloc_decode_rows"
GROWING = (EXTEND, DECODE)
Span = tuple[int, int, int]  # (row, prefix, seq)


@dataclass(frozen=True)
class RowMisuse(Misuse):
    """One of the faults that a side offers, committed through method `how`."""

    methods: ClassVar[tuple[str, ...]] = GROWING
    ways: ClassVar[tuple[str, ...]] = GROWING

    how: str
    index: int

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Any]:
        """What could be wrong on this side."""
        raise NotImplementedError

    def build(self, model: LineModel, side: LineSide, fault: Any) -> Call:
        """The call with one of the candidates."""
        raise NotImplementedError

    @classmethod
    def enabled(cls, model: LineModel) -> bool:
        return bool(open_ways(cls.ways, model)) and bool(cls.candidates(model, model.side))

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> Any:
        found = cls.candidates(model, model.side)
        how = choices.pick(open_ways(cls.ways, model))
        return cls(how, choices.integer(0, min(len(found), MOST_ENUMERATED) - 1))

    def applies(self, model: LineModel) -> bool:
        known = self.how in open_ways(self.ways, model)
        return known and 0 <= self.index < len(self.candidates(model, model.side))

    def call(self, model: LineModel, side: LineSide) -> Call | None:  # type: ignore[override]
        found = self.candidates(model, side)
        return self.build(model, side, found[self.index % len(found)]) if found else None


# ---- what host data tell --------------------


@dataclass(frozen=True)
class BadSpans(RowMisuse):
    """The candidates are batches of (row, prefix, seq)."""

    def build(self, model: LineModel, side: LineSide, fault: list[Span]) -> Call:
        return row_call(self.how, batch(fault))


class RowOutside(BadSpans):
    """A row that the table doesn't have."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        return [[(row, 0, 1)] for row in (model.config.rows + 1, -1, 2**31 - 1)]


class PaddingRow(BadSpans):
    """Row 0, where padded lanes write."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        return [[(0, 0, 1)], *([(side.row(name), 0, 1), (0, 0, 1)] for name in side.lines)]


class RowNotHeld(BadSpans):
    """A row that nobody holds."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        return [[(row, 0, 1)] for row in side.free_rows()]


class RowTwice(BadSpans):
    """One row twice in a call."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        return [[(side.row(name), 0, 1)] * 2 for name in side.lines]


class BeyondWidth(BadSpans):
    """More tokens than the row has columns."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        width = model.config.width
        return [[(side.row(name), width + n, width + n + 1)] for name in side.lines for n in (0, 3)]


class RowSeqBelowPrefix(BadSpans):
    """Fewer tokens after the call than before it; for a decode, none."""

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        return [
            span
            for name in side.lines
            for span in ([(side.row(name), 1, 0)], [(side.row(name), -1, 0)])
        ]


class SeveralBadSpans(BadSpans):
    """Two requests of a call with a fault each: the smallest kind names the refusal."""

    weight: ClassVar[int] = 4

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        rows, width = model.config.rows, model.config.width
        bad = [(0, 0, 1), (rows + 1, 0, 1), (-1, 0, 1)]
        bad += [(row, 0, 1) for row in side.free_rows()[:1]]
        for name in list(side.lines)[:1]:
            row = side.row(name)
            # each of the same row: two of these name it twice
            bad += [(row, width, width + 1), (row, 1, 0)]
        return [[first, second] for first in bad for second in bad]


@dataclass(frozen=True)
class _SpoiltBatch(RowMisuse):
    """The candidates are (line, word): the line grows by one token, the word says what is wrong."""

    words: ClassVar[tuple[str, ...]] = ("",)

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[Any]:
        names = [name for name in side.lines if cls.fits(model, name)]
        return [(name, word) for name in names for word in cls.words]

    @classmethod
    def fits(cls, model: LineModel, name: int) -> bool:
        """Whether the line could grow by a token: no other fault hides the one that is meant."""
        return model.room(name) > 0 and model.line_pages(((name, 1),)) <= model.available_pages

    def args(self, side: LineSide, name: int) -> dict[str, Any]:
        """The arguments as they should be."""
        return batch(spans_of(side, ((name, 1),)))

    def spoilt(self, args: dict[str, Any], word: str) -> dict[str, Any]:
        """The arguments as the word says."""
        raise NotImplementedError

    def build(self, model: LineModel, side: LineSide, fault: tuple[int, str]) -> Call:
        name, word = fault
        args = self.args(side, name)
        if word not in args:
            word = "seq_lens"
        return row_call(self.how, self.spoilt(args, word), total=1)


class WrongRowTotal(_SpoiltBatch):
    """`extend_num_tokens` is not the sum of seq - prefix."""

    ways: ClassVar[tuple[str, ...]] = (EXTEND,)
    methods: ClassVar[tuple[str, ...]] = (EXTEND,)
    words: ClassVar[tuple[str, ...]] = ("0", "2", "-1")

    def build(self, model: LineModel, side: LineSide, fault: tuple[int, str]) -> Call:
        name, word = fault
        return row_call(self.how, self.args(side, name), total=int(word))


class RowCopyMissing(_SpoiltBatch):
    """Columns of different lengths."""

    weight: ClassVar[int] = 3
    words: ClassVar[tuple[str, ...]] = ("rows", "rows_cpu", "seq_lens", "seq_lens_cpu")

    def spoilt(self, args: dict[str, Any], word: str) -> dict[str, Any]:
        return {**args, word: []}


class RowCopiesDiffer(_SpoiltBatch):
    """A device value that is not its host copy: a row, a prefix or a length."""

    weight: ClassVar[int] = 4
    words: ClassVar[tuple[str, ...]] = ("rows", "prefix_lens", "seq_lens")
    step: ClassVar[dict[str, int]] = {"rows": 1, "prefix_lens": -1, "seq_lens": 1}

    def spoilt(self, args: dict[str, Any], word: str) -> dict[str, Any]:
        if self.how == DECODE and word == "prefix_lens":
            word = "seq_lens"
        return {**args, word: [value + self.step[word] for value in args[word]]}


class OtherTable(BadSpans):
    """A row of another table than the one whose rows hold pages."""

    weight: ClassVar[int] = 3

    @classmethod
    def candidates(cls, model: LineModel, side: LineSide) -> list[list[Span]]:
        # every row of that table is held
        return [[(row, 0, 1)] for row in range(1, model.config.rows + 1)] if model.bound else []

    def build(self, model: LineModel, side: LineSide, fault: list[Span]) -> Call:
        return row_call(self.how, batch(fault, OTHER_TABLE))


# ---- types, shapes, devices --------------------


@dataclass(frozen=True)
class _DistortedRows(_SpoiltBatch):
    """One tensor of the wrong type, shape or device, in an otherwise legal call."""

    weight: ClassVar[int] = 5  # with a tensor and a method to choose
    what: ClassVar[str]
    words: ClassVar[tuple[str, ...]] = (
        "rows", "rows_cpu", "prefix_lens", "prefix_lens_cpu", "seq_lens", "seq_lens_cpu",
    )  # fmt: skip

    def build(self, model: LineModel, side: LineSide, fault: tuple[int, str]) -> Call:
        name, word = fault
        if self.how == DECODE and word.startswith("prefix"):
            word = word.replace("prefix", "seq")
        legal = row_call(self.how, self.args(side, name))
        return Call(legal.method, legal.args, distortion=Distortion(word, self.what))


class RowsWrongDtype(_DistortedRows):
    """Floats where rows or lengths belong."""

    what = "dtype"


class RowsWrongShape(_DistortedRows):
    """A matrix where a list belongs."""

    what = "shape"


class RowsWrongDevice(_DistortedRows):
    """A tensor on another device."""

    what = "device"


MISUSE: tuple[type[Command], ...] = (
    RowOutside, PaddingRow, RowNotHeld, RowTwice, BeyondWidth, RowSeqBelowPrefix, SeveralBadSpans,
    WrongRowTotal, RowCopyMissing, RowCopiesDiffer, OtherTable, RowsWrongDtype, RowsWrongShape,
    RowsWrongDevice,
)  # fmt: skip
