"""The commands of the rows of hybrid models, legal use: a small life around them.

Requests hit a prefix in the queue, are admitted, go on in chunks, track their state, leave it to
the prefix cache, and end: finished, retracted, aborted in the queue, or with a session that is
closed. Follows `spec/pools_states_sizing.md` §4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.subjects.state_records import POISON, tag
from properties.systems import state_slots_commands as slot_commands
from properties.systems.hybrid_rows_model import EMPTY, HybridModel, HybridSide
from properties.systems.row_model import Faults

SHORT_NEVER = frozenset({("served", "one short")})


@dataclass(frozen=True)
class Admit(Command):
    """`alloc`: requests get what they lack, those that have all of it go on with the next chunk."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    weight: ClassVar[int] = 26
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    # short of rows it may be with any number of slots
    never: ClassVar[frozenset[tuple[str, str]]] = SHORT_NEVER

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Admit:
        side, free = model.side, len(model.state["free"])
        known = [*side.queued, *side.held]
        if model.scope is not None:
            names = [*known, model.next_name]
            return cls(tuple(choices.subset(names, 1, model.scope.requests)))
        count = choices.integer(0, min(free + 1, 3), (1, free, free + 1))
        fresh = list(range(model.next_name, model.next_name + count))
        return cls(tuple(choices.subset(known, 0, 2) + fresh))

    def applies(self, model: HybridModel) -> bool:
        side = model.side
        return len(set(self.requests)) == len(self.requests) and all(
            name in side.held or name in side.states or model.fresh(name) for name in self.requests
        )

    def counts(self, model: HybridModel) -> list[int]:
        return [count for name in self.requests for count in model.lacking(name)]

    def demand(self, model: HybridModel) -> int:
        return model.fits(self.counts(model))

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("alloc", {"reqs": list(self.requests)})

    def settle(self, model: HybridModel, side: HybridSide, value: list[int]) -> Faults:
        faults: Faults = []
        line = 2 + model.width
        for at, name in enumerate(self.requests):
            model.used(name)
            row, *slots = value[at * line : (at + 1) * line]
            if name not in side.held:
                faults += side.take(name, row)
            if model.width and len(side.states.get(name, [])) < 2:
                side.tracked[name] = (None, None)
            faults += side.has(name, slots)
        return faults


@dataclass(frozen=True)
class PredictSlots(Command):
    """`slots_needed`: what a scheduler reserves before it admits a batch (I14)."""

    methods: ClassVar[tuple[str, ...]] = ("slots_needed",)
    weight: ClassVar[int] = 3

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> PredictSlots:
        return cls(Admit.draw(choices, model).requests)

    def applies(self, model: HybridModel) -> bool:
        return Admit(self.requests).applies(model)

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        slots = [model.side.states.get(name, []) for name in self.requests]
        args = {
            "num_without_state": sum(not each for each in slots),
            "num_without_tracking": sum(len(each) < 2 for each in slots),
            "tracking_slots": model.initial,
        }
        return Call("slots_needed", args)

    def answer_faults(self, model: HybridModel, call: Call, value: Any) -> Faults:
        due = sum(Admit(self.requests).counts(model))
        return [] if value >= due else [("I14", f"{value} slots were predicted, {due} are taken")]


@dataclass(frozen=True)
class Match(Command):
    """`cow_mamba_state`: a prefix hit, of a request in the queue or of one that has its row."""

    methods: ClassVar[tuple[str, ...]] = ("cow_mamba_state",)
    weight: ClassVar[int] = 24
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER
    optional: ClassVar[bool] = True

    request: int
    node: int

    @classmethod
    def enabled(cls, model: HybridModel) -> bool:
        return bool(model.side.written)

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Match:
        side = model.side
        names = [*side.queued, *[model.next_name] * 6]
        if model.scope is None:
            names += list(side.held)
        elif len(side.queued) + len(side.held) >= model.scope.requests:
            names = side.queued or list(side.held)
        return cls(choices.pick(names), choices.pick(side.written))

    def applies(self, model: HybridModel) -> bool:
        side = model.side
        known = self.request in side.held or self.request in side.states
        return self.node in side.written and (known or model.fresh(self.request))

    def demand(self, model: HybridModel) -> int:
        return 0 if model.side.states.get(self.request) else model.fits([1])

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        source = [side.nodes[self.node]]
        return Call("cow_mamba_state", {"req": self.request, "src_index": source})

    def settle(self, model: HybridModel, side: HybridSide, value: list[int]) -> Faults:
        model.used(self.request)
        side.copies[self.request] = self.node
        if side.states.get(self.request):
            return []
        return side.has(self.request, value)


@dataclass(frozen=True)
class FirstExtend(Command):
    """`collect_deferred_mamba`, run at once: states are cleared or copied, then written."""

    methods: ClassVar[tuple[str, ...]] = ("collect_deferred_mamba",)
    weight: ClassVar[int] = 14

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> FirstExtend:
        return cls(tuple(choices.subset(list(model.side.states), 0, 3)))

    def applies(self, model: HybridModel) -> bool:
        known = all(name in model.side.states for name in self.requests)
        return known and len(set(self.requests)) == len(self.requests)

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("collect_deferred_mamba", {"reqs": list(self.requests)})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        faults = self.seen_faults(side, value)
        for name in self.requests:
            side.copies.pop(name, None)
            side.content[side.states[name][0]] = tag(name, 0)
        return faults

    def seen_faults(self, side: HybridSide, value: Any) -> Faults:
        """I60: behind the deferred work nobody sees what lay in his slot before."""
        clear, src, dst, seen = value
        for name, found in zip(self.requests, seen, strict=True):
            slot = side.states[name][0]
            due = side.content[slot]
            if slot in clear:
                due = 0
            elif slot in dst:
                due = side.content.get(src[dst.index(slot)], found[0])
            if found != [due] or due == POISON:
                return [("I60", f"request {name} begins with {found} in slot {slot}, due is {due}")]
        return []


@dataclass(frozen=True)
class _OfOne(Command):
    """A command about one request."""

    request: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        raise NotImplementedError

    @classmethod
    def enabled(cls, model: HybridModel) -> bool:
        return bool(cls.fitting(model))

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Any:
        return cls(choices.pick(cls.fitting(model)))

    def applies(self, model: HybridModel) -> bool:
        return self.request in self.fitting(model)


# ---- the end --------------------


@dataclass(frozen=True)
class Release(_OfOne):
    """`free_mamba_cache` of a request that ends or is retracted; a track may stay in the cache."""

    methods: ClassVar[tuple[str, ...]] = ("free_mamba_cache",)
    weight: ClassVar[int] = 16

    keep: int
    node: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return model.side.running

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Release:
        name = choices.pick(cls.fitting(model))
        tracks = model.side.states[name][1:]
        places = [place for place, slot in enumerate(tracks) if slot != EMPTY]
        keep = choices.pick([-1, *(places if len(model.side.nodes) < model.most_nodes else [])])
        return cls(name, keep, model.next_name)

    def applies(self, model: HybridModel) -> bool:
        if self.request not in self.fitting(model):
            return False
        tracks = model.side.states[self.request][1:]
        kept = 0 <= self.keep < len(tracks) and tracks[self.keep] != EMPTY
        return self.keep == -1 or (kept and model.fresh(self.node))

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        keep = None if self.keep < 0 else self.keep
        args = {"req": self.request, "mamba_ping_pong_track_buffer_to_keep": keep}
        return Call("free_mamba_cache", args)

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        slots = [slot for slot in side.states[self.request] if slot > 0]
        faults: Faults = []
        if self.keep >= 0:
            model.used(self.node)
            kept = side.states[self.request][1 + self.keep]
            if value != [kept]:
                return [("I43", f"slot {kept} was to be kept, {value} was given")]
            slots.remove(kept)
            faults += side.hand_over(kept, ("node", self.node))
            side.nodes[self.node] = kept
        side.forget(self.request)
        return faults + side.lose(slots)


class Abort(_OfOne):
    """`free_mamba_cache` in the queue: an abort, or an admission that failed."""

    methods: ClassVar[tuple[str, ...]] = ("free_mamba_cache",)
    weight: ClassVar[int] = 8

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return model.side.queued

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free_mamba_cache", {"req": self.request})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        slots = [slot for slot in side.states[self.request] if slot > 0]
        side.forget(self.request)
        return side.lose(slots)


class Finish(_OfOne):
    """`free`: the row goes back, behind its state."""

    methods: ClassVar[tuple[str, ...]] = ("free",)
    weight: ClassVar[int] = 20

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [name for name in model.side.held if name not in model.side.states]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free", {"req": self.request})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        return side.give(self.request)


class OpenSession(_OfOne):
    """A request's turn is over; row and state stay for the next one."""

    methods: ClassVar[tuple[str, ...]] = ("get_mamba_indices",)
    weight: ClassVar[int] = 3

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        # only who closes it depends on it: that needn't be walked
        return model.side.running if model.scope is None else []

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("get_mamba_indices", {"req_indices": [side.held[self.request][0]]})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        side.sessions.add(self.request)
        return []


class CloseSession(Abort):
    """`free_mamba_cache` of a session: row and KV alone are not all that it has."""

    weight: ClassVar[int] = 5

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [name for name in model.side.sessions if name in model.side.states]


class DonateState(_OfOne):
    """`donate_mamba_state`: a request that tracks nothing leaves its own slot to the cache."""

    methods: ClassVar[tuple[str, ...]] = ("donate_mamba_state",)
    weight: ClassVar[int] = 12

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        full = len(model.side.nodes) >= model.most_nodes
        return [] if model.width or full else model.side.running

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("donate_mamba_state", {"req": self.request})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        (slot,) = side.states[self.request]
        if value != [slot]:
            return [("I43", f"slot {slot} was to be donated, {value} was given")]
        side.forget(self.request)
        # a request is named once: its node may have its name
        side.nodes[self.request] = slot
        return side.hand_over(slot, ("node", self.request))


# ---- the prefix cache --------------------


@dataclass(frozen=True)
class Reserve(Command):
    """`alloc` of a slot for the cache, into which nothing is written yet."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    weight: ClassVar[int] = 8
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    node: int

    @classmethod
    def enabled(cls, model: HybridModel) -> bool:
        return len(model.side.nodes) < model.most_nodes

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Reserve:
        return cls(model.next_name)

    def applies(self, model: HybridModel) -> bool:
        return model.fresh(self.node)

    def demand(self, model: HybridModel) -> int:
        return model.fits([1])

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("alloc", {"need_size": 1})

    def settle(self, model: HybridModel, side: HybridSide, value: list[int]) -> Faults:
        model.used(self.node)
        (side.nodes[self.node],) = value
        return side.gain(("node", self.node), value)


@dataclass(frozen=True)
class Evict(Command):
    """`free` of what nodes hold."""

    methods: ClassVar[tuple[str, ...]] = ("free",)
    weight: ClassVar[int] = 10

    nodes: tuple[int, ...]

    @classmethod
    def enabled(cls, model: HybridModel) -> bool:
        return bool(model.side.unlocked)

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Evict:
        return cls(tuple(choices.subset(model.side.unlocked, 1, 3)))

    def applies(self, model: HybridModel) -> bool:
        known = all(node in model.side.unlocked for node in self.nodes)
        return known and len(set(self.nodes)) == len(self.nodes)

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free", {"free_index": [side.nodes[node] for node in self.nodes]})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        return side.lose([side.nodes.pop(node) for node in self.nodes])


@dataclass(frozen=True)
class CopyToNode(_OfOne):
    """`copy_mamba_state`: the cache gets a copy of a running request's state."""

    methods: ClassVar[tuple[str, ...]] = ("copy_mamba_state",)
    weight: ClassVar[int] = 14

    node: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return model.side.running if model.side.unlocked else []

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> CopyToNode:
        return cls(choices.pick(cls.fitting(model)), choices.pick(model.side.unlocked))

    def applies(self, model: HybridModel) -> bool:
        return self.request in model.side.running and self.node in model.side.unlocked

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        source, target = [side.states[self.request][0]], [side.nodes[self.node]]
        return Call("copy_mamba_state", {"src_index": source, "dst_index": target})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        side.content[side.nodes[self.node]] = side.content[side.states[self.request][0]]
        return []


@dataclass(frozen=True)
class Clear(Command):
    """`clear`: every request and node is gone, an open group too."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)
    weight: ClassVar[int] = 2

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("clear")

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        model.cleared = True
        side.clear()
        return []


class GroupBegin(slot_commands.GroupBegin):
    """Opens a group of allocations; single ones then take what is parked."""

    @classmethod
    def enabled(cls, model: HybridModel) -> bool:  # type: ignore[override]
        # groups are walked where there are slots alone
        return model.scope is None and super().enabled(model)  # type: ignore[arg-type]


LIFE: tuple[type[Command], ...] = (
    Admit, PredictSlots, Match, FirstExtend, Release, Abort, Finish, OpenSession, CloseSession,
    DonateState, Reserve, Evict, CopyToNode, Clear,
    GroupBegin, slot_commands.GroupEnd,
)  # fmt: skip
