"""The commands of the state pools, legal use (`spec/pools_states_sizing.md` §3, §5).

A life around them: requests begin in a cleared slot or fork from another's, a forward writes their
states step by step, they finish, go to the host and come back under other slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.state_pools_model import Faults, StateModel, StateSide, tags

FULL = "all slots taken"
MOST_PADDED = 2
POISON = 113
#: steps of a request that differ; more of them would be the same again
MOST_STEPS = 2


@dataclass(frozen=True)
class OfStates(Command):
    """Base: `writes` is broken where content isn't as it has to be afterwards."""

    writes: ClassVar[str] = "I57"


@dataclass(frozen=True)
class Admit(OfStates):
    """`clear_slots` of new requests' slots, with padded lanes behind them."""

    methods: ClassVar[tuple[str, ...]] = ("clear_slots",)
    weight: ClassVar[int] = 16
    writes: ClassVar[str] = "I60"

    requests: tuple[int, ...]
    padded: int

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Admit:
        count = choices.integer(0, min(3, len(model.side.free)))
        return cls(model.new_names(count), choices.integer(0, MOST_PADDED, (0,)))

    def applies(self, model: StateModel) -> bool:
        return 0 <= self.padded <= MOST_PADDED and model.fresh(self.requests)

    def call(self, model: StateModel, side: StateSide) -> Call:
        slots = side.free[: len(self.requests)]
        return Call("clear_slots", {"indices": slots + [0] * self.padded})

    def settle(self, model: StateModel, side: StateSide, value: Any) -> Faults:
        model.used(*self.requests)
        for name in self.requests:
            side.take(name)
        return []


@dataclass(frozen=True)
class Fork(OfStates):
    """`copy_from`: new requests begin with the states of others."""

    methods: ClassVar[tuple[str, ...]] = ("copy_from",)
    weight: ClassVar[int] = 8
    writes: ClassVar[str] = "I58"

    sources: tuple[int, ...]
    requests: tuple[int, ...]
    padded: int

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Fork:
        most = min(3, len(model.side.free)) if model.side.slots else 0
        count = choices.integer(0, most, (most,))
        sources = tuple(choices.pick(model.names) for _ in range(count))
        return cls(sources, model.new_names(count), choices.integer(0, MOST_PADDED, (0,)))

    def applies(self, model: StateModel) -> bool:
        return (
            0 <= self.padded <= MOST_PADDED
            and len(self.sources) == len(self.requests)
            and model.fresh(self.requests)
            and all(name in model.side.slots for name in self.sources)
        )

    def call(self, model: StateModel, side: StateSide) -> Call:
        sources = [side.slots[name] for name in self.sources]
        # what a padded lane reads doesn't matter
        lanes = (sources[:1] or [0]) * self.padded
        targets = side.free[: len(self.requests)] + [0] * self.padded
        return Call("copy_from", {"src_indices": sources + lanes, "dst_indices": targets})

    def settle(self, model: StateModel, side: StateSide, value: Any) -> Faults:
        model.used(*self.requests)
        for name in self.requests:
            side.take(name)
        return []


@dataclass(frozen=True)
class _OfOne(OfStates):
    """A command about a request that has a slot."""

    request: int

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.side.slots)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Any:
        return cls(choices.pick(model.names))

    def applies(self, model: StateModel) -> bool:
        return type(self).enabled(model) and self.request in model.side.slots


@dataclass(frozen=True)
class Forward(OfStates):
    """A forward writes a request's state of one layer, by `mamba2_layer_cache`."""

    methods: ClassVar[tuple[str, ...]] = ("mamba2_layer_cache",)
    weight: ClassVar[int] = 10

    request: int
    place: int
    step: int

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.side.slots)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Forward:
        place = choices.integer(0, model.config.layers - 1)
        return cls(choices.pick(model.names), place, choices.integer(0, MOST_STEPS))

    def applies(self, model: StateModel) -> bool:
        layers = range(model.config.layers)
        return self.request in model.side.slots and self.place in layers and self.step >= 0

    def call(self, model: StateModel, side: StateSide) -> Call:
        values = layer_values(model.config, self.request, self.step, self.place)
        args = {"layer_id": self.place, "slot": side.slots[self.request], **values}
        return Call("mamba2_layer_cache", args)


def layer_values(config: Any, request: int, step: int, place: int) -> dict[str, Any]:
    """What a forward writes in one layer."""
    convs = tuple(
        tags(lines * columns, request, step, place, at)
        for at, (lines, columns) in enumerate(config.conv_shapes)
    )
    return {"convs": convs, "temporal": tags(config.num_temporal, request, step, place, 9)}


class Finish(_OfOne):
    """A request ends, and its slot is poisoned: the next owner mustn't see it."""

    methods: ClassVar[tuple[str, ...]] = ("mamba2_layer_cache",)
    weight: ClassVar[int] = 6

    def call(self, model: StateModel, side: StateSide) -> Call:
        values = layer_values(model.config, POISON, 0, 0)
        args = {"layer_id": 0, "slot": side.slots[self.request], **values}
        return Call("mamba2_layer_cache", args)

    def settle(self, model: StateModel, side: StateSide, value: Any) -> Faults:
        side.give(self.request)
        return []


class Park(_OfOne):
    """`get_cpu_copy`: a request goes to the host, and its slot is free."""

    methods: ClassVar[tuple[str, ...]] = ("get_cpu_copy",)
    weight: ClassVar[int] = 6
    writes: ClassVar[str] = "I38"

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("get_cpu_copy", {"indices": [side.slots[self.request]]})

    def settle(self, model: StateModel, side: StateSide, value: Any) -> Faults:
        side.parked[self.request] = value
        side.give(self.request)
        return []

    def answer_faults(self, model: StateModel, call: Call, value: Any) -> Faults:
        return differs("I38", "get_cpu_copy", model.reference.call(call), value)


def differs(number: str, what: str, due: Any, value: Any) -> Faults:
    """A result that isn't as due."""
    return [] if value == due else [(number, f"{what} gave {value!s:.200}, {due!s:.200} is due")]


@dataclass(frozen=True)
class Resume(OfStates):
    """`load_cpu_copy`: parked requests come back, under other slots."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_copy",)
    weight: ClassVar[int] = 6
    writes: ClassVar[str] = "I38"
    # they come back to slots that are free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("served", FULL)})

    request: int

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.side.parked and model.side.free)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Resume:
        return cls(choices.pick(list(model.side.parked)))

    def applies(self, model: StateModel) -> bool:
        return self.request in model.side.parked and bool(model.side.free)

    def call(self, model: StateModel, side: StateSide) -> Call:
        payload = side.parked[self.request]
        return Call("load_cpu_copy", {"mamba_cache_cpu": payload, "indices": [side.free[0]]})

    def settle(self, model: StateModel, side: StateSide, value: Any) -> Faults:
        del side.parked[self.request]
        side.take(self.request)
        return []


@dataclass(frozen=True)
class Exchange(OfStates):
    """`load_cpu_copy` of several requests' states, each under another's slot."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_copy",)
    weight: ClassVar[int] = 4
    writes: ClassVar[str] = "I38"

    requests: tuple[int, ...]

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.side.slots)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Exchange:
        return cls(tuple(choices.subset(model.names, 0, 3)))

    def applies(self, model: StateModel) -> bool:
        names = self.requests
        return len(set(names)) == len(names) and all(name in model.side.slots for name in names)

    def call(self, model: StateModel, side: StateSide) -> Call:
        # the reference's payload: what a subject saves is compared where requests are parked
        slots = [side.slots[name] for name in self.requests]
        payload = model.reference.call(Call("get_cpu_copy", {"indices": slots}))
        return Call("load_cpu_copy", {"mamba_cache_cpu": payload, "indices": slots[::-1]})


@dataclass(frozen=True)
class Draft(OfStates):
    """A forward writes a draft step of all convs and the temporal state of a layer."""

    methods: ClassVar[tuple[str, ...]] = ("get_speculative_mamba2_params_all_layers",)
    weight: ClassVar[int] = 8

    place: int
    row: int
    step: int
    tag: int

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.config.draft)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Draft:
        config = model.config
        return cls(
            choices.integer(0, config.layers - 1), choices.integer(0, config.rows - 1),
            choices.integer(0, config.draft - 1), choices.integer(0, MOST_STEPS),
        )  # fmt: skip

    def applies(self, model: StateModel) -> bool:
        config = model.config
        return (
            self.place in range(config.layers)
            and self.row in range(config.rows)
            and self.step in range(config.draft)
            and self.tag >= 0
        )

    def call(self, model: StateModel, side: StateSide) -> Call:
        values = layer_values(model.config, self.tag, self.step, self.place)
        where = {"place": self.place, "row": self.row, "step": self.step}
        return Call("get_speculative_mamba2_params_all_layers", {**where, **values})


class AskSize(OfStates):
    """`get_kv_size_bytes`: the bytes of the pool's own tensors."""

    methods: ClassVar[tuple[str, ...]] = ("get_kv_size_bytes",)
    weight: ClassVar[int] = 1

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("get_kv_size_bytes", {"which": "pool"})

    def answer_faults(self, model: StateModel, call: Call, value: Any) -> Faults:
        return differs("I61", call.method, model.reference.call(call), value)


class AskTransfer(OfStates):
    """How a transfer has to move the states, siblings' included."""

    methods: ClassVar[tuple[str, ...]] = (
        "get_contiguous_buf_infos", "get_state_dim_per_tensor", "get_state_layer_ids",
        "get_state_slice_outer_counts", "get_state_conv_shard_groups",
    )  # fmt: skip
    weight: ClassVar[int] = 2

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("get_contiguous_buf_infos")

    def answer_faults(self, model: StateModel, call: Call, value: Any) -> Faults:
        return differs("I61", "the description of a transfer", model.reference.call(call), value)


LEGAL: tuple[type[Command], ...] = (
    Admit, Fork, Forward, Finish, Park, Resume, Exchange, Draft, AskSize, AskTransfer,
)  # fmt: skip
