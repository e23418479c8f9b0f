"""Misuse of transfers under way, and of the gate: each must be refused, and nothing changes.

Follows `spec/interleave_hisparse_host_prefix.md` §4.6, §4.10 and `spec/core.md` §4b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.host_tier_misuse import MOST_KINDS, Misuse
from properties.systems.host_tier_misuse_slots import OfTransfers
from properties.systems.host_tier_model import HostModel, HostSide
from properties.systems.host_tier_transfers import drained, load_call


@dataclass(frozen=True)
class _OfUnderWay(OfTransfers):
    """Base: beside a transfer under way."""

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return super().able(model) if model.side.transfers else []


class TransferToBusyDevice(_OfUnderWay):
    """Device slots that a transfer writes, or a load to what one reads."""

    weight: ClassVar[int] = 6

    @classmethod
    def loads(cls, model: HostModel) -> list[int]:
        return [name for name, each in model.side.transfers.items() if each.loading]

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return super().able(model) if cls.loads(model) else []

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        busy = side.transfers[self.pick(self.loads(model))].device
        device[0] = busy[self.amount % len(busy)]


class LoadOfWritten(Misuse):
    """Host slots that a backup writes are read, or written once more."""

    weight: ClassVar[int] = 12
    methods: ClassVar[tuple[str, ...]] = ("start_load", "backup")

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        saving = {each.request for each in model.side.transfers.values() if not each.loading}
        return model.fitting(sorted(saving))

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    def call(self, model: HostModel, side: HostSide) -> Call:
        name = self.pick(self.able(model))
        good = load_call(side, name, model.next_name, False)
        if self.amount % 2:
            return good
        return Call("backup", {key: good.args[key] for key in ("host_slots", "device_slots")})


class SaveOfRead(Misuse):
    """Host slots that a load reads are written."""

    weight: ClassVar[int] = 8
    methods: ClassVar[tuple[str, ...]] = ("backup",)

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        loading = {each.request for each in model.side.transfers.values() if each.loading}
        return model.fitting(sorted(loading))

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    def call(self, model: HostModel, side: HostSide) -> Call:
        good = load_call(side, self.pick(self.able(model)), 0, False)
        return Call("backup", {key: good.args[key] for key in ("host_slots", "device_slots")})


class BeginUndrained(Misuse):
    """A load behind the gate while its next set awaits layers of an earlier one."""

    methods: ClassVar[tuple[str, ...]] = ("start_load", "update_producer")
    weight: ClassVar[int] = 28  # three loads have to be under way, or given up

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return [] if drained(model) else model.fitting(model.idle())

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    def call(self, model: HostModel, side: HostSide) -> Call:
        if self.amount % 2:
            return Call("update_producer")
        return load_call(side, self.pick(self.able(model)), model.next_name, True)


@dataclass(frozen=True)
class _OfLoad(Misuse):
    """Base: a load under way."""

    transfer: int

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return [name for name, each in model.side.transfers.items() if each.loading]

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Any:
        return cls(choices.integer(0, MOST_KINDS), choices.pick(cls.able(model)))

    def applies(self, model: HostModel) -> bool:
        return super().applies(model) and self.transfer in self.able(model)


class NoSuchLayer(_OfLoad):
    """`layer` of a load, beyond the layers of the pool."""

    methods: ClassVar[tuple[str, ...]] = ("layer",)

    def call(self, model: HostModel, side: HostSide) -> Call:
        span = model.config.span
        layer = self.pick([span.start - 1, span.stop])
        return Call("layer", {"transfer": self.transfer, "layer": layer})


class LayerTwice(_OfLoad):
    """`layer` of a load, copied once already."""

    methods: ClassVar[tuple[str, ...]] = ("layer",)

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return [name for name in super().able(model) if model.side.transfers[name].layers]

    def call(self, model: HostModel, side: HostSide) -> Call:
        layer = self.pick(sorted(side.transfers[self.transfer].layers))
        return Call("layer", {"transfer": self.transfer, "layer": layer})


class FinishEarly(_OfLoad):
    """`finish` of a load that lacks layers."""

    methods: ClassVar[tuple[str, ...]] = ("finish",)

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        span, found = len(model.config.span), super().able(model)
        return [name for name in found if len(model.side.transfers[name].layers) < span]

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("finish", {"transfer": self.transfer})


class UseOver(Misuse):
    """A transfer that is over is copied, finished or cancelled."""

    methods: ClassVar[tuple[str, ...]] = ("layer", "finish", "cancel")

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.over)

    def call(self, model: HostModel, side: HostSide) -> Call:
        what = self.pick(sorted(side.over))
        name = side.over[what]
        if what == "backup":
            return Call("finish", {"transfer": name})
        method = ("layer", "finish", "cancel")[self.amount % 3]
        layer = {"layer": model.config.start} if method == "layer" else {}
        return Call(method, {"transfer": name, **layer})


class GateOutside(Misuse):
    """A layer, a producer or a consumer that the gate hasn't."""

    methods: ClassVar[tuple[str, ...]] = ("complete", "set_consumer", "ready", "wait_until")

    def call(self, model: HostModel, side: HostSide) -> Call:
        layers = len(model.config.span)
        wrong: list[tuple[str, dict[str, int]]] = [
            ("complete", {"producer": 3, "layer": 0}),
            ("complete", {"producer": 0, "layer": layers}),
            ("set_consumer", {"consumer": (-2, 3)[self.amount // 6 % 2]}),
            ("ready", {"layer": layers}),
            ("wait_until", {"layer": -1}),
            ("complete", {"producer": -1, "layer": 0}),
        ]
        return Call(*wrong[self.amount % len(wrong)])


class CompleteTwice(Misuse):
    """A layer of the gate is there, and comes once more."""

    methods: ClassVar[tuple[str, ...]] = ("complete",)

    @classmethod
    def able(cls, model: HostModel) -> list[tuple[int, int]]:
        done = model.state["gate"]["done"]
        return [(at, layer) for at, each in enumerate(done) for layer, on in enumerate(each) if on]

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    def call(self, model: HostModel, side: HostSide) -> Call:
        producer, layer = self.pick(self.able(model))
        return Call("complete", {"producer": producer, "layer": layer})


MISUSE: tuple[type[Command], ...] = (
    TransferToBusyDevice, LoadOfWritten, SaveOfRead, BeginUndrained, NoSuchLayer, LayerTwice,
    FinishEarly, UseOver, GateOutside, CompleteTwice,
)  # fmt: skip
