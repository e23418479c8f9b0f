"""The commands of the request rows, legal use.

Follows `spec/core.md` §2 and `spec/pools_states_sizing.md` §1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.systems import scoped
from properties.systems.row_model import Faults, RowModel, RowSide


@dataclass(frozen=True)
class TakeRows(Command):
    """`alloc_rows`: rows that belong to no request object."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_rows",)
    weight: ClassVar[int] = 10
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> TakeRows:
        free = len(model.state["free"])
        if model.scope is not None:
            return cls(tuple(choices.pick(scoped_rows(model))))
        count = choices.integer(0, min(free + 1, 4), (0, 1, free, free + 1))
        if choices.once_in(6):
            count = free + choices.integer(0, 1)
        return cls(tuple(range(model.next_name, model.next_name + count)))

    def applies(self, model: RowModel) -> bool:
        return len(set(self.requests)) == len(self.requests) and all(
            model.fresh(name) for name in self.requests
        )

    def demand(self, model: RowModel) -> int:
        return len(self.requests)

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("alloc_rows", {"need_size": len(self.requests)})

    def settle(self, model: RowModel, side: RowSide, value: list[int]) -> Faults:
        faults: Faults = []
        for name, row in zip(self.requests, value, strict=True):
            model.used(name)
            faults += side.take(name, row)
        return faults


def scoped_rows(model: RowModel) -> list[tuple[int, ...]]:
    """In a scope: the new requests that may come at once, or that are one too many."""
    assert model.scope is not None
    free, first = len(model.state["free"]), model.next_name
    room = model.scope.requests - len(model.side.held)
    counts = {*range(min(room, free) + 1), free + 1}
    return [tuple(range(first, first + count)) for count in sorted(counts)]


@dataclass(frozen=True)
class Admit(Command):
    """`alloc` for requests, some of which may hold a row already (chunked prefill)."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    weight: ClassVar[int] = 12
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> Admit:
        free = len(model.state["free"])
        if model.scope is not None:
            new = choices.pick(scoped_rows(model))
            return cls(tuple(scoped.batch(choices, model.names, new, 0, model.scope.requests + 1)))
        count = choices.integer(0, min(free + 1, 4), (1, free, free + 1))
        fresh = list(range(model.next_name, model.next_name + count))
        held = choices.subset(model.names, 0, 3)
        return cls(tuple(held + fresh if choices.boolean() else fresh + held))

    def applies(self, model: RowModel) -> bool:
        return len(set(self.requests)) == len(self.requests) and all(
            name in model.side.held or model.fresh(name) for name in self.requests
        )

    def demand(self, model: RowModel) -> int:
        return sum(name not in model.side.held for name in self.requests)

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("alloc", {"reqs": [side.request(name) for name in self.requests]})

    def settle(self, model: RowModel, side: RowSide, value: list[int]) -> Faults:
        faults: Faults = []
        for name, row in zip(self.requests, value, strict=True):
            model.used(name)
            if name not in side.held:
                faults += side.take(name, row)
        return faults


@dataclass(frozen=True)
class _OfHeld(Command):
    """A command about one request that holds a row."""

    request: int

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return bool(model.side.held)

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> Any:
        return cls(choices.pick(model.names))

    def applies(self, model: RowModel) -> bool:
        return self.request in model.side.held


@dataclass(frozen=True)
class GiveRows(Command):
    """`free_rows`, several at once."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows",)
    weight: ClassVar[int] = 8

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> GiveRows:
        if model.scope is not None:
            return cls(tuple(scoped.batch(choices, model.names, (), 0, model.scope.requests)))
        return cls(tuple(choices.subset(model.names, 0, 3)))

    def applies(self, model: RowModel) -> bool:
        return len(set(self.requests)) == len(self.requests) and all(
            name in model.side.held for name in self.requests
        )

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("free_rows", {"indices": [side.held[name][0] for name in self.requests]})

    def settle(self, model: RowModel, side: RowSide, value: Any) -> Faults:
        return [fault for name in self.requests for fault in side.give(name)]


class Finish(_OfHeld):
    """`free(req)`: the row goes back and the request forgets it."""

    methods: ClassVar[tuple[str, ...]] = ("free",)
    weight: ClassVar[int] = 6

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("free", {"req": side.request(self.request)})

    def settle(self, model: RowModel, side: RowSide, value: Any) -> Faults:
        return side.give(self.request)

    def answer_faults(self, model: RowModel, call: Call, value: Any) -> Faults:
        return []


@dataclass(frozen=True)
class Write(Command):
    """`write` of a few positions of a row, with or without its handle."""

    methods: ClassVar[tuple[str, ...]] = ("write",)
    weight: ClassVar[int] = 6

    request: int
    start: int
    count: int
    form: str  # how rows and columns are given
    handled: bool

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return bool(model.side.held)

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> Write:
        start = choices.integer(0, model.config.width)
        return cls(
            choices.pick(model.names), start, choices.integer(0, model.config.width - start),
            choices.pick(("slice", "lists")), choices.boolean(),
        )  # fmt: skip

    def applies(self, model: RowModel) -> bool:
        return (
            self.request in model.side.held
            and self.form in ("slice", "lists")
            and self.start >= 0
            and self.count >= 0
            and self.start + self.count <= model.config.width
        )

    def call(self, model: RowModel, side: RowSide) -> Call:
        row, generation = side.held[self.request]
        return write_call(
            row, self.start, self.count, self.request,
            self.form, (row, generation) if self.handled else None,
        )  # fmt: skip

    def settle(self, model: RowModel, side: RowSide, value: Any) -> Faults:
        side.write(self.call(model, side))
        return []


def write_call(
    row: int, start: int, count: int, seed: int, form: str, handle: tuple[int, int] | None
) -> Call:
    """A `write` of `count` values that tell who wrote them."""
    values = [seed * 1000 + start + i for i in range(count)]
    columns = slice(start, start + count) if form == "slice" else list(range(start, start + count))
    rows = row if form == "slice" else [row] * count
    return Call("write", {"indices": (rows, columns), "values": values, "handle": handle})


@dataclass(frozen=True)
class WritePadding(Command):
    """Padded lanes write to row 0."""

    methods: ClassVar[tuple[str, ...]] = ("write",)
    weight: ClassVar[int] = 1

    count: int

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> WritePadding:
        return cls(choices.integer(0, model.config.width))

    def applies(self, model: RowModel) -> bool:
        return self.count in range(model.config.width + 1)

    def call(self, model: RowModel, side: RowSide) -> Call:
        return write_call(0, 0, self.count, 7, "slice", None)

    def settle(self, model: RowModel, side: RowSide, value: Any) -> Faults:
        side.write(self.call(model, side))
        return []


@dataclass(frozen=True)
class CheckHandle(Command):
    """`is_current` of a handle, current or stale."""

    methods: ClassVar[tuple[str, ...]] = ("is_current",)
    weight: ClassVar[int] = 4

    request: int

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return model.next_name > 0 and bool(model.side.held or model.side.stale)

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> CheckHandle:
        if model.scope is not None:
            last = {row: name for name, (row, _) in model.side.stale.items()}
            return cls(choices.pick([*model.side.held, *last.values()]))
        return cls(choices.pick([*model.side.held, *list(model.side.stale)[-8:]]))

    def applies(self, model: RowModel) -> bool:
        return self.request in model.side.held or self.request in model.side.stale

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("is_current", {"handle": side.handle(self.request)})

    def answer_faults(self, model: RowModel, call: Call, value: Any) -> Faults:
        due = self.request in model.side.held
        return [] if value is due else [("I28", f"is_current({call.args['handle']}) is {value}")]


class AskHandle(_OfHeld):
    """`handle` of a held row."""

    methods: ClassVar[tuple[str, ...]] = ("handle",)
    weight: ClassVar[int] = 2

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("handle", {"row": side.held[self.request][0]})

    def answer_faults(self, model: RowModel, call: Call, value: Any) -> Faults:
        row = call.args["row"]
        good = isinstance(value, tuple) and len(value) == 2 and value[0] == row
        return [] if good else [("I28", f"handle({row}) is {value}")]


@dataclass(frozen=True)
class Clear(Command):
    """`clear`: all rows free again, generations stay."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)
    weight: ClassVar[int] = 2

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("clear")

    def settle(self, model: RowModel, side: RowSide, value: Any) -> Faults:
        model.cleared = True
        side.clear()
        return []


LEGAL: tuple[type[Command], ...] = (
    TakeRows, Admit, GiveRows, Finish, Write, WritePadding, CheckHandle, AskHandle, Clear,
)  # fmt: skip
