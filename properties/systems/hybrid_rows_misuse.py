"""Misuse of the rows of hybrid models as commands, and what they share with plain rows.

Each misuse must be refused, and change nothing. Follows `spec/pools_states_sizing.md` §4 and
`spec/core.md` §2, §4b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems import row_commands, row_misuse, state_slots_commands
from properties.systems.hybrid_rows_commands import Finish, _OfOne
from properties.systems.hybrid_rows_model import EMPTY, ROWS_FULL, HybridModel, HybridSide
from properties.systems.row_model import Faults

# ---- rows that belong to no request --------------------


@dataclass(frozen=True)
class TakeRow(Command):
    """`alloc_rows`: a row of nobody's, without a state."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_rows",)
    weight: ClassVar[int] = 3

    request: int

    @classmethod
    def enabled(cls, model: HybridModel) -> bool:
        return bool(model.state["free"]) and model.scope is None

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> TakeRow:
        return cls(model.next_name)

    #: enabled only where a row is free
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("served", ROWS_FULL)})

    def applies(self, model: HybridModel) -> bool:
        return model.fresh(self.request) and bool(model.state["free"])

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("alloc_rows", {"need_size": 1})

    def settle(self, model: HybridModel, side: HybridSide, value: list[int]) -> Faults:
        model.used(self.request)
        side.loose[self.request] = value[0]
        side.issued[value[0]] = side.issued.get(value[0], 0) + 1
        return side.ledger.issue(("loose", self.request), value)


class GiveRow(_OfOne):
    """`free_rows` of such a row."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows",)
    weight: ClassVar[int] = 5

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return list(model.side.loose)

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free_rows", {"indices": [side.loose[self.request]]})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        return side.ledger.release_pages([side.loose.pop(self.request)])


@dataclass(frozen=True)
class LayerPlace(Command):
    """`mamba2_layer_index` of a layer that has a state."""

    methods: ClassVar[tuple[str, ...]] = ("mamba2_layer_index",)
    weight: ClassVar[int] = 1

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("mamba2_layer_index", {"layer_id": 3})


ROWS: tuple[type[Command], ...] = (
    TakeRow, GiveRow, row_commands.Write, row_commands.CheckHandle, row_commands.AskHandle,
    LayerPlace,
)  # fmt: skip


# ---- misuse --------------------


@dataclass(frozen=True)
class _Misuse(_OfOne):
    """Base: about one request, `amount` says in which way."""

    misuse: ClassVar[bool] = True
    weight: ClassVar[int] = 2
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)
    #: in how many ways
    ways: ClassVar[int] = 1

    amount: int

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return list(model.side.states)

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Any:
        return cls(choices.pick(cls.fitting(model)), choices.integer(0, cls.ways - 1))

    def applies(self, model: HybridModel) -> bool:
        return super().applies(model) and 0 <= self.amount < self.ways


class FinishWithState(_Misuse):
    """`free` of a request whose state is still there."""

    methods: ClassVar[tuple[str, ...]] = ("free",)

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [name for name in model.side.states if name in model.side.held]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free", {"req": self.request})


class GiveRowWithState(FinishWithState):
    """`free_rows` of such a request's row."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows",)

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free_rows", {"indices": [side.held[self.request][0]]})


class FinishInQueue(_Misuse):
    """`free` of a request that has no row."""

    methods: ClassVar[tuple[str, ...]] = ("free",)

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [*model.side.queued, model.next_name]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free", {"req": self.request})


class ReleaseAgain(_Misuse):
    """`free_mamba_cache`, or what donates a state, of a request that has none."""

    methods: ClassVar[tuple[str, ...]] = ("free_mamba_cache", "donate_mamba_state")
    any_method: ClassVar[bool] = True
    ways: ClassVar[int] = 2

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [*Finish.fitting(model), model.next_name]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        both = self.amount and "donate_mamba_state" in model.calls
        return Call(self.methods[1 if both else 0], {"req": self.request})


class KeepOutside(_Misuse):
    """`free_mamba_cache` that keeps a place which the buffer lacks."""

    methods: ClassVar[tuple[str, ...]] = ("free_mamba_cache",)
    ways: ClassVar[int] = 3

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        keep = (model.width, -1, 7)[self.amount]
        args = {"req": self.request, "mamba_ping_pong_track_buffer_to_keep": keep}
        return Call("free_mamba_cache", args)


class KeepNothing(_Misuse):
    """`free_mamba_cache` that keeps a place without a slot."""

    methods: ClassVar[tuple[str, ...]] = ("free_mamba_cache",)
    ways: ClassVar[int] = 2

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [name for name in model.side.tracking if EMPTY in model.side.states[name]]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        keep = side.states[self.request].index(EMPTY) - 1
        args = {"req": self.request, "mamba_ping_pong_track_buffer_to_keep": keep}
        return Call("free_mamba_cache", args)


class AdmitTwice(_Misuse):
    """The same request twice in a batch."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [*model.side.states, model.next_name]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("alloc", {"reqs": [self.request] * 2})


class UseLost(_Misuse):
    """A request of before a `clear`, whose slots are nobody's now."""

    methods: ClassVar[tuple[str, ...]] = ("alloc", "free_mamba_cache")
    weight: ClassVar[int] = 8  # soon after a clear its slots are somebody's again
    ways: ClassVar[int] = 2

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        if model.scope is not None:
            return []  # in a scope nobody knows of those who were
        side, owned = model.side, model.side.slot_ledger.owned_pages()
        rows = set(side.ledger.available_pages())
        return [
            name
            for name, (row, slots) in list(side.lost.items())[-4:]
            if owned.isdisjoint(slots) and (row == 0 or row in rows)
        ]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        if self.amount and side.lost[self.request][0]:
            return Call("alloc", {"reqs": [self.request]})
        return Call("free_mamba_cache", {"req": self.request})


class CollectStateless(_Misuse):
    """`collect_deferred_mamba` of a request without a state."""

    methods: ClassVar[tuple[str, ...]] = ("collect_deferred_mamba",)

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [*Finish.fitting(model), model.next_name]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("collect_deferred_mamba", {"reqs": [*list(side.states)[:1], self.request]})


class MatchNothing(_Misuse):
    """`cow_mamba_state` from a slot that isn't out, or from the request's own."""

    methods: ClassVar[tuple[str, ...]] = ("cow_mamba_state",)
    ways: ClassVar[int] = 4

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        free = sorted(side.slot_ledger.available_pages()) or [-1]
        own = side.states[self.request][0]
        source = (own, free[0], 0, model.config.mamba_size + 1)[self.amount]
        return Call("cow_mamba_state", {"req": self.request, "src_index": [source]})


class TrackUntracked(_Misuse):
    """Tracking of a request that has no row, no buffer, or is of a pool that tracks nothing."""

    methods: ClassVar[tuple[str, ...]] = (
        "mamba_track_boundary", "mamba_checkpoint", "get_mamba_ping_pong_keep_idx",
    )  # fmt: skip
    ways: ClassVar[int] = 3

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        side = model.side
        untracked = [name for name in side.held if name not in side.tracking]
        return [*side.queued, *untracked, model.next_name]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        args = ({"seq_len": 5}, {"key_len": 5}, {})[self.amount]
        return Call(self.methods[self.amount], {"req": self.request, **args})


class TrackBack(_Misuse):
    """`mamba_track_boundary` not beyond what was tracked, or of a negative length."""

    methods: ClassVar[tuple[str, ...]] = ("mamba_track_boundary",)
    ways: ClassVar[int] = 3

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [n for n in model.side.tracking if model.side.tracked[n][0] is not None]

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        length = (side.tracked[self.request][0], 0, -1)[self.amount]
        return Call("mamba_track_boundary", {"req": self.request, "seq_len": length})


class LazyUnasked(_Misuse):
    """A second place asked for lazily, in a pool that isn't lazy."""

    methods: ClassVar[tuple[str, ...]] = ("mamba_lazy_prealloc", "mamba_lazy_undo_prealloc")
    ways: ClassVar[int] = 2

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return [] if model.config.lazy else model.side.tracking

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call(self.methods[self.amount], {"req": self.request})


class SetWrongSlot(_Misuse):
    """`set_mamba_ping_pong_slot` to a slot that isn't out or that the request has, or nowhere."""

    methods: ClassVar[tuple[str, ...]] = ("set_mamba_ping_pong_slot",)
    ways: ClassVar[int] = 6

    @classmethod
    def fitting(cls, model: HybridModel) -> list[int]:
        return model.side.tracking

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        free = sorted(side.slot_ledger.available_pages()) or [-1]
        own = side.states[self.request][0]
        bad = (own, free[0], 0, model.config.mamba_size + 1, -3, own)[self.amount]
        place = model.width if self.amount == 5 else 0
        value: Any = bad if self.amount == 4 else [bad]
        return Call("set_mamba_ping_pong_slot", {"req": self.request, "idx": place, "value": value})


class DonateForNothing(SetWrongSlot):
    """`donate_mamba_ping_pong_slot` for a slot that isn't out or that the request has."""

    methods: ClassVar[tuple[str, ...]] = ("donate_mamba_ping_pong_slot",)
    ways: ClassVar[int] = 4

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        free = sorted(side.slot_ledger.available_pages()) or [-1]
        own = side.states[self.request][0]
        bad = (own, free[0], 0, model.config.mamba_size + 1)[self.amount]
        args = {"req": self.request, "new_slot": [bad]}
        return Call("donate_mamba_ping_pong_slot", args)


@dataclass(frozen=True)
class Outside(Command):
    """A place, a row or a layer that there isn't."""

    misuse: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = (
        "get_mamba_ping_pong_other_idx", "get_mamba_indices", "mamba2_layer_index",
    )  # fmt: skip
    weight: ClassVar[int] = 3
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)

    amount: int

    @classmethod
    def draw(cls, choices: Choices, model: HybridModel) -> Outside:
        return cls(choices.integer(0, 2))

    def applies(self, model: HybridModel) -> bool:
        return 0 <= self.amount < 3

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        args: dict[str, Any] = (
            {"mamba_next_track_idx": model.width},
            {"req_indices": [0, model.config.size + 1]},
            {"layer_id": 2},
        )[self.amount]
        return Call(self.methods[self.amount], args)


MISUSE: tuple[type[Command], ...] = (
    FinishWithState, GiveRowWithState, FinishInQueue, ReleaseAgain, KeepOutside, KeepNothing,
    AdmitTwice, UseLost, CollectStateless, MatchNothing, TrackUntracked, TrackBack, LazyUnasked,
    SetWrongSlot, DonateForNothing, Outside, row_misuse.SecondHook,
    state_slots_commands.NestedGroup,
)  # fmt: skip
