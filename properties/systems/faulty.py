"""What callers of the slot allocators do who have a bug, as commands; one for each real bug.

To its caller each is legal use. The reference refuses it, or the model sees what it breaks. Nobody
is driven with them but the planted bug that names one. Spec: `spec/core.md` §3, §4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.growth import extend_args
from properties.systems.misuse import FreeAgain
from properties.systems.slot_model import Faults, Side, SlotModel


@dataclass(frozen=True)
class _Faulty(Command):
    """A fault about one live request; `amount` says how far the caller is out."""

    weight: ClassVar[int] = 16  # soon, and not before there is something to break

    request: int
    amount: int

    @classmethod
    def most(cls, model: SlotModel, name: int) -> int:
        """The largest `amount` for this request; 0 where the fault can't be."""
        raise NotImplementedError

    @classmethod
    def able(cls, model: SlotModel) -> list[int]:
        return [name for name in model.side.rows if cls.most(model, name) > 0]

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        name = choices.pick(cls.able(model))
        return cls(name, choices.integer(1, cls.most(model, name)))

    def applies(self, model: SlotModel) -> bool:
        known = self.request in model.side.rows
        return known and 0 < self.amount <= self.most(model, self.request)

    def broken(self, how: str) -> Faults:
        """What a served call breaks."""
        return [(self.breaks, f"{self.name()}: {how}")]


class FinishOnTwoPaths(_Faulty):
    """One path frees a finished request's slots, another its last ones, which were taken ahead."""

    breaks: ClassVar[str] = "I5"
    methods: ClassVar[tuple[str, ...]] = ("free",)

    @classmethod
    def most(cls, model: SlotModel, name: int) -> int:
        return len(model.side.rows[name].slots)

    def call(self, model: SlotModel, side: Side) -> Call:
        slots = side.rows[self.request].slots
        return Call("free", {"free_index": [*slots, *slots[-self.amount :]]})


class ReleaseSliceTwice(FreeAgain):
    """Two functions free the same slice: the second one finds it free already."""

    misuse: ClassVar[bool] = False
    breaks: ClassVar[str] = "I5"
    methods: ClassVar[tuple[str, ...]] = ("free",)
    ways: ClassVar[tuple[str, ...]] = ("free",)


class DecodeByOwnLength(_Faulty):
    """A decode behind `amount` encoder slots that counts the decoder's only."""

    breaks: ClassVar[str] = "I12"
    methods: ClassVar[tuple[str, ...]] = ("alloc_decode",)
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")

    @classmethod
    def most(cls, model: SlotModel, name: int) -> int:
        row = model.side.rows[name]
        return 0 if row.start else len(row.slots) - 1

    def last(self, side: Side) -> int:
        """Which slot the caller takes for the last one."""
        return side.rows[self.request].slots[-1 - self.amount]

    def call(self, model: SlotModel, side: Side) -> Call:
        args = extend_args(side, ((self.request, 1),))
        del args["prefix_lens"], args["prefix_lens_cpu"]
        lengths = [length - self.amount for length in args["seq_lens"]]
        told = {"seq_lens": lengths, "seq_lens_cpu": list(lengths), "last_loc": [self.last(side)]}
        return Call("alloc_decode", {**args, **told})

    def chunks(self, model: SlotModel, side: Side) -> Iterator[tuple[int, int, int]]:
        yield side.rows[self.request].length - self.amount, 1, self.last(side)

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        last = side.rows[self.request].last_loc
        return self.broken(f"slot {value[0]} follows {self.last(side)}, the last token's is {last}")


class _CutInPage(_Faulty):
    """A row cut behind its first `amount` slots, in the middle of a page."""

    @classmethod
    def cuts(cls, model: SlotModel, name: int) -> list[int]:
        count = len(model.side.rows[name].slots)
        return [cut for cut in range(1, count) if cut % model.page_size]

    @classmethod
    def most(cls, model: SlotModel, name: int) -> int:
        return max(cls.cuts(model, name), default=0)

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        name = choices.pick(cls.able(model))
        return cls(name, choices.pick(cls.cuts(model, name)))

    def applies(self, model: SlotModel) -> bool:
        return super().applies(model) and self.amount % model.page_size > 0


class FreeCutSegments(_CutInPage):
    """Two segments of a row, cut on a finer grid than the allocator's pages."""

    breaks: ClassVar[str] = "I36"
    methods: ClassVar[tuple[str, ...]] = ("free_segments",)

    def call(self, model: SlotModel, side: Side) -> Call:
        row, cut = side.rows[self.request], self.amount
        first, second = row.slots[:cut], row.slots[cut:]
        return Call("free_segments", {"segments": [(first, row.start), (second, row.start + cut)]})


class EvictUnaligned(_CutInPage):
    """Rejected drafts are freed from a token on that isn't the first of its page."""

    breaks: ClassVar[str] = "I35"
    methods: ClassVar[tuple[str, ...]] = ("free",)

    def call(self, model: SlotModel, side: Side) -> Call:
        return Call("free", {"free_index": side.rows[self.request].slots[self.amount :]})

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        slots = side.rows[self.request].slots
        pages = {slot // side.page_size for slot in slots[self.amount :]}
        kept = [slot for slot in slots[: self.amount] if slot // side.page_size in pages]
        return self.broken(f"pages {sorted(pages)} go back, slots {kept} in them are kept")


class FinishCommitted(_Faulty):
    """A finished request frees what it committed; pages that it took ahead stay behind."""

    breaks: ClassVar[str] = "I32"
    methods: ClassVar[tuple[str, ...]] = ("free_segment",)

    @classmethod
    def most(cls, model: SlotModel, name: int) -> int:
        return -(-len(model.side.rows[name].slots) // model.page_size) - 1

    def call(self, model: SlotModel, side: Side) -> Call:
        row = side.rows[self.request]
        committed = len(row.slots) - self.amount * side.page_size
        return Call("free_segment", {"free_index": row.slots[:committed], "start_pos": row.start})

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        row = side.rows[self.request]
        committed = len(row.slots) - self.amount * side.page_size
        back = side.pages(row.slots[:committed])
        stranded = [page for page in side.pages(row.slots) if page not in back]
        return self.broken(f"the request is gone, nobody knows of its pages {stranded} any more")


TOKEN: tuple[type[Command], ...] = (FinishOnTwoPaths, ReleaseSliceTwice)
PAGED: tuple[type[Command], ...] = (
    DecodeByOwnLength, FreeCutSegments, EvictUnaligned, FinishCommitted,
)  # fmt: skip
