"""Misuse of the host tier as commands: each must be refused, and nothing changes.

Follows `spec/interleave_hisparse_host_prefix.md` §4.4, §4.11 and `spec/core.md` §4b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command, Distortion
from properties.systems.host_tier_model import HostModel, HostSide
from properties.systems.host_tier_transfers import drained, load_call

#: so many faults of one kind are told apart by a number, and one less
MOST_KINDS = 11
TRANSFERS = ("backup", "load", "start_backup", "start_load")


@dataclass(frozen=True)
class _Misuse(Command):
    """Base: `amount` tells apart what is alike."""

    misuse: ClassVar[bool] = True
    weight: ClassVar[int] = 3
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)

    amount: int

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Any:
        return cls(choices.integer(0, MOST_KINDS))

    def applies(self, model: HostModel) -> bool:
        return self.amount >= 0 and type(self).enabled(model)

    def pick(self, options: list[Any]) -> Any:
        return options[self.amount % len(options)]


# ---- slots --------------------


class AllocNegative(_Misuse):
    """Fewer slots than none."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("alloc", {"need_size": -1 - self.amount})


class AllocPartOfPage(_Misuse):
    """Slots that aren't whole pages."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.config.page_size > 1)

    def call(self, model: HostModel, side: HostSide) -> Call:
        size = model.config.page_size
        return Call("alloc", {"need_size": self.amount * size + 1 + self.amount % (size - 1)})


class _OfFree(_Misuse):
    """Base: a free that has a fault."""

    methods: ClassVar[tuple[str, ...]] = ("free",)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        """The slots; none where this side has nothing of the kind."""
        raise NotImplementedError

    def call(self, model: HostModel, side: HostSide) -> Call | None:  # type: ignore[override]
        slots = self.slots(model, side)
        return Call("free", {"free_index": slots}) if slots else None

    def page(self, model: HostModel, slots: set[int]) -> list[int]:
        """One of the pages of these slots."""
        size = model.config.page_size
        firsts = sorted(slot for slot in slots if slot % size == 0)
        return list(range(first := self.pick(firsts), first + size)) if firsts else []


class _OfHeld(_OfFree):
    """Base: beside the slots of somebody who has some."""

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.host)

    def held(self, model: HostModel, side: HostSide) -> list[int]:
        return list(side.host[self.pick(model.names)])


class FreeOutside(_OfHeld):
    """Slots below 0 or beyond the last, as many as a page has."""

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        config = model.config
        first = (-config.page_size, config.size, 2**31)[self.amount % 3]
        slots = self.held(model, side)[: -config.page_size or None]
        return slots + list(range(first, first + config.page_size))


class FreeUnissued(_OfFree):
    """A page that was never handed out since the last clear."""

    # it is free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return len(model.side.issued) < int(model.config.size)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        return self.page(model, set(range(model.config.size)) - side.issued)


class FreeAgain(_OfFree):
    """A page that has been freed already."""

    # it is free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.freed)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        return self.page(model, side.freed)


class FreeTwiceInCall(_OfHeld):
    """A page named twice in one call."""

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        slots = self.held(model, side)
        return slots + slots[: model.config.page_size]


class FreePartOfPage(_OfHeld):
    """Pages of which slots are left out, or others named in their place."""

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return super().enabled(model) and model.config.page_size > 1

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        slots = self.held(model, side)
        others = [slot for slot in side.owned() if slot not in slots]
        # a slot too few, one of a page twice, one of somebody else's
        return [slots[1:], [*slots[:-1], slots[0]], [*slots[:-1], *(others or slots)[:1]]][
            self.amount % 3
        ]


class FreeTooMany(_OfFree):
    """Every slot that there is, while not all are out."""

    # some are free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return model.free_pages > 0

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        return list(range(model.config.size))


class FreeInTransfer(_OfFree):
    """Slots that a load reads, or a backup writes."""

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.transfers)

    def slots(self, model: HostModel, side: HostSide) -> list[int]:
        names = sorted(each.request for each in side.transfers.values())
        return list(side.host[self.pick(names)])


class ClearInTransfer(_Misuse):
    """`clear` while a transfer is under way."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.side.transfers)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("clear")


# ---- transfers --------------------


@dataclass(frozen=True)
class _OfTransfers(_Misuse):
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


class TransferOutside(_OfTransfers):
    """Host or device slots that there aren't."""

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        last = len(side.where)
        slots, slot = [(host, model.config.size), (host, -1), (device, last), (device, -1)][
            self.amount % 4
        ]
        slots[-1] = slot


class TransferReserved(_OfTransfers):
    """Slots of the device's first page."""

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        device[0] = self.amount % model.config.page_size


class TransferOfNobody(_OfTransfers):
    """Host slots that are free."""

    # one is free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return super().able(model) if model.free_pages else []

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        owned = side.owned()
        host[0] = self.pick([slot for slot in range(model.config.size) if slot not in owned])


class TransferTwice(_OfTransfers):
    """A slot that is written twice."""

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return [name for name in super().able(model) if len(model.side.host[name]) > 1]

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        slots = device if self.loading else host
        slots[-1] = slots[0]


class TransferUnpaired(_OfTransfers):
    """More host slots than device slots, or fewer."""

    def spoil(self, model: HostModel, side: HostSide, host: list[int], device: list[int]) -> None:
        (host if self.amount % 2 else device).pop()


class WrongIds(_OfTransfers):
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


@dataclass(frozen=True)
class _OfUnderWay(_OfTransfers):
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


class LoadOfWritten(_Misuse):
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


class SaveOfRead(_Misuse):
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


class BeginUndrained(_Misuse):
    """A load behind the gate while its next set awaits layers of an earlier one."""

    methods: ClassVar[tuple[str, ...]] = ("start_load", "update_producer")
    weight: ClassVar[int] = 40  # three loads have to be under way, or given up

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
class _OfLoad(_Misuse):
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


class UseOver(_Misuse):
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


# ---- the gate --------------------


class GateOutside(_Misuse):
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


class CompleteTwice(_Misuse):
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
    AllocNegative, AllocPartOfPage, FreeOutside, FreeUnissued, FreeAgain, FreeTwiceInCall,
    FreePartOfPage, FreeTooMany, FreeInTransfer, ClearInTransfer, TransferOutside,
    TransferReserved, TransferOfNobody, TransferTwice, TransferUnpaired, WrongIds,
    TransferToBusyDevice, LoadOfWritten, SaveOfRead, BeginUndrained, NoSuchLayer, LayerTwice,
    FinishEarly, UseOver, GateOutside, CompleteTwice,
)  # fmt: skip
