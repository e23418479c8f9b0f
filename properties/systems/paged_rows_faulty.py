"""What callers of the row calls do who have a bug, as commands. Spec: `spec/core.md` §5a."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.paged_rows_growth import batch, row_call
from properties.systems.paged_rows_model import LineModel, LineSide
from properties.systems.slot_model import Faults


@dataclass(frozen=True)
class ForgetProgress(Command):
    """The second chunk of a prompt begins at position 0 again, over what the first one took."""

    breaks: ClassVar[str] = "I33"
    methods: ClassVar[tuple[str, ...]] = ("alloc_extend_rows",)
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    weight: ClassVar[int] = 16

    request: int
    tokens: int

    @classmethod
    def able(cls, model: LineModel) -> list[int]:
        lines = model.side.lines.items()
        return [name for name, line in lines if line.slots and not line.start]

    @classmethod
    def enabled(cls, model: LineModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> Any:
        name = choices.pick(cls.able(model))
        return cls(name, choices.integer(1, len(model.side.lines[name].slots)))

    def applies(self, model: LineModel) -> bool:
        return self.request in self.able(model) and 0 < self.tokens <= model.config.width

    def demand(self, model: LineModel) -> int:
        return -(-self.tokens // model.page_size)

    def call(self, model: LineModel, side: LineSide) -> Call:
        return row_call("alloc_extend_rows", batch([(side.row(self.request), 0, self.tokens)]))

    def chunks(self, model: LineModel, side: LineSide) -> Iterator[tuple[int, int, int]]:
        yield 0, self.tokens, -1

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        old = side.lines[self.request].slots[: self.tokens]
        how = f"slots {old} were neither freed nor shared, their entries hold {value} now"
        return [(self.breaks, f"{self.name()}: {how}")]


FAULTY: tuple[type[Command], ...] = (ForgetProgress,)
