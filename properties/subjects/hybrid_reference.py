"""The reference of the rows of hybrid models, with its requests and the states' bytes in view.

A state is one tag here; it lies in every tensor that has a piece of the slot's state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from properties.commands import Call
from properties.subjects.state_records import Forward, Records, tag
from reference.hybrid_rows import HybridReqToTokenPool
from reference.sizing import slots_needed

#: the layers that have a state: one, since interpreted kernels take their time
LAYERS = (3,)
#: calls that are answered with what the request's places hold then, and the last of them
TRACKING = frozenset(
    {
        "set_mamba_ping_pong_slot", "donate_mamba_ping_pong_slot", "mamba_lazy_prealloc",
        "mamba_lazy_undo_prealloc", "mamba_track_boundary", "mamba_checkpoint",
    }
)  # fmt: skip


def with_slots(state: dict[str, Any]) -> dict[str, Any]:
    """A snapshot of rows with that of their slots beside it: of some not all of it is visible."""
    slots = state.pop("slots")
    return {**state, **{f"slots_{key}": value for key, value in slots.items()}}


def parts(config: Any) -> tuple[str, ...]:
    """What keeps a piece of each slot's state: tensors of the pool, and its siblings."""
    siblings = tuple(name for name in ("short_conv", "ngram") if getattr(config, name))
    return ("temporal", *siblings) if siblings else ("conv", "temporal")


def of_slots(method: str, args: Mapping[str, Any]) -> bool:
    """Whether a call is of the slot allocator: `alloc` and `free` are methods of both."""
    both = method in ("alloc", "free")
    return method.startswith("alloc_group") or (both and not {"reqs", "req"} & args.keys())


def _told(rows: list[int]) -> None:
    """The one consumer of new rows."""


class HybridReference:
    """`reference.HybridReqToTokenPool` behind the Subject interface; a state's bytes are a tag."""

    def __init__(self, config: Any) -> None:
        self.target = HybridReqToTokenPool(config.size, 1, mamba_layer_ids=LAYERS, **config.options)
        self.target.register_on_alloc_rows(_told)
        self.records = Records()
        self.bytes = [0] * (config.mamba_size + 1)
        self.parts = parts(config)
        self.forward = Forward(self.records, self._write)
        self.forward.poison(self.target.mamba_allocator.free_slots)

    def _write(self, slots: Sequence[int], value: int) -> None:
        for slot in slots:
            self.bytes[slot] = value

    def call(self, call: Call) -> Any:
        self.forward.before(call.method, call.args)
        value = self._call(call)
        if call.method in TRACKING:
            record = self.records.shown(call.args["req"])
            value = (value, list(record[2]), record[6])
        self.forward.poison(self.target.mamba_allocator.free_slots)
        self.records.tidy(call.method == "clear")
        return value

    def _call(self, call: Call) -> Any:
        args = self.records.arguments(call.args)
        if call.method == "slots_needed":
            return slots_needed(**args)
        if call.method == "copy_mamba_state":
            return self._copy(args["src_index"], args["dst_index"])
        if of_slots(call.method, args):
            return getattr(self.target.mamba_allocator, call.method)(**args)
        value = getattr(self.target, call.method)(**args)
        if call.method == "collect_deferred_mamba":
            return self._first_extend(call.args["reqs"], value)
        if call.method == "alloc" and value is not None:
            names = call.args["reqs"]
            pairs = zip(names, value, strict=True)
            return [n for name, row in pairs for n in (row, *self.records.slots(name))]
        return value

    def _copy(self, src: Sequence[int], dst: Sequence[int]) -> None:
        for slot, content in zip(dst, [self.bytes[slot] for slot in src], strict=True):
            self.bytes[slot] = content

    def _first_extend(self, names: Sequence[int], work: Any) -> Any:
        """Clears, then copies; what each request begins with; then a forward pass writes."""
        clear, src, dst = work
        self._write(clear, 0)
        self._copy(src, dst)
        slots = [self.records.slots(name)[0] for name in names]
        seen = [[self.bytes[slot]] for slot in slots]
        for name, slot in zip(names, slots, strict=True):
            self.bytes[slot] = tag(name, 0)
        return clear, src, dst, seen

    def observe(self) -> dict[str, Any]:
        state = with_slots(self.target.snapshot())
        state["available"] = self.target.available_size()
        state["records"] = self.records.all()
        state["bytes"] = {part: list(self.bytes) for part in self.parts}
        return state
