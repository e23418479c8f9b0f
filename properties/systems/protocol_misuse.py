"""Misuse of groups and of `resize`, and arguments of the wrong type, shape or device, as commands.

Follows `spec/core.md` §4 and §4b; each must be refused, and change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command, Distortion
from properties.systems.growth import extend_args
from properties.systems.misuse import GROWING, Misuse, grow_call, open_ways, release_call
from properties.systems.slot_model import Side, SlotModel


@dataclass(frozen=True)
class NestedGroup(Misuse):
    """`free_group_begin` inside a group."""

    of_pool: ClassVar[bool] = True
    weight: ClassVar[int] = 6  # groups are open for a small part of a run
    methods: ClassVar[tuple[str, ...]] = ("free_group_begin", "free_group_end")

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return model.group

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("free_group_begin")


@dataclass(frozen=True)
class EndWithoutGroup(Misuse):
    """`free_group_end` of a group never begun."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("free_group_end",)
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "inside a group")})

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return not model.group

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("free_group_end")


@dataclass(frozen=True)
class _BadResize(Misuse):
    """`resize` where it would lose something."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("resize",)

    size: int

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        if model.scope is not None:
            return cls(choices.pick((0, model.page_size)))
        return cls(choices.integer(0, 2 * model.page_size))

    def applies(self, model: SlotModel) -> bool:
        return self.size >= 0 and type(self).enabled(model)

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("resize", {"config": SimpleNamespace(max_total_num_tokens=self.size)})


class ResizeOwned(_BadResize):
    """`resize` while pages are owned."""

    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "inside a group")})

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return not model.group and bool(model.side.ledger.owned_pages())


class ResizeInGroup(_BadResize):
    """`resize` inside a group."""

    weight: ClassVar[int] = 6  # groups are open for a small part of a run

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return model.group


class ResizeNegative(_BadResize):
    """`resize` to a negative size."""

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("resize", {"config": SimpleNamespace(max_total_num_tokens=-1 - self.size)})


# method → the argument that is distorted
_DISTORTED = {
    "alloc": "need_size",
    "free": "free_index",
    "free_full": "free_index",
    "free_page_ids": "page_ids",
    "free_segment": "free_index",
    "free_full_segment": "free_index",
    "free_segments": "segments",
    "free_full_segments": "segments",
    "alloc_extend": "last_loc",
    "alloc_decode": "seq_lens",
}


@dataclass(frozen=True)
class _Distorted(Misuse):
    """An argument of the wrong type, shape or device, in an otherwise legal call."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = tuple(_DISTORTED)
    what: ClassVar[str]

    how: str

    @classmethod
    def ways(cls, model: SlotModel) -> list[str]:
        return [
            how
            for how in open_ways(tuple(_DISTORTED), model)
            if (cls.what == "dtype" if how == "alloc" else cls.could_pass(model, how))
        ]

    @classmethod
    def could_pass(cls, model: SlotModel, how: str) -> bool:
        """Whether the call would be legal without the distortion."""
        if how in GROWING:
            return model.paged and model.available_pages > 0
        return bool(model.side.ledger.owned_pages())

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(cls.ways(model))

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        return cls(choices.pick(cls.ways(model)))

    def applies(self, model: SlotModel) -> bool:
        return self.how in self.ways(model)

    def call(self, model: SlotModel, side: Side) -> Call | None:  # type: ignore[override]
        if self.how == "alloc":
            legal = Call("alloc", {"need_size": model.page_size})
        elif self.how in GROWING:
            legal = grow_call(self.how, extend_args(side, ((model.next_name, 1),)), 1)
        else:
            page = min(side.ledger.owned_pages())
            legal = release_call(self.how, [page], model.page_size)
        fault = Distortion(_DISTORTED[self.how], self.what)
        return Call(legal.method, legal.args, distortion=fault)


class WrongDtype(_Distorted):
    """Floats where ids or lengths belong."""

    what = "dtype"


class WrongShape(_Distorted):
    """A matrix where a list belongs."""

    what = "shape"


class WrongDevice(_Distorted):
    """A tensor on another device."""

    what = "device"


SHARED: tuple[type[Command], ...] = (
    NestedGroup, EndWithoutGroup, ResizeOwned, ResizeInGroup, ResizeNegative, WrongDtype,
    WrongShape, WrongDevice,
)  # fmt: skip
