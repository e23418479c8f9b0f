"""The commands of what rides along with the states (`spec/pools_states_sizing.md` §5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call
from properties.systems.state_pools_commands import MOST_PADDED, MOST_STEPS, OfStates, differs
from properties.systems.state_pools_model import SIBLINGS, Faults, StateModel, StateSide, tags

MOST_AT_ONCE = 3


@dataclass(frozen=True)
class _OfSibling(OfStates):
    """A command about one sibling, by its name, disabled or not, and some requests' slots."""

    which: str
    requests: tuple[int, ...]

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.side.slots)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> Any:
        most = choices.integer(0, MOST_AT_ONCE, (1,))
        return cls(choices.pick(SIBLINGS), tuple(choices.subset(model.names, 0, most)))

    def applies(self, model: StateModel) -> bool:
        names = self.requests
        return (
            self.which in SIBLINGS
            and len(set(names)) == len(names)
            and all(name in model.side.slots for name in names)
        )

    def slots(self, side: StateSide) -> list[int]:
        return [side.slots[name] for name in self.requests]


class ResetSibling(_OfSibling):
    """`reset_slots` of a sibling alone."""

    methods: ClassVar[tuple[str, ...]] = ("reset_slots",)
    weight: ClassVar[int] = 3
    writes: ClassVar[str] = "I60"

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("reset_slots", {"which": self.which, "indices": self.slots(side)})


class CopySibling(_OfSibling):
    """`copy_slots` of a sibling alone: the first request's to all others."""

    methods: ClassVar[tuple[str, ...]] = ("copy_slots",)
    weight: ClassVar[int] = 3
    writes: ClassVar[str] = "I58"

    def call(self, model: StateModel, side: StateSide) -> Call:
        first, *others = self.slots(side) or [0]
        pairs = {"src_index": [first] * len(others), "dst_index": others}
        return Call("copy_slots", {"which": self.which, **pairs})


class SaveSibling(_OfSibling):
    """`get_cpu_slots` of a sibling alone."""

    methods: ClassVar[tuple[str, ...]] = ("get_cpu_slots",)
    weight: ClassVar[int] = 3
    writes: ClassVar[str] = "I38"

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("get_cpu_slots", {"which": self.which, "indices": self.slots(side)})

    def settle(self, model: StateModel, side: StateSide, value: Any) -> Faults:
        side.saved[self.which] = value
        return []

    def answer_faults(self, model: StateModel, call: Call, value: Any) -> Faults:
        return differs("I38", call.method, model.reference.call(call), value)


@dataclass(frozen=True)
class LoadSibling(OfStates):
    """`load_cpu_slots` of a sibling alone, for as many requests as were saved."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_slots",)
    weight: ClassVar[int] = 3
    writes: ClassVar[str] = "I38"

    which: str

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return any(cls(which).applies(model) for which in SIBLINGS)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> LoadSibling:
        return cls(choices.pick([w for w in SIBLINGS if cls(w).applies(model)]))

    def applies(self, model: StateModel) -> bool:
        saved = model.side.saved
        return self.which in saved and len(saved[self.which] or ()) <= len(model.side.slots)

    def call(self, model: StateModel, side: StateSide) -> Call:
        data = side.saved[self.which]
        slots = sorted(side.slots.values(), reverse=True)[: len(data or ())]
        return Call("load_cpu_slots", {"which": self.which, "data": data, "indices": slots})


@dataclass(frozen=True)
class ClearSibling(OfStates):
    """`clear` of a sibling: all of its slots as if nobody had used them."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)
    weight: ClassVar[int] = 1
    writes: ClassVar[str] = "I66"

    which: str

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> ClearSibling:
        return cls(choices.pick(SIBLINGS))

    def applies(self, model: StateModel) -> bool:
        return self.which in SIBLINGS

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("clear", {"which": self.which})


class AskEntries(ClearSibling):
    """`iter_transfer_state_entries` of a sibling."""

    methods: ClassVar[tuple[str, ...]] = ("iter_transfer_state_entries",)
    writes: ClassVar[str] = "I57"

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("iter_transfer_state_entries", {"which": self.which})

    def answer_faults(self, model: StateModel, call: Call, value: Any) -> Faults:
        return differs("I61", call.method, model.reference.call(call), value)


# ---- short convolutions --------------------


@dataclass(frozen=True)
class ShortForward(OfStates):
    """A forward writes a request's window of one layer, by `layer_cache`."""

    methods: ClassVar[tuple[str, ...]] = ("layer_cache",)
    weight: ClassVar[int] = 5

    request: int
    layer: int
    step: int

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.side.slots and model.has("short_conv"))

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> ShortForward:
        layer = choices.integer(0, model.config.short_conv - 1)
        return cls(choices.pick(model.names), layer, choices.integer(0, MOST_STEPS))

    def applies(self, model: StateModel) -> bool:
        layers = range(model.config.short_conv)
        return self.request in model.side.slots and self.layer in layers and self.step >= 0

    def call(self, model: StateModel, side: StateSide) -> Call:
        values = tags(model.config.num_short, self.request, self.step, self.layer, 20)
        where = {"layer_id": model.config.short_layer_ids[self.layer]}
        return Call("layer_cache", {**where, "slot": side.slots[self.request], "values": values})


@dataclass(frozen=True)
class ShortDraft(OfStates):
    """A forward writes a draft step's window of one layer, by `layer_intermediate_cache`."""

    methods: ClassVar[tuple[str, ...]] = ("layer_intermediate_cache",)
    weight: ClassVar[int] = 3

    layer: int
    row: int
    step: int

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.config.draft and model.has("short_conv"))

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> ShortDraft:
        config = model.config
        return cls(
            choices.integer(0, config.short_conv - 1), choices.integer(0, config.rows - 1),
            choices.integer(0, config.draft - 1),
        )  # fmt: skip

    def applies(self, model: StateModel) -> bool:
        config = model.config
        return (
            self.layer in range(config.short_conv)
            and self.row in range(config.rows)
            and self.step in range(config.draft)
        )

    def call(self, model: StateModel, side: StateSide) -> Call:
        values = tags(model.config.num_short, self.row, self.step, self.layer, 21)
        where = {"layer_id": model.config.short_layer_ids[self.layer]}
        at = {"row": self.row, "step": self.step, "values": values}
        return Call("layer_intermediate_cache", {**where, **at})


# ---- the last tokens --------------------


@dataclass(frozen=True)
class SetContext(_OfSibling):
    """`set_context` of requests, with padded lanes behind them."""

    methods: ClassVar[tuple[str, ...]] = ("set_context",)
    weight: ClassVar[int] = 6

    padded: int

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> SetContext:
        names = tuple(choices.subset(model.names, 0, MOST_AT_ONCE))
        return cls("ngram", names, choices.integer(0, MOST_PADDED, (0,)))

    def applies(self, model: StateModel) -> bool:
        return self.which == "ngram" and 0 <= self.padded <= MOST_PADDED and super().applies(model)

    def call(self, model: StateModel, side: StateSide) -> Call:
        length = model.config.ngram
        context = tuple(tags(length, name, 3, 0, 30) for name in self.requests)
        context += (tags(length, 0, 0, 0, 31),) * self.padded
        indices = self.slots(side) + [0] * self.padded
        return Call("set_context", {"indices": indices, "context": context})


class ReadContext(_OfSibling):
    """`get_context` of requests, a padded lane first."""

    methods: ClassVar[tuple[str, ...]] = ("get_context",)
    weight: ClassVar[int] = 3

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.side.slots and model.has("ngram"))

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> ReadContext:
        return cls("ngram", tuple(choices.subset(model.names, 0, MOST_AT_ONCE)))

    def applies(self, model: StateModel) -> bool:
        return self.which == "ngram" and model.has("ngram") and super().applies(model)

    def call(self, model: StateModel, side: StateSide) -> Call:
        return Call("get_context", {"indices": self.slots(side)})

    def answer_faults(self, model: StateModel, call: Call, value: Any) -> Faults:
        return differs("I60", call.method, model.reference.call(call), value)


@dataclass(frozen=True)
class DraftContext(OfStates):
    """`set_intermediate_context` of the first draft steps of rows, named or the first ones."""

    methods: ClassVar[tuple[str, ...]] = ("set_intermediate_context",)
    weight: ClassVar[int] = 4

    rows: tuple[int, ...]
    steps: int
    named: bool
    tag: int

    @classmethod
    def enabled(cls, model: StateModel) -> bool:
        return bool(model.config.draft)

    @classmethod
    def draw(cls, choices: Choices, model: StateModel) -> DraftContext:
        config = model.config
        rows = choices.subset(range(config.rows), 0, MOST_AT_ONCE)
        if choices.boolean():
            rows.append(config.rows)  # a padded lane's
        named = choices.boolean()
        steps = choices.integer(0, config.draft)
        rows = rows if named else list(range(len(rows)))
        return cls(tuple(rows), steps, named, choices.integer(0, MOST_STEPS))

    def applies(self, model: StateModel) -> bool:
        rows, config = self.rows, model.config
        return (
            bool(config.draft)
            and len(set(rows)) == len(rows)
            and set(rows) <= set(range(config.rows + 1))
            and (self.named or rows == tuple(range(len(rows))))
            and 0 <= self.steps <= config.draft
            and self.tag >= 0
        )

    def call(self, model: StateModel, side: StateSide) -> Call:
        context = tuple(
            tuple(tags(model.config.ngram, self.tag, step, row, 32) for step in range(self.steps))
            for row in self.rows
        )
        indices = {"indices": list(self.rows)} if self.named else {}
        return Call("set_intermediate_context", {"context": context, **indices})


LEGAL = (
    ResetSibling, CopySibling, SaveSibling, LoadSibling, ClearSibling, AskEntries, ShortForward,
    ShortDraft, SetContext, ReadContext, DraftContext,
)  # fmt: skip
