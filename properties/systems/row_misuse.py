"""Misuse of the request rows as commands: each must be refused, and change nothing.

Follows `spec/core.md` §2 and §4b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.row_commands import write_call
from properties.systems.row_model import RowModel, RowSide


@dataclass(frozen=True)
class _Misuse(Command):
    """Base: an outcome other than a refusal breaks an invariant."""

    misuse: ClassVar[bool] = True
    weight: ClassVar[int] = 1
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)

    amount: int

    @classmethod
    def draw(cls, choices: Choices, model: RowModel) -> Any:
        return cls(choices.integer(1, 4))

    def applies(self, model: RowModel) -> bool:
        return self.amount > 0 and type(self).enabled(model)


class NegativeRows(_Misuse):
    """`alloc_rows` of a negative number."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_rows",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("alloc_rows", {"need_size": -self.amount})


class FreeRowOutside(_Misuse):
    """`free_rows` of row 0 or of a row that the table lacks."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        row = (0, -1, model.config.size + 1, 0)[self.amount % 4]
        return Call("free_rows", {"indices": [row]})


class FreeRowAgain(_Misuse):
    """`free_rows` of a row that is free: freed before, cleared away, or never handed out."""

    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})
    methods: ClassVar[tuple[str, ...]] = ("free_rows",)

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return bool(model.state["free"])

    def call(self, model: RowModel, side: RowSide) -> Call:
        free = sorted(side.ledger.available_pages())
        return Call("free_rows", {"indices": [free[self.amount % len(free)]]})


@dataclass(frozen=True)
class _MisuseOfHeld(_Misuse):
    """Misuse that needs a request with a row."""

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return bool(model.side.held)

    def name_of(self, side: RowSide) -> int:
        names = list(side.held)
        return names[self.amount % len(names)]


class FreeRowTwice(_MisuseOfHeld):
    """One row twice in a call of `free_rows`."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("free_rows", {"indices": [side.held[self.name_of(side)][0]] * 2})


class AdmitTwice(_MisuseOfHeld):
    """The same request twice in a call of `alloc`, holding a row or not."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        name = self.name_of(side) if self.amount % 2 else model.next_name
        return Call("alloc", {"reqs": [side.request(name)] * 2})


class AdmitWithoutKV(_MisuseOfHeld):
    """A request that holds a row but no KV."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        lie = {"allocated": 0} if self.amount % 2 else {"holds": False}
        return Call("alloc", {"reqs": [{**side.request(self.name_of(side)), **lie}]})


class AdmitImpostor(_Misuse):
    """A request that claims a row which nobody holds."""

    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})
    methods: ClassVar[tuple[str, ...]] = ("alloc",)

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return bool(model.state["free"])

    def call(self, model: RowModel, side: RowSide) -> Call:
        free = sorted(side.ledger.available_pages())
        row = None if self.amount % 3 == 0 else free[self.amount % len(free)]
        claim = {"name": model.next_name, "row": row, "allocated": 1, "holds": True}
        return Call("alloc", {"reqs": [claim]})


class FinishWithoutRow(_Misuse):
    """`free` of a request that holds no row."""

    methods: ClassVar[tuple[str, ...]] = ("free",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("free", {"req": side.request(model.next_name)})


class StaleWrite(_Misuse):
    """`write` through a handle whose row was freed, or freed and handed out again."""

    methods: ClassVar[tuple[str, ...]] = ("write",)
    weight: ClassVar[int] = 3

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return bool(model.side.stale)

    def call(self, model: RowModel, side: RowSide) -> Call:
        names = list(side.stale)[-4:]
        handle = side.stale[names[self.amount % len(names)]]
        return write_call(handle[0], 0, min(1, model.config.width), 9, "slice", handle)


class WriteOutside(_Misuse):
    """`write` past the table, or of a value that int32 can't hold."""

    methods: ClassVar[tuple[str, ...]] = ("write",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        width, size = model.config.width, model.config.size
        indices, values = (
            ((size + 1, slice(0, 1)), [1]),
            ((0, slice(width, width + 1)), [1]),
            (([0], [width]), [1]),
            (([0], [0]), [2**31]),
        )[self.amount % 4]
        return Call("write", {"indices": indices, "values": values, "handle": None})


class HandleOfFree(_Misuse):
    """`handle` of a row that nobody holds."""

    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})
    methods: ClassVar[tuple[str, ...]] = ("handle",)

    @classmethod
    def enabled(cls, model: RowModel) -> bool:
        return bool(model.state["free"])

    def call(self, model: RowModel, side: RowSide) -> Call:
        free = sorted(side.ledger.available_pages())
        return Call("handle", {"row": free[self.amount % len(free)]})


class SecondHook(_Misuse):
    """A second hook on allocation: there is one consumer."""

    methods: ClassVar[tuple[str, ...]] = ("register_on_alloc_rows",)

    def call(self, model: RowModel, side: RowSide) -> Call:
        return Call("register_on_alloc_rows", {"hook": print})


MISUSE: tuple[type[Command], ...] = (
    NegativeRows, FreeRowOutside, FreeRowAgain, FreeRowTwice, AdmitTwice, AdmitWithoutKV,
    AdmitImpostor, FinishWithoutRow, StaleWrite, WriteOutside, HandleOfFree, SecondHook,
)  # fmt: skip
