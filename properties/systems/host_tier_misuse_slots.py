"""Misuse of the slots of transfers as commands: each must be refused, and nothing changes.

Follows `spec/interleave_hisparse_host_prefix.md` §4.6, §4.11 and `spec/core.md` §4b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command, Distortion
from properties.systems.host_tier_misuse import MOST_KINDS, Misuse
from properties.systems.host_tier_model import HostModel, HostSide
from properties.systems.host_tier_transfers import drained

TRANSFERS = ("backup", "load", "start_backup", "start_load")


@dataclass(frozen=True)
class OfTransfers(Misuse):
    """Base: a transfer that is all right but for one thing, of a request that has slots."""

    methods: ClassVar[tuple[str, ...]] = TRANSFERS

    request: int
    method: str

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return model.fitting(model.idle())

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Any:
        name, method = choices.pick(cls.able(model)), choices.pick(cls.methods)
        return cls(choices.integer(0, MOST_KINDS), name, method)

    def applies(self, model: HostModel) -> bool:
        return super().applies(model) and self.request in self.able(model) and (
            self.method in self.methods
        )  # fmt: skip

    @property
    def loading(self) -> bool:
        return self.method.endswith("load")

    def good(self, model: HostModel, side: HostSide) -> dict[str, Any]:
        args: dict[str, Any] = {
            "host_slots": list(side.host[self.request]),
            "device_slots": side.take_device(side.num_pages(self.request)),
        }
        if self.method == "load":
            args["layer"] = model.config.start
        if self.method.startswith("start"):
            args["transfer"] = model.next_name
        if self.method == "start_load":
            args["gated"] = drained(model)
        return args

    def call(self, model: HostModel, side: HostSide) -> Call:
        args = self.good(model, side)
        self.spoil(model, side, args["host_slots"], args["device_slots"])
        return Call(self.method, args)

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        """Makes the slots of a good transfer bad ones."""


class TransferOutside(OfTransfers):
    """Host or device slots that there aren't."""

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        last = len(side.where)
        slots, slot = [(host, model.config.size), (host, -1), (device, last), (device, -1)][
            self.amount % 4
        ]
        slots[-1] = slot


class TransferReserved(OfTransfers):
    """Slots of the device's first page."""

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        device[0] = self.amount % model.config.page_size


class TransferOfNobody(OfTransfers):
    """Host slots that are free."""

    # one is free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return super().able(model) if model.free_pages else []

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        owned = side.owned()
        host[0] = self.pick([slot for slot in range(model.config.size) if slot not in owned])


class TransferTwice(OfTransfers):
    """A slot that is written twice."""

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return [name for name in super().able(model) if len(model.side.host[name]) > 1]

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        slots = device if self.loading else host
        slots[-1] = slots[0]


class TransferUnpaired(OfTransfers):
    """More host slots than device slots, or fewer."""

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        (host if self.amount % 2 else device).pop()


class WrongIds(OfTransfers):
    """Slots of the wrong type or shape."""

    methods: ClassVar[tuple[str, ...]] = (*TRANSFERS, "free", "in_transfer")

    def call(self, model: HostModel, side: HostSide) -> Call:
        args = self.good(model, side)
        names = ("host_slots", "device_slots")
        if self.method == "free":
            args, names = {"free_index": args["host_slots"]}, ("free_index", "free_index")
        if self.method == "in_transfer":
            args, names = {"device_slots": args["device_slots"]}, (names[1], names[1])
        what = ("dtype", "shape")[self.amount % 2]
        return Call(self.method, args, distortion=Distortion(names[self.amount % 4 // 2], what))


MISUSE: tuple[type[Command], ...] = (
    TransferOutside, TransferReserved, TransferOfNobody, TransferTwice, TransferUnpaired, WrongIds,
)  # fmt: skip
