"""Allocation through the row table as commands, legal use, and the calls they are made of.

Follows `spec/core.md` §5a.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.systems.growth import NARROW, draw_tokens
from properties.systems.paged_rows_model import LineModel, LineSide
from properties.systems.slot_model import Faults

TABLE, OTHER_TABLE = 0, 1  # how calls name the table that requests live in, and another one


def batch(spans: Sequence[tuple[int, int, int]], table: int = TABLE) -> dict[str, Any]:
    """The arguments of `alloc_extend_rows` for (row, prefix, seq) of each request."""
    rows, prefix, seq = ([span[i] for span in spans] for i in range(3))
    return {
        "table": table,
        "rows": rows,
        "rows_cpu": list(rows),
        "prefix_lens": prefix,
        "prefix_lens_cpu": list(prefix),
        "seq_lens": seq,
        "seq_lens_cpu": list(seq),
    }


def spans_of(side: LineSide, requests: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(row, prefix, seq) for appending (name, tokens) to lines."""
    found = []
    for name, tokens in requests:
        length = side.lines[name].length
        found.append((side.row(name), length, length + tokens))
    return found


def row_call(how: str, args: dict[str, Any], dtype: str = "int64", total: Any = None) -> Call:
    """`alloc_extend_rows`, or `alloc_decode_rows` with the arguments that it takes."""
    if how == "alloc_decode_rows":
        del args["prefix_lens"], args["prefix_lens_cpu"]
        return Call(how, args, dtype)
    if total is None:
        total = sum(args["seq_lens_cpu"]) - sum(args["prefix_lens_cpu"])
    return Call(how, {**args, "extend_num_tokens": total}, dtype)


# ---- growth --------------------


@dataclass(frozen=True)
class _GrowRows(Command):
    """Appends tokens to lines: fresh, hit, chunked and adopted ones mixed, in one call."""

    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    @property
    def growth(self) -> tuple[tuple[int, int], ...]:
        raise NotImplementedError

    def applies(self, model: LineModel) -> bool:
        names = [name for name, _ in self.growth]
        return len(set(names)) == len(names) and all(
            name in model.side.lines and 0 <= tokens <= model.room(name)
            for name, tokens in self.growth
        )

    def demand(self, model: LineModel) -> int:
        return model.line_pages(self.growth)

    def settle(self, model: LineModel, side: LineSide, value: list[int]) -> Faults:
        faults: Faults = []
        at = 0
        for name, tokens in self.growth:
            faults += side.extend(name, value[at : at + tokens])
            at += tokens
        return faults

    def chunks(self, model: LineModel, side: LineSide) -> Iterator[tuple[int, int, int]]:
        """(first position, tokens, last_loc) of each request, for the placement checks."""
        for name, tokens in self.growth:
            yield side.lines[name].length, tokens, side.last(name)


def draw_lines(choices: Choices, model: LineModel, most: int) -> list[int]:
    """A batch of lines in some order, seldom an empty one."""
    names = choices.subset(model.line_names, int(choices.integer(0, 7) > 0), most)
    return names[::-1] if choices.boolean() else names


@dataclass(frozen=True)
class ExtendRows(_GrowRows):
    """`alloc_extend_rows`."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_extend_rows",)
    weight: ClassVar[int] = 110

    requests: tuple[tuple[int, int], ...]
    narrow: bool  # int32 instead of int64 arguments

    @property
    def growth(self) -> tuple[tuple[int, int], ...]:
        return self.requests

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> ExtendRows:
        size, left = model.page_size, model.available_pages
        # mostly what fits, so that pools fill and empty; else anything, tight and one short too
        fits = choices.integer(0, 5) > 0
        requests: list[tuple[int, int]] = []
        for name in draw_lines(choices, model, 4):
            rest = -model.side.lines[name].length % size
            tokens = min(draw_tokens(choices, size, rest, left, fits), model.room(name))
            requests.append((name, tokens))
            left -= -(-(tokens - rest) // size) if tokens > rest else 0
        return cls(tuple(requests), choices.pick(NARROW))

    def call(self, model: LineModel, side: LineSide) -> Call:
        args = batch(spans_of(side, self.requests))
        return row_call("alloc_extend_rows", args, "int32" if self.narrow else "int64")


@dataclass(frozen=True)
class DecodeRows(_GrowRows):
    """`alloc_decode_rows`: one more token for each request."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_decode_rows",)
    weight: ClassVar[int] = 40

    requests: tuple[int, ...]
    narrow: bool

    @property
    def growth(self) -> tuple[tuple[int, int], ...]:
        return tuple([(name, 1) for name in self.requests])

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> DecodeRows:
        names = [name for name in draw_lines(choices, model, 6) if model.room(name)]
        return cls(tuple(names), choices.pick(NARROW))

    def call(self, model: LineModel, side: LineSide) -> Call:
        args = batch(spans_of(side, self.growth))
        return row_call("alloc_decode_rows", args, "int32" if self.narrow else "int64")


GROWTH: tuple[type[Command], ...] = (ExtendRows, DecodeRows)
