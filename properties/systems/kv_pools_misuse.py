"""Misuse of the KV pools as commands: each must be refused, and no byte changes.

Follows `spec/pools_states_sizing.md` §7 to §13 and `spec/core.md` §4b, §7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Distortion
from properties.systems.kv_pools_commands import WRITES, OfKV, loc_args, write_call
from properties.systems.kv_pools_model import KVModel, KVSide, rows
from properties.systems.kv_pools_reads import Read

ALL_WRITES = ("set_kv_buffer", "set_k_buffer", "set_mla_kv_buffer")


@dataclass(frozen=True)
class _Misuse(OfKV):
    """Base: `amount` chooses among the variants of a slip."""

    misuse: ClassVar[bool] = True
    weight: ClassVar[int] = 2
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)
    any_method: ClassVar[bool] = True

    amount: int

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Any:
        return cls(choices.integer(1, 8))

    def applies(self, model: KVModel) -> bool:
        return type(self).enabled(model) and self.amount > 0


def good_write(model: KVModel, slots: list[int], layer: int | None = None) -> Call:
    """A write of the pool's own kind, all right but for what is changed."""
    config = model.config
    chosen = config.layer_ids[0] if layer is None else layer
    return write_call(model, WRITES[config.kind], chosen, slots, "float32", 3)


def outside(model: KVModel, amount: int) -> int:
    """A layer that the pool hasn't got."""
    ids = model.config.layer_ids
    return (-1, max(ids) + 1, max(ids) + 9)[amount % 3]


class LayerOutside(_Misuse):
    """A write to a layer that the pool hasn't got, or a read of one."""

    methods: ClassVar[tuple[str, ...]] = (*ALL_WRITES, *Read.methods)

    def call(self, model: KVModel, side: KVSide) -> Call:
        layer = outside(model, self.amount)
        if self.amount % 2:
            return good_write(model, [model.config.page_size], layer)
        found = Read.choices_of(model)
        return Call(found[self.amount % 3 // 2 % len(found)], {"layer_id": layer})


class SlotBeyond(_Misuse):
    """A slot behind the pool's last one."""

    methods: ClassVar[tuple[str, ...]] = (*ALL_WRITES, "move_kv_cache", "get_cpu_copy")

    def call(self, model: KVModel, side: KVSide) -> Call:
        config = model.config
        beyond, own = config.page_size + config.size + self.amount // 4, config.page_size
        if self.amount % 4 == 0:
            return Call("get_cpu_copy", {"indices": [own, beyond]})
        if self.amount % 4 == 1 and config.kind != "swa":
            pair = ([own, beyond], [own, own]) if self.amount > 4 else ([own], [beyond])
            return Call("move_kv_cache", {"tgt_loc": pair[0], "src_loc": pair[1]})
        write = good_write(model, [own, own + 1 if config.size > 1 else own, own])
        slots = (own, beyond, own)
        return write._replace(args={**write.args, "loc": slots, "swa_loc": slots})


class ReservedSlot(_Misuse):
    """A slot of the first page to the host, or moved to a request's."""

    methods: ClassVar[tuple[str, ...]] = ("move_kv_cache", "get_cpu_copy")

    def call(self, model: KVModel, side: KVSide) -> Call:
        own, reserved = model.config.page_size, model.config.page_size - 1
        if self.amount % 2 and model.config.kind != "swa":
            return Call("move_kv_cache", {"tgt_loc": [own], "src_loc": [reserved]})
        return Call("get_cpu_copy", {"indices": [own, reserved]})


class MovedTwice(_Misuse):
    """A target that one move writes twice, or sources without targets."""

    methods: ClassVar[tuple[str, ...]] = ("move_kv_cache",)

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.kind != "swa")

    def call(self, model: KVModel, side: KVSide) -> Call:
        own = model.config.page_size
        target = [own, own] if self.amount % 2 else [own]
        return Call("move_kv_cache", {"tgt_loc": target, "src_loc": [own, own]})


class CopyElsewhere(_Misuse):
    """A host copy for another number of slots, or for one slot twice."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_copy",)

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.size > 1)

    def call(self, model: KVModel, side: KVSide) -> Call:
        own = model.config.page_size
        copy = model.reference.call(Call("get_cpu_copy", {"indices": [own, own + 1]}))
        indices = [own, own] if self.amount % 2 else [own]
        return Call("load_cpu_copy", {"copy": copy, "indices": indices})


class ShapeOfOthers(_Misuse):
    """Fewer rows than slots."""

    methods: ClassVar[tuple[str, ...]] = ALL_WRITES

    def call(self, model: KVModel, side: KVSide) -> Call:
        good = good_write(model, [model.config.page_size] * 2)
        short = {name: rows_[:1] for name, rows_ in good.args.items() if name in SHORT}
        return good._replace(args={**good.args, **short})


#: what a write may have too few rows of
SHORT = ("k", "nope")


class Unmarked(_Misuse):
    """Slots that aren't marked as rows of buffers, where they have to be."""

    methods: ClassVar[tuple[str, ...]] = ALL_WRITES

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.marked)

    def call(self, model: KVModel, side: KVSide) -> Call:
        good = good_write(model, [model.config.page_size])
        return good._replace(args={**good.args, "marked": False})


class NoWindowSlots(_Misuse):
    """A write to a window layer without window slots, or with fewer than there are slots."""

    methods: ClassVar[tuple[str, ...]] = ("set_kv_buffer",)

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.kind == "swa")

    def call(self, model: KVModel, side: KVSide) -> Call:
        own = model.config.page_size
        good = good_write(model, [own, own], 1)
        swa_loc = None if self.amount % 2 else (own,)
        return good._replace(args={**good.args, "swa_loc": swa_loc})


class NoValues(_Misuse):
    """A pool of keys alone asked for values."""

    methods: ClassVar[tuple[str, ...]] = ("get_value_buffer", "get_kv_buffer")

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.kind == "k_only")

    def call(self, model: KVModel, side: KVSide) -> Call:
        return Call(self.methods[self.amount % 2], {"layer_id": model.config.layer_ids[0]})


class NoIndexKeys(_Misuse):
    """Index keys for a layer that has none."""

    methods: ClassVar[tuple[str, ...]] = ("set_index_k_scale_buffer",)

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.has_index and model.config.layers > 1)

    def call(self, model: KVModel, side: KVSide) -> Call:
        args = loc_args(model, [model.config.page_size])
        args |= {"layer": model.config.layer_ids[1], "index_k": rows(1, 128, "uint8", 1)}
        return Call("set_index_k_scale_buffer", {**args, "index_scale": rows(1, 4, "uint8", 1)})


class WrongIds(_Misuse):
    """Slots of the wrong type, shape or device."""

    methods: ClassVar[tuple[str, ...]] = ("move_kv_cache", "get_cpu_copy")

    def call(self, model: KVModel, side: KVSide) -> Call:
        what, own = ("dtype", "shape", "device")[self.amount % 3], model.config.page_size
        if self.amount % 2 and model.config.kind != "swa":
            argument = "tgt_loc" if self.amount > 4 else "src_loc"
            args = {"tgt_loc": [own], "src_loc": [own]}
            return Call("move_kv_cache", args, distortion=Distortion(argument, what))
        return Call("get_cpu_copy", {"indices": [own]}, distortion=Distortion("indices", what))


MISUSE = (
    LayerOutside, SlotBeyond, ReservedSlot, MovedTwice, CopyElsewhere, ShapeOfOthers, Unmarked,
    NoWindowSlots, NoValues, NoIndexKeys, WrongIds,
)  # fmt: skip
