"""The ways in which the sliding-window pair gives back: both sides, the windows, the full side.

Follows `spec/swa_unified.md` §2.5, §2.6. Legal use gives back windows where there are some, and
full pages by themselves where there are none any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems import releases
from properties.systems.slot_model import Faults
from properties.systems.swa_model import SWAModel


class _Gives:
    """Mixed into releases: what they give back, and of which pages they can."""

    gives: ClassVar[str] = "both"

    @classmethod
    def able(cls, model: SWAModel) -> list[int]:
        """The requests that have such pages at an end."""
        return [name for name in model.side.rows if model.fitting(name, cls.gives)]

    def book(self, model: SWAModel, side: Any, name: int, pages: int, by_slots: bool) -> Faults:
        """Books the release of some pages of a request."""
        if self.gives != "full" and not model.rings:
            slots = side.part(name, pages)
            side.let_go(side.pages(slots), model.group)
        if self.gives == "windows":
            return []
        faults: Faults = side.give(name, pages, model.group, by_slots)
        return faults


class _Release(_Gives, releases._Release):
    """Slots or pages of some requests in one call."""

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: Any) -> Any:
        if model.scope is None:
            chosen = choices.subset(cls.able(model), 1, 2)
        else:
            chosen = choices.subset(cls.able(model), 1, model.scope.requests)
        parts = tuple((name, choices.pick(model.fitting(name, cls.gives))) for name in chosen)
        return cls(parts, choices.pick(cls.scoped_namings(model, parts)))

    def applies(self, model: Any) -> bool:
        return super().applies(model) and all(
            pages in model.fitting(name, self.gives) for name, pages in self.parts
        )

    def settle(self, model: Any, side: Any, value: Any) -> Faults:
        faults: Faults = []
        for name, pages in self.parts:
            faults += self.book(model, side, name, pages, self.by_slots)
        return faults


class Free(_Release):
    """`free`: slots and their windows."""

    methods: ClassVar[tuple[str, ...]] = ("free",)
    method = "free"
    weight: ClassVar[int] = 40


class _Likewise(_Release):
    """Names slots as `free` does: in a scope in one way."""

    @classmethod
    def scoped_namings(cls, model: Any, parts: Any) -> tuple[str, ...]:
        namings = super().scoped_namings(model, parts)
        return namings if model.scope is None else namings[:1]

    def plainly(self) -> Command:
        return self


class FreeSWA(_Likewise):
    """`free_swa`: the windows of any slots; the slots stay."""

    methods: ClassVar[tuple[str, ...]] = ("free_swa",)
    method = "free_swa"
    gives = "windows"
    weight: ClassVar[int] = 16


class FreeFull(_Likewise):
    """`free_full`: slots whose windows have gone back."""

    methods: ClassVar[tuple[str, ...]] = ("free_full",)
    method = "free_full"
    gives = "full"
    weight: ClassVar[int] = 24


class FreePageIds(_Release):
    """`free_page_ids`: exactly these pages and their windows."""

    methods: ClassVar[tuple[str, ...]] = ("free_page_ids",)
    method = "free_page_ids"
    by_slots: ClassVar[bool] = False
    weight: ClassVar[int] = 24

    namings = releases.FreePageIds.namings
    call = releases.FreePageIds.call

    def plainly(self) -> Command:
        return Free(self.parts, self.naming)


class _Segments(_Gives, releases._Segments):
    """Consecutive pages of one request, cut into segments."""

    plain: ClassVar[type[_Release]] = Free

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return bool(cls.able(model))

    @classmethod
    def draw(cls, choices: Choices, model: Any) -> Any:
        name = choices.pick(cls.able(model))
        pages = choices.pick(model.fitting(name, cls.gives))
        count = abs(pages) or -(-len(model.side.rows[name].slots) // model.page_size)
        cuts = choices.subset(range(1, count), 0, 2) if cls.several and count > 1 else []
        hollow = cls.several and not (model.scope and (cuts or pages)) and choices.boolean()
        return cls(name, pages, tuple(cuts), hollow)

    def applies(self, model: Any) -> bool:
        return super().applies(model) and self.pages in model.fitting(self.request, self.gives)

    def plainly(self) -> Command:
        return self.plain(((self.request, self.pages),), "all")

    def settle(self, model: Any, side: Any, value: Any) -> Faults:
        return self.book(model, side, self.request, self.pages, by_slots=False)


class FreeSegment(_Segments):
    """`free_segment`: consecutive positions and their windows."""

    methods: ClassVar[tuple[str, ...]] = ("free_segment",)
    method = "free_segment"
    several: ClassVar[bool] = False
    weight: ClassVar[int] = 14


class FreeSegments(_Segments):
    """`free_segments`: several, ascending and page-disjoint."""

    methods: ClassVar[tuple[str, ...]] = ("free_segments",)
    method = "free_segments"
    weight: ClassVar[int] = 14


class FreeSwaSegment(_Segments):
    """`free_swa_segment`: the windows of consecutive positions."""

    methods: ClassVar[tuple[str, ...]] = ("free_swa_segment",)
    method = "free_swa_segment"
    gives = "windows"
    plain = FreeSWA
    several: ClassVar[bool] = False
    weight: ClassVar[int] = 12


class FreeSwaSegments(_Segments):
    """`free_swa_segments`: several."""

    methods: ClassVar[tuple[str, ...]] = ("free_swa_segments",)
    method = "free_swa_segments"
    gives = "windows"
    plain = FreeSWA
    weight: ClassVar[int] = 12


class FreeFullSegment(_Segments):
    """`free_full_segment`: consecutive positions whose windows have gone back."""

    methods: ClassVar[tuple[str, ...]] = ("free_full_segment",)
    method = "free_full_segment"
    gives = "full"
    plain = FreeFull
    several: ClassVar[bool] = False
    weight: ClassVar[int] = 18


class FreeFullSegments(_Segments):
    """`free_full_segments`: several."""

    methods: ClassVar[tuple[str, ...]] = ("free_full_segments",)
    method = "free_full_segments"
    gives = "full"
    plain = FreeFull
    weight: ClassVar[int] = 18


@dataclass(frozen=True)
class FreeNamed(Command):
    """A page whose window a slot free of the group released is named by another: it counts once."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("free_swa", "free_group_begin", "free_group_end")
    weight: ClassVar[int] = 30  # few states allow it, and those don't last

    index: int
    offset: int

    @classmethod
    def pages(cls, model: SWAModel) -> list[int]:
        again = model.side.ledger.owned_pages().intersection(model.state["again"])
        return sorted(again.union(model.side.parked_by_slots).difference(model.side.mapped))

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return model.paged and model.group and not model.rings and bool(cls.pages(model))

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> FreeNamed:
        return cls(
            choices.integer(0, len(cls.pages(model)) - 1),
            choices.integer(0, model.page_size - 1),
        )

    def applies(self, model: SWAModel) -> bool:
        return (
            type(self).enabled(model)
            and 0 <= self.index < len(self.pages(model))
            and 0 <= self.offset < model.page_size
        )

    def call(self, model: SWAModel, side: Any) -> Call | None:  # type: ignore[override]
        if not model.exact:
            return None  # which pages these are only the reference's snapshot tells
        slot = self.pages(model)[self.index] * model.page_size + self.offset
        return Call("free_swa", {"free_index": [slot]})


@dataclass(frozen=True)
class FreeNothing(releases.FreeNothing):
    """Any way to free, of no ids: nothing happens."""

    methods: ClassVar[tuple[str, ...]] = (
        *releases.FreeNothing.methods, "free_swa", "free_swa_segment", "free_swa_segments",
    )  # fmt: skip


RELEASES: tuple[type[Command], ...] = (
    Free, FreeSWA, FreeFull, FreePageIds, FreeSegment, FreeSegments, FreeSwaSegment,
    FreeSwaSegments, FreeFullSegment, FreeFullSegments, FreeNamed, FreeNothing,
)  # fmt: skip
