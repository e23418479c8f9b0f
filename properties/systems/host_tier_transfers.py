"""The commands of the host tier about transfers: backups, and loads layer by layer.

What is backed up has been written just before, by a forward, under device slots that nobody has;
loads go to such slots too. Several transfers are under way at a time. Follows
`spec/interleave_hisparse_host_prefix.md` §4.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.host_tier_model import (
    Faults,
    HostModel,
    HostSide,
    Transfer,
    tags,
)

#: steps of a request that differ; more of them would be the same again
MOST_STEPS = 2
MOST_TRANSFERS = 4


def content(model: HostModel, side: HostSide, request: int, step: int) -> tuple[Any, ...]:
    """[buffer][place] → bytes of a row of the request, as of a step."""
    places = range(len(side.host[request]))
    return tuple(
        tuple(tuple(tags(width, request, step, layer, at, place)) for place in places)
        for at, (_, layer, width) in enumerate(model.config.buffers)
    )


@dataclass(frozen=True)
class _OfIdle(Command):
    """Base: a request whose slots are in no transfer; a forward has done `step`."""

    request: int
    step: int

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return model.fitting(model.idle())

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Any:
        return cls(choices.pick(cls.able(model)), choices.integer(0, MOST_STEPS))

    def applies(self, model: HostModel) -> bool:
        return self.request in self.able(model) and 0 <= self.step <= MOST_STEPS

    def args(self, model: HostModel, side: HostSide) -> dict[str, Any]:
        return {
            "host_slots": list(side.host[self.request]),
            "device_slots": side.take_device(side.num_pages(self.request)),
            "content": content(model, side, self.request, self.step),
        }


class Save(_OfIdle):
    """`backup`: all layers at once."""

    methods: ClassVar[tuple[str, ...]] = ("backup",)
    weight: ClassVar[int] = 12

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("backup", self.args(model, side))

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        side.saved.add(self.request)
        return []


@dataclass(frozen=True)
class BeginSave(Command):
    """`start_backup`: the rows of now."""

    methods: ClassVar[tuple[str, ...]] = ("start_backup",)

    request: int
    step: int
    transfer: int

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return Save.able(model) if len(model.side.transfers) < MOST_TRANSFERS else []

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> BeginSave:
        name = choices.pick(cls.able(model))
        return cls(name, choices.integer(0, MOST_STEPS), model.next_name)

    def applies(self, model: HostModel) -> bool:
        return self.transfer >= model.next_name and self._saving.applies(model)

    @property
    def _saving(self) -> Save:
        return Save(self.request, self.step)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("start_backup", {**self._saving.args(model, side), "transfer": self.transfer})

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        return begun(model, side, self.transfer, Transfer(self.request, False, []))


def begun(model: HostModel, side: HostSide, name: int, transfer: Transfer) -> Faults:
    """Books a transfer of all of a request's slots, and the device's first free ones."""
    transfer.device = side.take_device(side.num_pages(transfer.request))
    side.occupy(transfer.device)
    side.transfers[name] = transfer
    model.used(name)
    return []


@dataclass(frozen=True)
class BeginLoad(Command):
    """`start_load`, with a set of the gate or without; others may load the same slots."""

    methods: ClassVar[tuple[str, ...]] = ("start_load", "update_producer")
    weight: ClassVar[int] = 16

    request: int
    transfer: int
    gated: bool

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return model.loadable() if len(model.side.transfers) < MOST_TRANSFERS else []

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> BeginLoad:
        name = choices.pick(cls.able(model))
        return cls(name, model.next_name, drained(model) and choices.boolean())

    def applies(self, model: HostModel) -> bool:
        known = self.request in self.able(model) and self.transfer >= model.next_name
        return known and (drained(model) or not self.gated)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return load_call(side, self.request, self.transfer, self.gated)

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        return begun(model, side, self.transfer, Transfer(self.request, True, [], self.gated))


def drained(model: HostModel) -> bool:
    """Whether the next set of the gate can be taken."""
    gate = model.state["gate"]
    return all(gate["done"][(gate["producer"] + 1) % len(gate["done"])])


def load_call(side: HostSide, request: int, transfer: int, gated: bool) -> Call:
    """A load of a request to the first free pages of the device."""
    args = {
        "host_slots": list(side.host[request]),
        "device_slots": side.take_device(side.num_pages(request)),
    }
    return Call("start_load", {**args, "transfer": transfer, "gated": gated})


@dataclass(frozen=True)
class CopyLayer(Command):
    """`layer` of a load under way; before the first one a pool of virtual ids may move its rows."""

    methods: ClassVar[tuple[str, ...]] = ("layer", "complete")
    weight: ClassVar[int] = 30

    transfer: int
    layer: int
    move: int

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        span = len(model.config.span)
        return [
            name
            for name, each in model.side.transfers.items()
            if each.loading and len(each.layers) < span
        ]

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def most(cls, model: HostModel) -> int:
        """By how many pages rows may move: by none where layers have been copied."""
        still = not any(each.layers for each in model.side.transfers.values())
        return model.config.device_pages - 1 if model.config.virtual and still else 0

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> CopyLayer:
        name = choices.pick(cls.able(model))
        left = [n for n in model.config.span if n not in model.side.transfers[name].layers]
        # mostly in their order
        return cls(name, choices.pick([left[0], *left]), choices.integer(0, cls.most(model)))

    def applies(self, model: HostModel) -> bool:
        if self.transfer not in self.able(model) or not 0 <= self.move <= self.most(model):
            return False
        copied = model.side.transfers[self.transfer].layers
        return self.layer in model.config.span and self.layer not in copied

    def call(self, model: HostModel, side: HostSide) -> Call:
        args = {"transfer": self.transfer, "layer": self.layer}
        return Call("layer", {**args, "where": tuple(self._moved(side))} if self.move else args)

    def _moved(self, side: HostSide) -> list[int]:
        """Where ids lie when the device's pages have gone round."""
        size, pages = side.config.page_size, side.config.device_pages
        step = self.move * size
        return [
            row if row < size else (row - size + step) % (pages * size) + size for row in side.where
        ]

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        side.transfers[self.transfer].layers.add(self.layer)
        if self.move:
            side.where = self._moved(side)
            side.moved = True
        return []


@dataclass(frozen=True)
class _Ending(Command):
    """Base: the end of a transfer under way."""

    transfer: int

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        raise NotImplementedError

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Any:
        return cls(choices.pick(cls.able(model)))

    def applies(self, model: HostModel) -> bool:
        return self.transfer in self.able(model)

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call(type(self).methods[0], {"transfer": self.transfer})

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        ended = side.transfers.pop(self.transfer)
        side.vacate(ended.device)
        side.over["load" if ended.loading else "backup"] = self.transfer
        if not ended.loading:
            side.saved.add(ended.request)
        return []


class Finish(_Ending):
    """`finish` of a backup, or of a load whose layers are all there."""

    methods: ClassVar[tuple[str, ...]] = ("finish",)
    weight: ClassVar[int] = 20

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        span = len(model.config.span)
        return [
            name
            for name, each in model.side.transfers.items()
            if not each.loading or len(each.layers) == span
        ]


class Cancel(_Ending):
    """`cancel` of a load, whatever has been copied."""

    methods: ClassVar[tuple[str, ...]] = ("cancel",)

    @classmethod
    def able(cls, model: HostModel) -> list[int]:
        return [name for name, each in model.side.transfers.items() if each.loading]


@dataclass(frozen=True)
class LoadAtOnce(Command):
    """`load` of one layer, which the pool may not have."""

    methods: ClassVar[tuple[str, ...]] = ("load",)
    weight: ClassVar[int] = 6

    request: int
    layer: int

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.loadable())

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> LoadAtOnce:
        span = model.config.span
        name = choices.pick(model.loadable())
        return cls(name, choices.integer(span.start - 1, span.stop))

    def applies(self, model: HostModel) -> bool:
        return self.request in model.loadable()

    def call(self, model: HostModel, side: HostSide) -> Call:
        args = {
            "host_slots": list(side.host[self.request]),
            "device_slots": side.take_device(side.num_pages(self.request)),
        }
        return Call("load", {**args, "layer": self.layer})


LEGAL: tuple[type[Command], ...] = (
    Save, BeginSave, BeginLoad, CopyLayer, Finish, Cancel, LoadAtOnce,
)  # fmt: skip
