"""Commands about the track buffers of running requests, legal use, and queries.

Follows `spec/pools_states_sizing.md` §4 (ping-pong tracking) and §17.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.subjects.state_records import tag
from properties.systems.hybrid_rows_commands import _OfOne
from properties.systems.hybrid_rows_model import EMPTY, HybridModel, HybridSide
from properties.systems.row_model import Faults

# As long as a request gets: tags tell lengths below 1000 apart.
MOST_TOKENS = 900


def booked(side: HybridSide, name: int, tracks: list[int]) -> Faults:
    """Books what the places of a request hold now; who was there and isn't is free."""
    return side.has(name, [side.states[name][0], *tracks])


class _Tracking(_OfOne):
    """About one request that tracks its state; answers say what its places hold then."""

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return model.side.tracking


class LazyPrealloc(_Tracking):
    """`mamba_lazy_prealloc`: before a step that tracks, the second place, if there is a slot."""

    methods: ClassVar[tuple[str, ...]] = ("mamba_lazy_prealloc",)
    weight: ClassVar[int] = 18
    optional: ClassVar[bool] = True

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return model.side.tracking if model.config.lazy else []

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("mamba_lazy_prealloc", {"req": self.request})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        served, tracks, _ = value
        if not served:
            _, before = side.tracked[self.request]
            side.tracked[self.request] = (None, before)
        return booked(side, self.request, tracks)


class LazyUndo(LazyPrealloc):
    """`mamba_lazy_undo_prealloc`: the step wasn't tracked after all."""

    methods: ClassVar[tuple[str, ...]] = ("mamba_lazy_undo_prealloc",)
    weight: ClassVar[int] = 5
    optional: ClassVar[bool] = False

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("mamba_lazy_undo_prealloc", {"req": self.request})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        _, tracks, _ = value
        return booked(side, self.request, tracks)


@dataclass(frozen=True)
class TrackBoundary(_Tracking):
    """`mamba_track_boundary` behind a step that tracked, so many tokens on."""

    methods: ClassVar[tuple[str, ...]] = ("mamba_track_boundary",)
    weight: ClassVar[int] = 20

    tokens: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        side = model.side
        return [
            n for n in side.tracking if cls.writes(model, n) and cls.length(side, n) < MOST_TOKENS
        ]

    @classmethod
    def writes(cls, model: HybridModel, name: int) -> bool:
        """Whether there is a slot in the next place: a step can write nowhere else."""
        record = model.state["records"][name]
        return bool(record[2][record[5]] != EMPTY)

    @staticmethod
    def length(side: HybridSide, name: int) -> int:
        return max(length or 0 for length in side.tracked[name])

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> TrackBoundary:
        name = choices.pick(cls.fitting(model))
        return cls(name, 1 if model.scope is not None else choices.integer(1, 5))

    def applies(self, model: HybridModel) -> bool:
        return self.request in self.fitting(model) and 1 <= self.tokens <= MOST_TOKENS // 9

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        length = self.length(side, self.request) + self.tokens
        return Call("mamba_track_boundary", {"req": self.request, "seq_len": length})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        _, tracks, written = value
        if model.config.lazy and EMPTY not in tracks:
            return [("I32", f"behind a step one place is enough, {tracks} are kept")]
        length = self.length(side, self.request) + self.tokens
        before, _ = side.tracked[self.request]
        turns = model.width == 2 and not model.config.lazy
        side.tracked[self.request] = (length, before if turns else None)
        faults = booked(side, self.request, tracks)
        side.content[tracks[written]] = tag(self.request, length)
        return faults


@dataclass(frozen=True)
class Checkpoint(_Tracking):
    """`mamba_checkpoint`: what a key of so many tokens may leave in the cache."""

    methods: ClassVar[tuple[str, ...]] = ("mamba_checkpoint",)
    weight: ClassVar[int] = 6

    length: int

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Checkpoint:
        name = choices.pick(cls.fitting(model))
        known = [length for length in model.side.tracked[name] if length is not None]
        near = sorted({0, *known, *(length - 1 for length in known)})
        return cls(name, choices.pick(near))

    def applies(self, model: HybridModel) -> bool:
        return self.request in self.fitting(model) and 0 <= self.length <= MOST_TOKENS

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("mamba_checkpoint", {"req": self.request, "key_len": self.length})

    def answer_faults(self, model: HybridModel, call: Call, value: Any) -> Faults:
        side, found = model.side, value[0]
        known = [n for n in side.tracked[self.request] if n is not None and n <= self.length]
        if found is None:
            return [("I60", f"the state of {known[0]} tokens isn't found")] if known else []
        slot = side.states[self.request][1 + found[1]]
        if found[0] not in known or side.content.get(slot) != tag(self.request, found[0]):
            return [("I60", f"slot {slot} isn't the state of {found[0]} tokens")]
        return []


@dataclass(frozen=True)
class _WithNode(_Tracking):
    """About a request and a node that nobody is about to copy."""

    node: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return model.side.tracking if model.side.unlocked else []

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Any:
        return cls(choices.pick(cls.fitting(model)), choices.pick(model.side.unlocked))

    def applies(self, model: HybridModel) -> bool:
        return self.request in self.fitting(model) and self.node in model.side.unlocked

    def exchange(self, side: HybridSide, tracks: list[int]) -> Faults:
        """The node's slot is the request's; what it has no more is the node's."""
        before = side.states[self.request][1:]
        taken = side.nodes.pop(self.node)
        faults = side.hand_over(taken, ("request", self.request))
        for slot in before:
            if slot != EMPTY and slot not in tracks:
                faults += side.hand_over(slot, ("node", self.node))
                side.nodes[self.node] = slot
        side.states[self.request] = [side.states[self.request][0], *tracks]
        return faults


class Donate(_WithNode):
    """`donate_mamba_ping_pong_slot`: the latest tracked state for a slot of the cache's."""

    methods: ClassVar[tuple[str, ...]] = ("donate_mamba_ping_pong_slot",)
    weight: ClassVar[int] = 12

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        records = model.state["records"]
        return [
            name for name in super().fitting(model) if records[name][2][records[name][6]] != EMPTY
        ]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        new = [side.nodes[self.node]]
        return Call("donate_mamba_ping_pong_slot", {"req": self.request, "new_slot": new})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        donated, tracks, _ = value
        faults = self.exchange(side, tracks)
        if donated != [side.nodes.get(self.node)]:
            return [("I43", f"{donated} was donated, not {side.nodes.get(self.node)}")]
        side.tracked[self.request] = (None, side.tracked[self.request][1])
        return faults


@dataclass(frozen=True)
class SetSlot(_WithNode):
    """`set_mamba_ping_pong_slot` to a slot of the cache's, which gets what was there."""

    methods: ClassVar[tuple[str, ...]] = ("set_mamba_ping_pong_slot",)
    weight: ClassVar[int] = 4

    place: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return super().fitting(model) if model.scope is None else []

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> SetSlot:
        name, node = choices.pick(cls.fitting(model)), choices.pick(model.side.unlocked)
        return cls(name, node, choices.integer(0, model.width - 1))

    def applies(self, model: HybridModel) -> bool:
        return super().applies(model) and 0 <= self.place < model.width

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        args = {"req": self.request, "idx": self.place, "value": [side.nodes[self.node]]}
        return Call("set_mamba_ping_pong_slot", args)

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        return self.exchange(side, value[1])


@dataclass(frozen=True)
class EmptySlot(_Tracking):
    """`set_mamba_ping_pong_slot` to -1: the cache gets what was there."""

    methods: ClassVar[tuple[str, ...]] = ("set_mamba_ping_pong_slot",)
    weight: ClassVar[int] = 2

    place: int
    node: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        if len(model.side.nodes) >= model.most_nodes or model.scope is not None:
            return []  # in a scope it is the buffers that the pool makes itself that are walked
        return model.side.tracking

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> EmptySlot:
        name = choices.pick(cls.fitting(model))
        return cls(name, choices.integer(0, model.width - 1), model.next_name)

    def applies(self, model: HybridModel) -> bool:
        fits = self.request in self.fitting(model) and 0 <= self.place < model.width
        return fits and model.fresh(self.node)

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        args = {"req": self.request, "idx": self.place, "value": EMPTY}
        return Call("set_mamba_ping_pong_slot", args)

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        model.used(self.node)
        slot = side.states[self.request][1 + self.place]
        side.states[self.request][1 + self.place] = EMPTY
        if slot == EMPTY:
            return []
        side.nodes[self.node] = slot
        return side.hand_over(slot, ("node", self.node))


# ---- queries --------------------


class KeepPlace(_Tracking):
    """`get_mamba_ping_pong_keep_idx`."""

    methods: ClassVar[tuple[str, ...]] = ("get_mamba_ping_pong_keep_idx",)
    weight: ClassVar[int] = 2

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("get_mamba_ping_pong_keep_idx", {"req": self.request})


@dataclass(frozen=True)
class OtherPlace(Command):
    """`get_mamba_ping_pong_other_idx`."""

    methods: ClassVar[tuple[str, ...]] = ("get_mamba_ping_pong_other_idx",)
    weight: ClassVar[int] = 2

    place: int

    @classmethod
    def enabled(cls, model: HybridModel) -> bool:
        return model.width > 0

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> OtherPlace:
        return cls(choices.integer(0, model.width - 1))

    def applies(self, model: HybridModel) -> bool:
        return 0 <= self.place < model.width

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("get_mamba_ping_pong_other_idx", {"mamba_next_track_idx": self.place})


@dataclass(frozen=True)
class LookUp(Command):
    """`get_mamba_indices` of a batch, padded lanes included."""

    methods: ClassVar[tuple[str, ...]] = ("get_mamba_indices",)
    weight: ClassVar[int] = 3

    requests: tuple[int, ...]
    padding: int

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> LookUp:
        return cls(tuple(choices.subset(list(model.side.held), 0, 2)), choices.integer(0, 1))

    def applies(self, model: HybridModel) -> bool:
        return 0 <= self.padding <= 8 and all(name in model.side.held for name in self.requests)

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        rows = [side.held[name][0] for name in self.requests] + [0] * self.padding
        return Call("get_mamba_indices", {"req_indices": rows})

    def answer_faults(self, model: HybridModel, call: Call, value: Any) -> Faults:
        side = model.side
        for name, slot in zip(self.requests, value, strict=False):
            if name in side.states and side.states[name][0] != slot:
                return [("I41", f"request {name} is looked up in slot {slot}: {side.states[name]}")]
        return []


@dataclass(frozen=True)
class TranslateSlots(Command):
    """`translate_mamba_indices`: the identity on a static pool."""

    methods: ClassVar[tuple[str, ...]] = ("translate_mamba_indices",)
    weight: ClassVar[int] = 1

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("translate_mamba_indices", {"mamba_indices": sorted(side.nodes.values())})

    def answer_faults(self, model: HybridModel, call: Call, value: Any) -> Faults:
        wanted = call.args["mamba_indices"]
        return [] if value == wanted else [("I37", f"{wanted} became {value}")]


TRACKING: tuple[type[Command], ...] = (
    LazyPrealloc, LazyUndo, TrackBoundary, Checkpoint, Donate, SetSlot, EmptySlot, KeepPlace,
    OtherPlace, LookUp, TranslateSlots,
)  # fmt: skip
