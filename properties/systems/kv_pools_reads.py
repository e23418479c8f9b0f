"""The commands of the KV pools that change nothing: what is read, reported and translated.

Spec: `spec/pools_states_sizing.md` §7 to §13, `spec/core.md` §7, §8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call
from properties.systems.kv_pools_commands import OfKV, OfOne, differs
from properties.systems.kv_pools_model import KVModel, KVSide
from properties.systems.state_pools_model import Faults

READS = {
    "mha": ("get_key_buffer", "get_value_buffer", "get_kv_buffer", "view_kv_buffer"),
    "hybrid": ("get_key_buffer", "get_value_buffer", "get_kv_buffer"),
    "swa": ("get_key_buffer", "get_value_buffer", "get_kv_buffer"),
    "k_only": ("get_key_buffer", "view_key_buffer"),
    "mla": ("get_key_buffer", "get_value_buffer", "get_kv_buffer", "view_key_buffer"),
}  # fmt: skip
LATENT_READS = (*READS["mla"], "get_index_k_with_scale_buffer")


@dataclass(frozen=True)
class Read(OfKV):
    """A layer's buffers, which are what was written, and wait for the layer unless they are views.

    The answer is the rows, and for which layer the reader waited.
    """

    methods: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys(
        name for names in (*READS.values(), LATENT_READS) for name in names
    ))  # fmt: skip
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 8

    method: str
    layer: int

    @classmethod
    def choices_of(cls, model: KVModel) -> tuple[str, ...]:
        """The reads of a kind of pool."""
        found = LATENT_READS if model.config.has_index else READS[model.config.kind]
        return tuple(method for method in found if method in model.calls)

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Read:
        drawn = cls(
            choices.pick(cls.choices_of(model)),
            choices.integer(0, len(model.config.layer_ids) - 1),
        )
        # the first layer has everything
        return drawn if drawn.applies(model) else replace(drawn, layer=0)

    def applies(self, model: KVModel) -> bool:
        config = model.config
        if self.method not in self.choices_of(model) or not 0 <= self.layer < len(config.layer_ids):
            return False
        return self.method != LATENT_READS[-1] or not config.skipped[self.layer]

    def call(self, model: KVModel, side: KVSide) -> Call:
        return Call(self.method, {"layer_id": model.config.layer_ids[self.layer]})

    def answer_faults(self, model: KVModel, call: Call, value: Any) -> Faults:
        return differs("I57", call.method, model.reference.call(call), value)


@dataclass(frozen=True)
class ReadParts(OfOne):
    """`get_mla_kv_buffer` of a request's tokens."""

    methods: ClassVar[tuple[str, ...]] = ("get_mla_kv_buffer",)

    layer: int

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.kind in ("mla", "dsa") and bool(model.side.slots))

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> ReadParts:
        return cls(choices.pick(model.names), choices.integer(0, model.config.layers - 1))

    def applies(self, model: KVModel) -> bool:
        return super().applies(model) and 0 <= self.layer < model.config.layers

    def call(self, model: KVModel, side: KVSide) -> Call:
        layer = model.config.layer_ids[self.layer]
        return Call("get_mla_kv_buffer", {"layer": layer, "loc": side.slots[self.request]})

    def answer_faults(self, model: KVModel, call: Call, value: Any) -> Faults:
        return differs("I57", call.method, model.reference.call(call), value)


@dataclass(frozen=True)
class ReadIndex(OfOne):
    """`get_index_k_scale_buffer` of whole pages, a request for each."""

    methods: ClassVar[tuple[str, ...]] = ("get_index_k_scale_buffer",)

    @classmethod
    def enabled(cls, model: KVModel) -> bool:
        return bool(model.config.has_index and bool(model.side.slots))

    def call(self, model: KVModel, side: KVSide) -> Call:
        size = model.config.page_size
        lens = tuple(1 + at % size for at in range(model.config.pages))
        pages = tuple((page,) for page in range(1, model.config.pages + 1))
        layer = model.config.layer_ids[0]
        return Call(
            "get_index_k_scale_buffer",
            {"layer_id": layer, "seq_lens": lens, "page_indices": pages},
        )

    def answer_faults(self, model: KVModel, call: Call, value: Any) -> Faults:
        return differs("I57", call.method, model.reference.call(call), value)


@dataclass(frozen=True)
class Report(OfKV):
    """What a pool says of its bytes, and of its buffers for a transfer."""

    methods: ClassVar[tuple[str, ...]] = (
        "get_kv_size_bytes", "get_contiguous_buf_infos", "get_state_buf_infos", "get_kv_layer_ids",
    )  # fmt: skip
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 3

    method: str

    @classmethod
    def choices_of(cls, model: KVModel) -> list[str]:
        """The reports of a kind of pool."""
        found = ["get_kv_size_bytes", "get_contiguous_buf_infos"]
        if model.config.has_index or model.config.kind == "swa":
            found.append("get_state_buf_infos")
        found += ["get_kv_layer_ids"] * (model.config.kind == "hybrid")
        return [method for method in found if method in model.calls]

    @classmethod
    def draw(cls, choices: Choices, model: KVModel) -> Report:
        return cls(choices.pick(cls.choices_of(model)))

    def applies(self, model: KVModel) -> bool:
        return self.method in self.choices_of(model)

    def call(self, model: KVModel, side: KVSide) -> Call:
        return Call(self.method)

    def answer_faults(self, model: KVModel, call: Call, value: Any) -> Faults:
        return differs("I61", call.method, model.reference.call(call), value)


@dataclass(frozen=True)
class Translate(OfOne):
    """Slots as rows of buffers for a transfer, or as window slots."""

    methods: ClassVar[tuple[str, ...]] = (
        "translate_kv_indices_for_transfer", "translate_loc_from_full_to_swa",
    )  # fmt: skip
    any_method: ClassVar[bool] = True
    weight: ClassVar[int] = 3

    def call(self, model: KVModel, side: KVSide) -> Call:
        method = self.methods[model.config.kind == "swa"]
        return Call(method, {"kv_indices": side.slots[self.request]})

    def answer_faults(self, model: KVModel, call: Call, value: Any) -> Faults:
        return differs("I37", call.method, model.reference.call(call), value)


LEGAL = (Read, ReadParts, ReadIndex, Report, Translate)
