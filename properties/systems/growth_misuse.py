"""Misuse of extend and decode as commands, and of the token allocator, which has neither.

One command for each kind of `spec/core.md` §4 and §4b; each must be refused, and change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.growth import extend_args
from properties.systems.misuse import GROWING, ROW_CALLS, Misuse, grow_call, open_ways
from properties.systems.slot_model import Side, SlotModel


@dataclass(frozen=True)
class _BadGrowth(Misuse):
    """One token for a new request, with something wrong about the call."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = GROWING
    ways: ClassVar[tuple[str, ...]] = GROWING

    how: str
    amount: int

    #: amounts that differ in more than number
    forms: ClassVar[int] = 2
    #: whether host data alone decide, so that the fault comes before capacity
    immediate: ClassVar[bool] = False
    # with no page to spare a value fault stays unseen: capacity comes first
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", "exactly full")})

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return cls.immediate or model.available_pages > 0

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        most = 3 if model.scope is None else cls.forms
        return cls(choices.pick(open_ways(cls.ways, model)), choices.integer(1, most))

    def applies(self, model: SlotModel) -> bool:
        return (
            self.how in open_ways(self.ways, model)
            and self.amount > 0
            and type(self).enabled(model)
        )

    def spoil(self, model: SlotModel, side: Side, args: dict[str, Any]) -> dict[str, Any] | None:
        """Plants the fault in the arguments; None where this side has nothing to plant it with."""
        raise NotImplementedError

    def call(self, model: SlotModel, side: Side) -> Call | None:  # type: ignore[override]
        args = self.spoil(model, side, extend_args(side, ((model.next_name, 1),)))
        if args is None:
            return None
        return grow_call(self.how, args, sum(args["seq_lens_cpu"]) - sum(args["prefix_lens_cpu"]))


class SeqBelowPrefix(_BadGrowth):
    """Fewer tokens after the call than before it; for a decode, none."""

    forms: ClassVar[int] = 1
    immediate: ClassVar[bool] = True
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()

    def spoil(self, model: SlotModel, side: Side, args: dict[str, Any]) -> dict[str, Any]:
        seq = [0 if self.how == "alloc_decode" else 1]
        prefix, last = [1 + self.amount], [model.page_size + self.amount]
        return {
            "prefix_lens": prefix, "prefix_lens_cpu": list(prefix),
            "seq_lens": seq, "seq_lens_cpu": list(seq), "last_loc": last,
        }  # fmt: skip


class WrongTotal(_BadGrowth):
    """`extend_num_tokens` is not the sum of seq - prefix."""

    immediate: ClassVar[bool] = True
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    ways: ClassVar[tuple[str, ...]] = ("alloc_extend",)
    methods: ClassVar[tuple[str, ...]] = ("alloc_extend",)

    def call(self, model: SlotModel, side: Side) -> Call:
        args = extend_args(side, ((model.next_name, 1),))
        return grow_call(self.how, args, (0, 2, -1, 1 + model.page_size)[self.amount % 4])


class WrongPageCount(_BadGrowth):
    """`num_new_pages` is not the exact count."""

    immediate: ClassVar[bool] = True
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    ways: ClassVar[tuple[str, ...]] = ("alloc_extend",)
    methods: ClassVar[tuple[str, ...]] = ("alloc_extend",)

    def call(self, model: SlotModel, side: Side) -> Call:
        args = extend_args(side, ((model.next_name, 1),))
        args["num_new_pages"] = (0, 2, -1, 3)[self.amount % 4]
        return grow_call(self.how, args, 1)


class CopiesDiffer(_BadGrowth):
    """A device length that is not its host copy."""

    def spoil(self, model: SlotModel, side: Side, args: dict[str, Any]) -> dict[str, Any]:
        extends = self.how != "alloc_decode"
        key = "prefix_lens" if extends and self.amount % 2 == 0 else "seq_lens"
        args[key] = [length + self.amount for length in args[key]]
        return args


class CopyMissing(_BadGrowth):
    """Host and device lengths of different number."""

    forms: ClassVar[int] = 3
    immediate: ClassVar[bool] = True
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()

    def spoil(self, model: SlotModel, side: Side, args: dict[str, Any]) -> dict[str, Any]:
        key = ("seq_lens", "seq_lens_cpu", "last_loc")[self.amount % 3]
        if key == "seq_lens_cpu":
            args["seq_lens"], args["last_loc"] = args["seq_lens"] * 2, args["last_loc"] * 2
        else:
            args[key] = []
        return args


class LastLocOfNothing(_BadGrowth):
    """A `last_loc` where the prefix is empty."""

    def spoil(self, model: SlotModel, side: Side, args: dict[str, Any]) -> dict[str, Any]:
        args["last_loc"] = [self.amount * model.page_size - 1]
        return args


@dataclass(frozen=True)
class _BadHalfPage(_BadGrowth):
    """A `last_loc` in a half-filled page that can't be continued from there."""

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return model.page_size > 1 and model.available_pages > 0

    def half(self, model: SlotModel, last: int) -> dict[str, Any]:
        prefix = 1 + self.amount % (model.page_size - 1)
        return {
            "prefix_lens": [prefix], "prefix_lens_cpu": [prefix],
            "seq_lens": [prefix + 1], "seq_lens_cpu": [prefix + 1],
            "last_loc": [last],
        }  # fmt: skip

    def offset(self, model: SlotModel) -> int:
        """Where in its page the last token must lie."""
        return self.amount % (model.page_size - 1)


class MisplacedLastLoc(_BadHalfPage):
    """`last_loc` lies at another offset of an owned page than the prefix says."""

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return super().enabled(model) and bool(model.side.ledger.owned_pages())

    def spoil(self, model: SlotModel, side: Side, args: dict[str, Any]) -> dict[str, Any] | None:
        owned = sorted(side.ledger.owned_pages())
        if not owned:
            return None
        page = owned[self.amount % len(owned)]
        wrong = (self.offset(model) + 1) % model.page_size
        return self.half(model, page * model.page_size + wrong)


class LastLocNotOwned(_BadHalfPage):
    """`last_loc` lies in a page that nobody owns: free, reserved or out of range."""

    def spoil(self, model: SlotModel, side: Side, args: dict[str, Any]) -> dict[str, Any]:
        ledger = side.ledger
        pages = [
            *sorted(ledger.available_pages() | ledger.parked_pages()),
            0,
            model.num_pages + 1,
            -1,
        ]
        page = pages[self.amount % len(pages)]
        return self.half(model, page * model.page_size + self.offset(model))


@dataclass(frozen=True)
class ContinueTwice(Misuse):
    """One half-filled page continued by two requests of a call."""

    methods: ClassVar[tuple[str, ...]] = GROWING

    how: str
    request: int

    @classmethod
    def fits(cls, model: SlotModel, name: int) -> bool:
        row = model.side.rows[name]
        return bool(row.slots) and row.length % model.page_size > 0

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return any(cls.fits(model, name) for name in model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> ContinueTwice:
        names = [name for name in model.side.rows if cls.fits(model, name)]
        return cls(choices.pick(open_ways(GROWING, model)), choices.pick(names))

    def applies(self, model: SlotModel) -> bool:
        return (
            self.how in open_ways(GROWING, model)
            and self.request in model.side.rows
            and self.fits(model, self.request)
        )

    def call(self, model: SlotModel, side: Side) -> Call:
        args = extend_args(side, ((self.request, 1),))
        return grow_call(self.how, {key: value * 2 for key, value in args.items()}, 2)


@dataclass(frozen=True)
class TokenGrowth(Misuse):
    """`alloc_extend` or `alloc_decode` of the token allocator: unsupported."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = GROWING

    how: str

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> TokenGrowth:
        return cls(choices.pick(open_ways(GROWING, model)))

    def applies(self, model: SlotModel) -> bool:
        return self.how in open_ways(GROWING, model)

    def call(self, model: SlotModel, side: Side) -> Call:
        return grow_call(self.how, extend_args(side, ((model.next_name, 1),)), 1)


@dataclass(frozen=True)
class TokenRowCall(Misuse):
    """A call through the row table of the token allocator: unsupported."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ROW_CALLS

    how: str

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> TokenRowCall:
        return cls(choices.pick(open_ways(ROW_CALLS, model)))

    def applies(self, model: SlotModel) -> bool:
        return self.how in open_ways(ROW_CALLS, model)

    def call(self, model: SlotModel, side: Side) -> Call:
        if self.how == "free_rows_segment":
            return Call(self.how, {"handle": (1, 1), "start": 0, "end": 0})
        args = {"table": None, "rows": [1], "rows_cpu": [1]}
        grown = extend_args(side, ((model.next_name, 1),))
        del grown["last_loc"]
        call = grow_call(self.how.removesuffix("_rows"), grown, 1)
        return Call(self.how, {**args, **call.args})


PAGED: tuple[type[Command], ...] = (
    SeqBelowPrefix, WrongTotal, WrongPageCount, CopiesDiffer, CopyMissing, LastLocOfNothing,
    MisplacedLastLoc, LastLocNotOwned, ContinueTwice,
)  # fmt: skip
TOKEN: tuple[type[Command], ...] = (TokenGrowth, TokenRowCall)
