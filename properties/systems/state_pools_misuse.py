"""Misuse of the state pools as commands: each must be refused, and no byte changes.

Follows `spec/pools_states_sizing.md` §3, §5 and `spec/core.md` §4b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Distortion
from properties.systems.state_pools_commands import OfStates
from properties.systems.state_pools_model import SIBLINGS, StateModel, StateSide, tags

#: calls whose slots are read, written, or both; the first argument of each is about reading
READING = ("get_cpu_copy", "get_cpu_slots", "get_context")
WRITING = ("clear_slots", "load_cpu_copy", "reset_slots", "load_cpu_slots", "set_context")
COPYING = ("copy_from", "copy_slots")
HOST = ("get_cpu_copy", "load_cpu_copy", "get_cpu_slots", "load_cpu_slots")


def slots_call(model: StateModel, which: str, method: str, slots: list[int]) -> Call:
    """A call of one of `READING` or `WRITING`, all right but for its slots."""
    args: dict[str, Any] = {"which": which} if method.endswith("_slots") else {}
    if method == "clear_slots":
        args = {}
    if method == "set_context":
        args["context"] = tuple(tags(model.config.ngram, 1, 1, 1, 30) for _ in slots)
    if method.startswith("load"):
        payload = Call(method.replace("load", "get"), {**args, "indices": [1] * len(slots)})
        name = "data" if method == "load_cpu_slots" else "mamba_cache_cpu"
        args[name] = model.reference.call(payload)
    return Call(method, {**args, "indices": slots})


def copy_call(which: str, method: str, src: list[int], dst: list[int]) -> Call:
    """A call of one of `COPYING`."""
    if method == "copy_from":
        return Call(method, {"src_indices": src, "dst_indices": dst})
    return Call(method, {"which": which, "src_index": src, "dst_index": dst})


@dataclass(frozen=True)
class _Misuse(OfStates):
    """Base: a call of one method, of a sibling that is there where it is a sibling's."""

    misuse: ClassVar[bool] = True
    weight: ClassVar[int] = 2
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)
    any_method: ClassVar[bool] = True

    which: str
    method: str
    amount: int

    @classmethod
    def choices_of(cls, model: StateModel) -> list[tuple[str, str]]:
        """Siblings and methods that can be called now."""
        enabled = [which for which in SIBLINGS if model.has(which)]
        found = []
        for method in cls.methods:
            if method not in model.calls:
                continue
            if method.endswith("_context"):
                found += [("ngram", method)] * ("ngram" in enabled)
            elif method.endswith("_slots") and method != "clear_slots":
                found += [(which, method) for which in enabled]
            else:
                found.append(("pool", method))
        return found

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(cls.choices_of(model))

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Any:
        which, method = choices.pick(cls.choices_of(model))
        return cls(which, method, choices.integer(1, 4))

    def applies(self, model: StateModel) -> bool:
        return (self.which, self.method) in self.choices_of(model) and self.amount > 0


class SlotOutside(_Misuse):
    """A slot beyond the pool, or below 0."""

    methods: ClassVar[tuple[str, ...]] = (*READING, *WRITING, *COPYING)

    def call(self, model: StateModel, side: StateSide) -> Call:
        size = model.config.size
        slot = (-1, size + 1, size + 2, -(2**31))[self.amount % 4]
        if self.method in COPYING:
            src, dst = ([slot], [0]) if self.amount % 2 else ([1], [slot])
            return copy_call(self.which, self.method, src, dst)
        return slots_call(model, self.which, self.method, [1, slot])


class ReservedSlot(_Misuse):
    """Slot 0 to the host, from the host, or copied to a request's."""

    methods: ClassVar[tuple[str, ...]] = (*HOST, *COPYING)

    def call(self, model: StateModel, side: StateSide) -> Call:
        if self.method in COPYING:
            return copy_call(self.which, self.method, [0], [1])
        return slots_call(model, self.which, self.method, [1, 0][self.amount % 2 :])


class SlotTwice(_Misuse):
    """A slot that one call writes twice, or reads and writes."""

    methods: ClassVar[tuple[str, ...]] = (*WRITING, *COPYING)

    def call(self, model: StateModel, side: StateSide) -> Call:
        last = model.config.size
        if self.method in COPYING:
            twice, itself, swap = ([1, 1], [last, last]), ([last], [last]), ([1, last], [last, 1])
            return copy_call(self.which, self.method, *(twice, itself, swap)[self.amount % 3])
        return slots_call(model, self.which, self.method, [last, last])


class UnequalNumbers(_Misuse):
    """Sources without targets, or slots without content."""

    methods: ClassVar[tuple[str, ...]] = (
        "load_cpu_copy", "load_cpu_slots", "set_context", *COPYING,
    )  # fmt: skip

    def call(self, model: StateModel, side: StateSide) -> Call:
        if self.method in COPYING:
            return copy_call(self.which, self.method, [1] * self.amount, [])
        good = slots_call(model, self.which, self.method, [1])
        return good._replace(args={**good.args, "indices": []})


class ForeignPayload(_Misuse):
    """A payload of another number of parts, of other shapes, or none at all."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_copy", "load_cpu_slots")

    def call(self, model: StateModel, side: StateSide) -> Call:
        good = slots_call(model, self.which, self.method, [1])
        if self.method == "load_cpu_slots":
            return good._replace(args={**good.args, "data": longer(good.args["data"])})
        own, *others = good.args["mamba_cache_cpu"]
        payload = (longer(own), *others) if self.amount % 2 else (own, *others, [])
        return good._replace(args={**good.args, "mamba_cache_cpu": payload})


def longer(contents: list[dict[str, list[Any]]]) -> list[dict[str, list[Any]]]:
    """The contents with one more value in each part."""
    return [{part: [*values, 1] for part, values in each.items()} for each in contents]


class WrongIds(_Misuse):
    """Slots of the wrong type, shape or device."""

    methods: ClassVar[tuple[str, ...]] = (*READING, *WRITING, *COPYING)

    def call(self, model: StateModel, side: StateSide) -> Call:
        what = ("dtype", "shape", "device")[self.amount % 3]
        if self.method in COPYING:
            good = copy_call(self.which, self.method, [1], [0])
            name = "dst" if self.amount > 1 else "src"
            argument = name + ("_indices" if self.method == "copy_from" else "_index")
        else:
            good, argument = slots_call(model, self.which, self.method, [1]), "indices"
        return good._replace(distortion=Distortion(argument, what))


class ForeignState(_Misuse):
    """`register_slot_state` of one of another size, of one that is there, or of no state."""

    methods: ClassVar[tuple[str, ...]] = ("register_slot_state",)

    def call(self, model: StateModel, side: StateSide) -> Call:
        there = [which for which in SIBLINGS if model.has(which)]
        what = ("another size", "no state", *there)[self.amount % (2 + len(there))]
        return Call("register_slot_state", {"what": what})


class NoSuchLayer(_Misuse):
    """`mamba2_layer_cache` of a layer that the pool lacks, counted from the end or beyond it."""

    methods: ClassVar[tuple[str, ...]] = ("mamba2_layer_cache",)

    def call(self, model: StateModel, side: StateSide) -> Call:
        place = -1 if self.amount % 2 else model.config.layers
        return Call(
            "mamba2_layer_cache", {"layer_id": place, "slot": 1, "convs": (), "temporal": ()}
        )


class NoDraftSteps(_Misuse):
    """`get_speculative_mamba2_params_all_layers` of a pool without draft steps."""

    methods: ClassVar[tuple[str, ...]] = ("get_speculative_mamba2_params_all_layers",)

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return not model.config.draft

    def applies(self, model: StateModel) -> bool:
        return not model.config.draft and super().applies(model)

    def call(self, model: StateModel, side: StateSide) -> Call:
        where = {"place": 0, "row": 0, "step": 0}
        return Call(
            "get_speculative_mamba2_params_all_layers", {**where, "convs": (), "temporal": ()}
        )


class TooManyDraftSteps(_Misuse):
    """`set_intermediate_context` of more steps, of more rows, of one twice, or beyond them."""

    methods: ClassVar[tuple[str, ...]] = ("set_intermediate_context",)

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.config.draft and model.has("ngram"))

    def applies(self, model: StateModel) -> bool:
        return type(self).enabled(model) and super().applies(model)

    def call(self, model: StateModel, side: StateSide) -> Call:
        config = model.config
        more = self.amount % 4 == 0
        steps = (tags(config.ngram, 1, 1, 1, 1),) * (config.draft + more)
        rows = ([0], [config.rows + 1], [0, 0], None)[self.amount % 4]
        context = (steps,) * (config.rows + 2 if rows is None else len(rows))
        indices = {} if rows is None else {"indices": rows}
        return Call("set_intermediate_context", {"context": context, **indices})


MISUSE = (
    SlotOutside, ReservedSlot, SlotTwice, UnequalNumbers, ForeignPayload, WrongIds, ForeignState,
    NoSuchLayer, NoDraftSteps, TooManyDraftSteps,
)  # fmt: skip
