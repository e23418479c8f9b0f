"""The commands of the small engine about how requests end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.engine_model import IN_FLIGHT, EngineModel, EngineSide
from properties.systems.slot_model import Faults


@dataclass(frozen=True)
class Finish(Command):
    """Requests are done: rows and pages go back, pages together if `grouped`."""

    methods: ClassVar[tuple[str, ...]] = ("finish",)
    weight: ClassVar[int] = 6

    requests: tuple[int, ...]
    grouped: bool

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Finish:
        return cls(tuple(choices.subset(model.ready, 0, 2)), choices.boolean())

    def applies(self, model: EngineModel) -> bool:
        names = self.requests
        return len(set(names)) == len(names) and set(names) <= set(model.ready)

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("finish", {"requests": tuple(self.requests), "grouped": self.grouped})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        return [fault for name in self.requests for fault in side.end(name)]


@dataclass(frozen=True)
class Abort(Command):
    """A request ends, wherever it is."""

    methods: ClassVar[tuple[str, ...]] = ("abort",)
    weight: ClassVar[int] = 8

    request: int

    @classmethod
    def able(cls, model: EngineModel) -> list[int]:
        return [*model.side.rows, *model.side.kept]

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Abort:
        return cls(choices.pick(cls.able(model)))

    def applies(self, model: EngineModel) -> bool:
        return self.request in self.able(model)

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("abort", {"request": self.request})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        if self.request in side.kept:
            del side.kept[self.request]
            return []
        if self.request in side.arriving:
            side.arriving[self.request].slots = side.rows.pop(self.request).slots
            del side.lines[self.request]
            return []
        return side.end(self.request)


@dataclass(frozen=True)
class Clear(Command):
    """Everything is flushed: rows, pages, host slots. Not under a transfer."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)
    weight: ClassVar[int] = 2
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("served", IN_FLIGHT)})

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return not model.side.arriving

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("clear")

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        model.cleared = True
        side.reset()
        side.lines.clear()
        side.kept.clear()
        return []


LEGAL: tuple[type[Command], ...] = (Finish, Abort, Clear)
