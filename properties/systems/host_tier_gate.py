"""The commands of the host tier about its layer gate: who waits for which load.

Follows `spec/interleave_hisparse_host_prefix.md` §4.6, HT-7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.host_tier_commands import Query
from properties.systems.host_tier_model import HostModel, HostSide


@dataclass(frozen=True)
class SetConsumer(Command):
    """`set_consumer`: whose layers readers wait for."""

    methods: ClassVar[tuple[str, ...]] = ("set_consumer",)
    weight: ClassVar[int] = 8

    consumer: int

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> SetConsumer:
        return cls(choices.pick((-1, 0, 1, 2, max(0, model.state["gate"]["producer"]))))

    def applies(self, model: HostModel) -> bool:
        return -1 <= self.consumer <= 2

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("set_consumer", {"consumer": self.consumer})


@dataclass(frozen=True)
class Ready(Query):
    """`ready`: whether a reader of a layer may pass."""

    methods: ClassVar[tuple[str, ...]] = ("ready",)
    weight: ClassVar[int] = 8
    about: ClassVar[str] = "I60"

    place: int

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Any:
        return cls(choices.integer(0, len(model.config.span) - 1))

    def applies(self, model: HostModel) -> bool:
        return 0 <= self.place < len(model.config.span)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("ready", {"layer": self.place})


@dataclass(frozen=True)
class Read(Command):
    """`wait_until` of a layer that is there: a reader passes at once."""

    methods: ClassVar[tuple[str, ...]] = ("wait_until",)

    place: int

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return [at for at in range(len(model.config.span)) if model.reference.gate.ready(at)]

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Read:
        return cls(choices.pick(cls.able(model)))

    def applies(self, model: HostModel) -> bool:
        return self.place in self.able(model)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("wait_until", {"layer": self.place})


@dataclass(frozen=True)
class ResetGate(Command):
    """`reset` of the gate, when no load marks layers there."""

    methods: ClassVar[tuple[str, ...]] = ("reset",)

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return not any(each.gated for each in model.side.transfers.values())

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("reset")


LEGAL: tuple[type[Command], ...] = (SetConsumer, Ready, Read, ResetGate)
