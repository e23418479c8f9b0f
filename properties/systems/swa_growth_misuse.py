"""Growth of the sliding-window pair that must be refused: released pages gone on with, bad tails.

Follows `spec/swa_unified.md` §2.4, §11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.growth import extend_args
from properties.systems.misuse import GROWING, Misuse, grow_call, open_ways
from properties.systems.slot_model import Side
from properties.systems.swa_model import SWAModel


@dataclass(frozen=True)
class GrowReleased(Misuse):
    """Goes on in a half-filled page whose window was released."""

    methods: ClassVar[tuple[str, ...]] = GROWING
    weight: ClassVar[int] = 8
    # capacity comes first
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()

    how: str
    request: int

    @classmethod
    def names(cls, model: SWAModel) -> list[int]:
        return [name for name in model.side.rows if not model.can_grow(name)]

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return model.paged and bool(cls.names(model))

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> GrowReleased:
        return cls(choices.pick(open_ways(GROWING, model)), choices.pick(cls.names(model)))

    def applies(self, model: SWAModel) -> bool:
        return (
            type(self).enabled(model)
            and self.how in open_ways(GROWING, model)
            and self.request in self.names(model)
        )

    def call(self, model: SWAModel, side: Side) -> Call:
        return grow_call(self.how, extend_args(side, ((self.request, 1),)), 1)


@dataclass(frozen=True)
class _BadTail(Misuse):
    """A tail that can't be, of a new request."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("alloc_extend_swa_tail",)

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return model.paged

    def applies(self, model: SWAModel) -> bool:
        return model.paged

    def tail_call(self, model: SWAModel, side: Side, tokens: int, tail: int) -> Call:
        args = extend_args(side, ((model.next_name, tokens),))
        return Call(
            "alloc_extend_swa_tail",
            {**args, "extend_num_tokens": tokens, "swa_tail_len": tail},
        )


class TailInsidePage(_BadTail):
    """A tail that begins inside a page."""

    def call(self, model: SWAModel, side: Side) -> Call:
        return self.tail_call(model, side, model.page_size, model.page_size - 1)


class TailTooLong(_BadTail):
    """A tail longer than the extend."""

    def call(self, model: SWAModel, side: Side) -> Call:
        return self.tail_call(model, side, model.page_size, 2 * model.page_size)


class NegativeTail(_BadTail):
    """A tail of fewer tokens than none."""

    def call(self, model: SWAModel, side: Side) -> Call:
        return self.tail_call(model, side, model.page_size, -model.page_size)


class TailOfSeveral(_BadTail):
    """Two requests in a call that takes one."""

    def call(self, model: SWAModel, side: Side) -> Call:
        size = model.page_size
        growth = ((model.next_name, size), (model.next_name + 1, size))
        args = extend_args(side, growth)
        return Call(
            "alloc_extend_swa_tail", {**args, "extend_num_tokens": 2 * size, "swa_tail_len": size}
        )


@dataclass(frozen=True)
class WrongPageSize(Misuse):
    """The ways to take that belong to the other page sizes."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("alloc", *GROWING, "alloc_extend_swa_tail")

    how: str

    @classmethod
    def ways(cls, model: SWAModel) -> list[str]:
        return open_ways(cls.methods[:1] if model.paged else cls.methods[1:], model)

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return bool(cls.ways(model))

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> WrongPageSize:
        return cls(choices.pick(cls.ways(model)))

    def applies(self, model: SWAModel) -> bool:
        return self.how in self.ways(model)

    def call(self, model: SWAModel, side: Side) -> Call:
        if self.how == "alloc":
            return Call("alloc", {"need_size": model.page_size})
        args = extend_args(side, ((model.next_name, 1),))
        if self.how == "alloc_extend_swa_tail":
            return Call(self.how, {**args, "extend_num_tokens": 1, "swa_tail_len": 1})
        return grow_call(self.how, args, 1)


GROWTH_MISUSE: tuple[type[Command], ...] = (
    GrowReleased, TailInsidePage, TailTooLong, NegativeTail, TailOfSeveral, WrongPageSize,
)  # fmt: skip
