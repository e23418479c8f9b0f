"""The commands of the KV pools, legal use: requests write, move, go to the host.

Spec: `spec/pools_states_sizing.md` §7 to §13, `spec/core.md` §7, §8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.kv_pools_model import (
    SCALES,
    SOURCES,
    KVModel,
    KVSide,
    rows,
    targets,
    window_map,
)
from properties.systems.state_pools_model import Faults

FULL = "all slots taken"
MOST_TOKENS, MOST_PADDED = 4, 2
#: what freed slots are written with, so that a new owner who reads them is seen
POISON = 97
#: writes of whole rows, by kind of pool
WRITES = {
    "mha": "set_kv_buffer", "hybrid": "set_kv_buffer", "swa": "set_kv_buffer",
    "k_only": "set_k_buffer", "mla": "set_kv_buffer", "dsa": "set_kv_buffer",
    "packed": "set_mla_kv_buffer",
}  # fmt: skip


@dataclass(frozen=True)
class OfKV(Command):
    """Base: `writes` is broken where content isn't as it has to be afterwards."""

    writes: ClassVar[str] = "I57"


def padding(config: Any, count: int) -> list[int]:
    """What padded lanes aim at: the first page, or nowhere."""
    return [0, config.page_size - 1 if config.tame else -1][:count]


def loc_args(model: KVModel, slots: list[int]) -> dict[str, Any]:
    """Slots of a write, with their windows where there are some."""
    args: dict[str, Any] = {"loc": tuple(slots), "swa_loc": None, "marked": model.config.marked}
    if model.config.kind == "swa":
        mapping = window_map(model.config, model.reference.variant)
        args["swa_loc"] = tuple(targets(mapping, slots))
    return args


def write_call(
    model: KVModel, method: str, layer: int, slots: list[int], source: str, seed: int,
    scale: float | None = None,
) -> Call:  # fmt: skip
    """A write of rows that say whose they are."""
    config, count = model.config, len(slots)
    args = {**loc_args(model, slots), "layer": layer, "source": source}
    if method == "set_mla_kv_buffer":
        finite = config.tame or config.kind == "packed"
        args["nope"] = rows(count, config.rank, source, seed, finite=finite)
        args["rope"] = rows(count, config.v_dim, source, seed + 1, finite=finite)
        return Call(method, args)
    tame = config.tame
    width = config.rank + config.v_dim if config.is_latent else config.heads * config.dim
    args["k"] = rows(count, width, source, seed, finite=tame)
    if config.is_latent:
        return Call(method, args)
    args["k_scale"] = scale
    if method != "set_k_buffer":
        args["v"] = rows(count, config.heads * config.v_dim, source, seed + 1, finite=tame)
        args["v_scale"] = None if scale is None else scale + 1
    return Call(method, args)


@dataclass(frozen=True)
class Write(OfKV):
    """A layer's rows of a request's new tokens, or of those that it has, with padded lanes."""

    methods: ClassVar[tuple[str, ...]] = ("set_kv_buffer", "set_k_buffer", "set_mla_kv_buffer")
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 20

    request: int
    tokens: int
    layer: int
    source: int
    scale: int
    padded: int
    split: bool

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Write:
        most = min(MOST_TOKENS, len(model.side.free))
        return cls(
            choices.pick([*model.names, model.next_name]), choices.integer(0, most, (most,)),
            choices.integer(0, len(model.config.layer_ids) - 1), choices.integer(0, len(SOURCES)),
            choices.integer(0, len(SCALES) - 1, (0,)), choices.integer(0, MOST_PADDED, (0,)),
            choices.boolean(),
        )  # fmt: skip

    def applies(self, model: KVModel) -> bool:
        return (
            (self.request in model.side.slots or self.request >= model.next_name)
            and 0 <= self.tokens <= len(model.side.free)
            and 0 <= self.layer < len(model.config.layer_ids)
            and 0 <= self.source <= len(SOURCES)
            and 0 <= self.scale < len(SCALES)
            and 0 <= self.padded <= MOST_PADDED
        )

    def call(self, model: KVModel, side: KVSide) -> Call:
        config = model.config
        method = WRITES[config.kind]
        if self.split and config.is_latent and "set_mla_kv_buffer" in model.calls:
            method = "set_mla_kv_buffer"
        source = (*SOURCES, config.dtype)[self.source]
        if config.kind == "packed" and source == config.dtype:
            source = "bfloat16"
        own = side.slots.get(self.request, [])
        slots = (side.free[: self.tokens] or own) + padding(config, self.padded)
        scale = SCALES[self.scale] if source != config.dtype else None
        if config.tame and scale is not None and scale < 1:
            scale = 1 / scale
        seed = self.request * 7 + self.layer * 3 + self.source
        return write_call(model, method, config.layer_ids[self.layer], slots, source, seed, scale)

    def settle(self, model: KVModel, side: KVSide, value: Any) -> Faults:
        model.used(self.request)
        side.take(self.request, self.tokens)
        return []


@dataclass(frozen=True)
class OfOne(OfKV):
    """A command about a request that has slots."""

    request: int

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.side.slots)

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Any:
        return cls(choices.pick(model.names))

    def applies(self, model: KVModel) -> bool:
        return type(self).enabled(model) and self.request in model.side.slots


@dataclass(frozen=True)
class Commit(OfKV):
    """`set_kv_buffer_prefix_valid`: of each row of slots the first few are written."""

    methods: ClassVar[tuple[str, ...]] = ("set_kv_buffer_prefix_valid",)
    weight: ClassVar[int] = 8

    lens: tuple[int, ...]
    layer: int

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.kind == "mha")

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Commit:
        lens = tuple(choices.integer(0, 3) for _ in range(choices.integer(0, 2)))
        return cls(lens, choices.integer(0, model.config.layers - 1))

    def applies(self, model: KVModel) -> bool:
        return (
            type(self).enabled(model)
            and 0 <= self.layer < model.config.layers
            and all(0 <= length <= 3 for length in self.lens)
        )

    def call(self, model: KVModel, side: KVSide) -> Call:
        config = model.config
        slots = iter(range(config.page_size, config.page_size + config.size))
        end = config.page_size + config.size
        # what isn't committed may be anything
        loc = tuple(
            tuple(next(slots, 0) if column < length else end + 5 for column in range(3))
            for length in self.lens
        )
        count, source = 3 * len(self.lens), "float32"
        return Call(
            "set_kv_buffer_prefix_valid",
            {
                "layer": config.layer_ids[self.layer], "loc_2d": loc, "source": source,
                "commit_lens": tuple(self.lens),
                "k": rows(count, config.heads * config.dim, source, 11, finite=config.tame),
                "v": rows(count, config.heads * config.v_dim, source, 12, finite=config.tame),
            },
        )  # fmt: skip


@dataclass(frozen=True)
class WriteIndex(OfOne):
    """`set_index_k_scale_buffer` of a request's tokens, with a padded lane."""

    methods: ClassVar[tuple[str, ...]] = ("set_index_k_scale_buffer",)
    weight: ClassVar[int] = 8

    layer: int

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.has_index and bool(model.side.slots))

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> WriteIndex:
        layers = [at for at, skip in enumerate(model.config.skipped) if not skip]
        return cls(choices.pick(model.names), choices.pick(layers))

    def applies(self, model: KVModel) -> bool:
        skipped = model.config.skipped
        return super().applies(model) and self.layer < len(skipped) and not skipped[self.layer]

    def call(self, model: KVModel, side: KVSide) -> Call:
        slots = [*side.slots[self.request], -1]
        args = {**loc_args(model, slots), "layer": model.config.layer_ids[self.layer]}
        args["index_k"] = rows(len(slots), 128, "uint8", self.request)
        args["index_scale"] = rows(len(slots), 4, "uint8", self.request + 1)
        return Call("set_index_k_scale_buffer", args)


@dataclass(frozen=True)
class Move(OfOne):
    """`move_kv_cache`: a request's tokens to free slots, or round among their own."""

    methods: ClassVar[tuple[str, ...]] = ("move_kv_cache",)
    weight: ClassVar[int] = 10
    writes: ClassVar[str] = "I58"

    away: bool
    padded: int

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Move:
        name = choices.pick(model.names)
        return cls(name, choices.boolean(), choices.integer(0, MOST_PADDED, (0,)))

    def applies(self, model: KVModel) -> bool:
        return super().applies(model) and 0 <= self.padded <= MOST_PADDED

    def _moved(self, side: KVSide) -> tuple[list[int], list[int]]:
        source = side.slots[self.request]
        if self.away:
            target = side.free[: len(source)]
            return target, source[: len(target)]
        return source[1:] + source[:1], source

    def call(self, model: KVModel, side: KVSide) -> Call:
        target, source = self._moved(side)
        # Who moves windows sees to it that they are paired; what a padded lane reads is no matter.
        # Counted from the end of a map, -2 would be the last slot.
        lanes = [0, 0 if model.config.tame else -2][: self.padded]
        return Call("move_kv_cache", {"tgt_loc": target + lanes, "src_loc": source + lanes})

    def settle(self, model: KVModel, side: KVSide, value: Any) -> Faults:
        if self.away:
            target, source = self._moved(side)
            side.slots[self.request] = target + side.slots[self.request][len(target) :]
            side.free = side.free[len(target) :] + source
            side.used.update(target)
        return []


class Finish(OfOne):
    """A request ends, and its slots are poisoned in a layer: the next owner mustn't see it."""

    methods: ClassVar[tuple[str, ...]] = ("set_kv_buffer", "set_k_buffer", "set_mla_kv_buffer")
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 6

    def call(self, model: KVModel, side: KVSide) -> Call:
        config = model.config
        method = WRITES[config.kind]
        slots = side.slots[self.request]
        return write_call(model, method, config.layer_ids[0], slots, "float32", POISON)

    def settle(self, model: KVModel, side: KVSide, value: Any) -> Faults:
        side.give(self.request)
        return []


class Park(OfOne):
    """`get_cpu_copy`: a request goes to the host, and its slots are free."""

    methods: ClassVar[tuple[str, ...]] = ("get_cpu_copy",)
    weight: ClassVar[int] = 6
    writes: ClassVar[str] = "I38"

    def call(self, model: KVModel, side: KVSide) -> Call:
        return Call("get_cpu_copy", {"indices": side.slots[self.request]})

    def settle(self, model: KVModel, side: KVSide, value: Any) -> Faults:
        side.parked[self.request] = len(side.slots[self.request]), value
        side.give(self.request)
        return []

    def answer_faults(self, model: KVModel, call: Call, value: Any) -> Faults:
        return differs("I38", call.method, model.reference.call(call), value)


def differs(number: str, what: str, due: Any, value: Any) -> Faults:
    """A result that isn't as due."""
    return [] if value == due else [(number, f"{what} gave {value!s:.200}, {due!s:.200} is due")]


@dataclass(frozen=True)
class Resume(OfKV):
    """`load_cpu_copy`: a parked request comes back, under other slots."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_copy",)
    weight: ClassVar[int] = 8
    writes: ClassVar[str] = "I38"

    request: int

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return any(cls(name).applies(model) for name in model.side.parked)

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Resume:
        return cls(choices.pick([n for n in model.side.parked if cls(n).applies(model)]))

    def applies(self, model: KVModel) -> bool:
        parked = model.side.parked
        return self.request in parked and parked[self.request][0] <= len(model.side.free)

    def call(self, model: KVModel, side: KVSide) -> Call:
        count, copy = side.parked[self.request]
        return Call("load_cpu_copy", {"copy": copy, "indices": side.free[:count]})

    def settle(self, model: KVModel, side: KVSide, value: Any) -> Faults:
        count, _ = side.parked.pop(self.request)
        side.take(self.request, count)
        return []


@dataclass(frozen=True)
class Remap(OfKV):
    """`register_mapping`: windows come and go, on the allocator's map."""

    methods: ClassVar[tuple[str, ...]] = ("register_mapping",)

    variant: int

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.kind == "swa")

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Remap:
        return cls(choices.integer(0, 2))

    def applies(self, model: KVModel) -> bool:
        return type(self).enabled(model) and 0 <= self.variant <= 2

    def call(self, model: KVModel, side: KVSide) -> Call:
        mapping = tuple(window_map(model.config, self.variant))
        return Call("register_mapping", {"variant": self.variant, "mapping": mapping})


LEGAL = (Write, Commit, WriteIndex, Move, Finish, Park, Resume, Remap)
