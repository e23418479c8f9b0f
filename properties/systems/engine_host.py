"""The commands of the small engine about its host tier: requests leave the device and come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.subjects.engine_content import Row
from properties.subjects.engine_parts import Token
from properties.systems.engine_commands import Grows
from properties.systems.engine_model import Arriving, EngineModel, EngineSide, Kept
from properties.systems.slot_model import Faults


@dataclass(frozen=True)
class Retract(Command):
    """A request leaves the device, as a copy."""

    methods: ClassVar[tuple[str, ...]] = ("retract",)
    weight: ClassVar[int] = 5

    request: int

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(model.ready)

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Any:
        return cls(choices.pick(model.ready))

    def applies(self, model: EngineModel) -> bool:
        return self.request in model.ready

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call(self.methods[0], {"request": self.request})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        side.write_late([self.request])
        lines = list(side.lines[self.request])
        side.kept[self.request] = Kept(side.prompts[self.request], lines, list(value or ()))
        return side.end(self.request)


class RetractToHost(Retract):
    """A request leaves the device, for host slots of the tier."""

    methods: ClassVar[tuple[str, ...]] = ("retract_to_host",)
    weight: ClassVar[int] = 9
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    # what it takes are no pages of the device
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("served", "one short"), ("short", "one short")}
    )


@dataclass(frozen=True)
class Resume(Grows):
    """A retracted request comes back, under other slots."""

    methods: ClassVar[tuple[str, ...]] = ("resume",)
    weight: ClassVar[int] = 12

    request: int

    @classmethod
    def able(cls, model: EngineModel) -> list[int]:
        return list(model.side.kept)

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Any:
        return cls(choices.pick(cls.able(model)))

    def applies(self, model: EngineModel) -> bool:
        return self.request in self.able(model)

    def parts(self, model: EngineModel, side: EngineSide) -> list[tuple[int, int, int]]:
        return [(self.request, 0, len(side.kept[self.request].lines))]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call(self.methods[0], {"request": self.request})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        kept = side.kept.pop(self.request)
        return side.begin(self.request, kept.prompt, value, kept.lines)

    def broken(self, side: EngineSide, token: Token, seen: Row) -> str:
        return "I38" if token.request == self.request else ""


class BeginResume(Resume):
    """The same from host slots, layer by layer; until all are there nobody else uses it."""

    methods: ClassVar[tuple[str, ...]] = ("begin_resume",)
    weight: ClassVar[int] = 14

    @classmethod
    def able(cls, model: EngineModel) -> list[int]:
        return [name for name, kept in model.side.kept.items() if kept.host]

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        kept = side.kept.pop(self.request)
        side.arriving[self.request] = Arriving(kept.lines, kept.host)
        return side.begin(self.request, kept.prompt, value, side.in_part(self.request))


@dataclass(frozen=True)
class LoadLayer(Command):
    """The next layer of a request on its way; who copies it doesn't know of an abort."""

    methods: ClassVar[tuple[str, ...]] = ("load_layer",)
    weight: ClassVar[int] = 20

    request: int

    @classmethod
    def able(cls, model: EngineModel) -> list[int]:
        layers = model.config.layers
        return [name for name, each in model.side.arriving.items() if each.arrived < layers]

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> LoadLayer:
        return cls(choices.pick(cls.able(model)))

    def applies(self, model: EngineModel) -> bool:
        return self.request in self.able(model)

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("load_layer", {"request": self.request})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        load = side.arriving[self.request]
        load.arrived += 1
        if self.request in side.rows:
            side.lines[self.request] = side.in_part(self.request)
            if load.arrived == model.config.layers:
                del side.arriving[self.request]
        return []

    def broken(self, side: EngineSide, token: Token, seen: Row) -> str:
        return "I38" if token.request == self.request else "I65"


@dataclass(frozen=True)
class Drain(Command):
    """The transfer of a request that was aborted is over: its pages go back now."""

    methods: ClassVar[tuple[str, ...]] = ("drain",)
    weight: ClassVar[int] = 10

    request: int

    @classmethod
    def able(cls, model: EngineModel) -> list[int]:
        return [name for name, each in model.side.arriving.items() if each.slots]

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Drain:
        return cls(choices.pick(cls.able(model)))

    def applies(self, model: EngineModel) -> bool:
        return self.request in self.able(model)

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("drain", {"request": self.request})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        slots = side.arriving.pop(self.request).slots
        return side.release(side.pages(slots), False, by_slots=False)


LEGAL: tuple[type[Command], ...] = (
    Retract, RetractToHost, Resume, BeginResume, LoadLayer, Drain,
)  # fmt: skip
