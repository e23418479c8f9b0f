"""Commands by which requests of the sliding-window pair grow and shrink.

Follows `spec/swa_unified.md` §2.4. Where a page is a slot they take by `alloc`, else by extend and
decode; a request that ends in a half-filled page without its window can't grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.systems import growth, scoped, slots
from properties.systems.growth import draw_tokens, extend_args
from properties.systems.slot_model import Faults, Side
from properties.systems.swa_model import SWAModel, WindowSide


class Alloc(slots.Alloc):
    """A new request takes slots with `alloc`, where a page is a slot."""

    # such a page is never half filled
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER | {
        ("served", "half-filled page"),
        ("short", "half-filled page"),
    }

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return not model.paged and bool(super().enabled(model))

    def applies(self, model: Any) -> bool:
        return not model.paged and bool(super().applies(model))

    def settle(self, model: Any, side: Any, value: list[int]) -> Faults:
        side.map(value)
        return super().settle(model, side, value)


class _Paged(growth._Grow):
    """What extend and decode share here."""

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return bool(model.paged)

    def applies(self, model: Any) -> bool:
        names = [name for name, _ in self.growth]
        known = [name for name in names if name in model.side.rows]
        fits = model.paged and all(map(self.may_grow, [model] * len(known), known))
        return bool(fits and super().applies(model))

    @classmethod
    def may_grow(cls, model: Any, name: int) -> bool:
        """Whether a live request may be in the batch."""
        return name not in model.side.sessions and bool(model.can_grow(name))

    def settle(self, model: Any, side: Any, value: list[int]) -> Faults:
        if not model.rings:
            side.map(value)
        return super().settle(model, side, value)


class Extend(_Paged, growth.Extend):
    """`alloc_extend`: first chunk of new requests, later chunks of live ones."""


class Decode(_Paged, growth.Decode):
    """`alloc_decode`: one more token for each request."""

    weight: ClassVar[int] = 24


@dataclass(frozen=True)
class _Tail(growth._Grow):
    """One request's extend, of which only the last pages have windows."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_extend_swa_tail",)
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    request: int
    tokens: int
    tail_pages: int

    @property
    def growth(self) -> tuple[tuple[int, int], ...]:
        return ((self.request, self.tokens),)

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        """Whether a request may be the one: by where it ends."""
        raise NotImplementedError

    @classmethod
    def least_tail(cls) -> int:
        """Fewest pages of a tail."""
        return 0

    @classmethod
    def names(cls, model: SWAModel) -> list[int]:
        fresh = [model.next_name] if model.openings > 0 and cls.fits(model, model.next_name) else []
        return [name for name in model.side.rows if cls.fits(model, name)] + fresh

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return model.paged and bool(cls.names(model))

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> Any:
        name, size = choices.pick(cls.names(model)), model.page_size
        rest = -cls.prefix(model, name) % size
        left = len(model.state["free"]) + len(model.state["staged"])
        if model.scope is not None:
            tokens = scoped.amount(choices, rest + left * size, least=1)
        else:
            tokens = max(1, draw_tokens(choices, size, rest, left, choices.boolean()))
        most = model.pages_for(((name, tokens),))
        least = min(cls.least_tail(), most)
        return cls(name, tokens, choices.integer(least, most, (least, min(1, most))))

    @staticmethod
    def prefix(model: SWAModel, name: int) -> int:
        row = model.side.rows.get(name)
        return row.length if row is not None else 0

    def applies(self, model: Any) -> bool:
        known = self.request in model.side.rows or model.fresh(self.request)
        if not (model.paged and known and self.fits(model, self.request) and self.tokens > 0):
            return False
        most = model.pages_for(self.growth)
        return bool(min(self.least_tail(), most) <= self.tail_pages <= most)

    def tail(self, side: Side) -> int:
        """Its length in tokens."""
        row = side.rows.get(self.request)
        seq = (row.length if row is not None else 0) + self.tokens
        if not self.tail_pages:
            return 0
        return seq - ((seq - 1) // side.page_size - self.tail_pages + 1) * side.page_size

    def call(self, model: SWAModel, side: Side) -> Call:
        args = extend_args(side, self.growth)
        args["extend_num_tokens"] = self.tokens
        args["swa_tail_len"] = self.tail(side)
        return Call("alloc_extend_swa_tail", args)

    def settle(self, model: Any, side: Any, value: list[int]) -> Faults:
        assert isinstance(side, WindowSide)
        if not model.rings:
            head = len(value) - self.tail(side)
            side.unmap(value[:head])
            side.map(value[head:])
        return super().settle(model, side, value)


class ExtendTail(_Tail):
    """A tail of some pages, behind whole pages: a request comes in whose window is all it needs."""

    weight: ClassVar[int] = 16

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        return cls.prefix(model, name) % model.page_size == 0

    @classmethod
    def least_tail(cls) -> int:
        return 1


class ExtendNoTail(ExtendTail):
    """A tail of nothing, behind whole pages: no window at all."""

    weight: ClassVar[int] = 4

    @classmethod
    def least_tail(cls) -> int:
        return 0

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> Any:
        drawn = super().draw(choices, model)
        return cls(drawn.request, drawn.tokens, 0)

    def applies(self, model: Any) -> bool:
        return self.tail_pages == 0 and super().applies(model)


class ExtendTailInPage(_Tail):
    """A tail, or nothing, behind a half-filled page, whether that has its window or not."""

    weight: ClassVar[int] = 8

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        return cls.prefix(model, name) % model.page_size > 0


class Trim(growth.Trim):
    """Drops a request's last tokens; pages that aren't kept go back with their windows."""

    @classmethod
    def droppable(cls, model: SWAModel, name: int) -> int:
        """How many tokens may go: those whose pages have their windows."""
        row, size = model.side.rows[name], model.page_size
        live = [True] if model.rings else model.side.live(row.slots)
        gone = 0 if all(live) else len(live) - live[::-1].index(False)
        return len(row.slots) - max(1, gone * size)

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return any(cls.droppable(model, name) > 0 for name in model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: Any) -> Trim:
        names = [name for name in model.side.rows if cls.droppable(model, name) > 0]
        name = choices.pick(names)
        return cls(name, choices.integer(1, cls.droppable(model, name), (1, model.page_size)))

    def applies(self, model: Any) -> bool:
        return super().applies(model) and self.tokens <= self.droppable(model, self.request)

    def settle(self, model: Any, side: Any, value: Any) -> Faults:
        row = side.rows[self.request]
        _, page_end = self.kept(side)
        side.let_go(side.pages(row.slots[page_end:]), model.group)
        return super().settle(model, side, value)


GROWTH: tuple[type[Command], ...] = (
    Alloc, Extend, Decode, ExtendTail, ExtendNoTail, ExtendTailInPage, Trim,
)  # fmt: skip
