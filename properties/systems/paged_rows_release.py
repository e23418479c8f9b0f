"""Release of what lines own as commands: through the row table, or plainly (`spec/core.md` §5a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.paged_rows_growth import TABLE
from properties.systems.paged_rows_model import LineModel, LineSide
from properties.systems.slot_model import Faults


def segment_call(side: LineSide, name: int, low: int, high: int, named: bool) -> Call:
    """`free_rows_segment` of own slots low..high-1 of a line; `named`: the table is given too."""
    start = side.lines[name].start
    args = {"handle": side.pool.held[name], "start": start + low, "end": start + high}
    return Call("free_rows_segment", {**args, "table": TABLE} if named else args)


@dataclass(frozen=True)
class _OfLine(Command):
    """A command about one line that owns slots."""

    request: int

    @classmethod
    def owners(cls, model: LineModel) -> list[int]:
        """The lines that own enough slots for the command."""
        return [name for name, line in model.side.lines.items() if line.slots]

    @classmethod
    def enabled(cls, model: LineModel) -> bool:
        return bool(cls.owners(model))

    def applies(self, model: LineModel) -> bool:
        return self.request in self.owners(model)


@dataclass(frozen=True)
class _FreeLine(_OfLine):
    """Gives back a line's own pages: all of them (0), the first (n > 0) or the last (n < 0)."""

    pages: int

    @classmethod
    def draw_part(cls, choices: Choices, model: LineModel) -> tuple[int, int]:
        name = choices.pick(cls.owners(model))
        held = -(-len(model.side.lines[name].slots) // model.page_size)
        return name, choices.integer(1 - held, held - 1, (0, 0)) if held > 1 else 0

    def bounds(self, side: LineSide) -> tuple[int, int]:
        """Which of the line's own slots go."""
        line = side.lines[self.request]
        count = len(line.part(self.pages, side.page_size))
        return (len(line.slots) - count, len(line.slots)) if self.pages < 0 else (0, count)


@dataclass(frozen=True)
class FreeLine(_FreeLine):
    """`free_rows_segment`: the pages are read from the table."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows_segment",)
    weight: ClassVar[int] = 60

    named: bool

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> FreeLine:
        return cls(*cls.draw_part(choices, model), choices.boolean() or not model.bound)

    def applies(self, model: LineModel) -> bool:
        return super().applies(model) and (self.named or model.bound)

    def call(self, model: LineModel, side: LineSide) -> Call:
        return segment_call(side, self.request, *self.bounds(side), self.named)

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        return side.give_line(self.request, self.pages, model.group, by_slots=False)


@dataclass(frozen=True)
class TrimLine(_OfLine):
    """Drops a line's last tokens (rejected drafts): whole pages go back, a kept page stays."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows_segment",)
    weight: ClassVar[int] = 14

    tokens: int

    @classmethod
    def owners(cls, model: LineModel) -> list[int]:
        return [name for name, line in model.side.lines.items() if len(line.slots) > 1]

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> TrimLine:
        name = choices.pick(cls.owners(model))
        most = len(model.side.lines[name].slots) - 1
        return cls(name, choices.integer(1, most, (1, model.page_size)))

    def applies(self, model: LineModel) -> bool:
        if not super().applies(model):
            return False
        return 0 < self.tokens < len(model.side.lines[self.request].slots)

    def kept(self, side: LineSide) -> tuple[int, int]:
        """(slots kept, slots kept by the allocator: up to the end of the last kept page)."""
        slots = side.lines[self.request].slots
        kept = len(slots) - self.tokens
        return kept, min(len(slots), -(-kept // side.page_size) * side.page_size)

    def call(self, model: LineModel, side: LineSide) -> Call:
        count = len(side.lines[self.request].slots)
        low = self.kept(side)[1]
        # an empty segment where no page goes; it too begins at a page border
        low, high = (low, count) if low < count else (0, 0)
        return segment_call(side, self.request, low, high, named=True)

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        return side.trim_line(self.request, *self.kept(side), model.group)


@dataclass(frozen=True)
class FreeLinePlainly(_FreeLine):
    """Gives back a line's pages by a plain free, which asks for no holder."""

    methods: ClassVar[tuple[str, ...]] = ("free", "free_page_ids", "free_segment")
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 26

    how: str

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> FreeLinePlainly:
        ways = [how for how in cls.methods if how in model.calls]
        return cls(*cls.draw_part(choices, model), choices.pick(ways))

    def applies(self, model: LineModel) -> bool:
        return super().applies(model) and self.how in self.methods and self.how in model.calls

    def call(self, model: LineModel, side: LineSide) -> Call:
        line = side.lines[self.request]
        low, high = self.bounds(side)
        slots = line.slots[low:high]
        if self.how == "free_page_ids":
            return Call(self.how, {"page_ids": side.pages(slots)})
        if self.how == "free":
            return Call(self.how, {"free_index": slots})
        return Call(self.how, {"free_index": slots, "start_pos": line.start + low})

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        by_slots = self.how == "free"
        return side.give_line(self.request, self.pages, model.group, by_slots)


RELEASE: tuple[type[Command], ...] = (FreeLine, TrimLine, FreeLinePlainly)
