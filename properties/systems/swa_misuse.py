"""Misuse of the sliding-window pair as commands: each must be refused, and change nothing.

Beside the misuse of single allocators: windows freed twice or left behind, slots mapped that can't
be. Follows `spec/swa_unified.md` §2.4 to §2.10 and §11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems import copy_misuse, growth_misuse, misuse, protocol_misuse
from properties.systems.misuse import GROWING, Misuse, open_ways, release_call
from properties.systems.slot_model import Side
from properties.systems.swa_capacity import pair_config
from properties.systems.swa_growth_misuse import GROWTH_MISUSE
from properties.systems.swa_model import SWAModel

WINDOW_WAYS = ("free_swa", "free_swa_segment", "free_swa_segments")
PAIR_WAYS = ("free", "free_page_ids", "free_segment", "free_segments", *WINDOW_WAYS)
FULL_WAYS = ("free_full", "free_full_segment", "free_full_segments")


class WindowOutOfRange(misuse.FreeOutOfRange):
    """Windows of a page below 0 or above the last."""

    methods: ClassVar[tuple[str, ...]] = WINDOW_WAYS
    ways: ClassVar[tuple[str, ...]] = WINDOW_WAYS

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return not model.rings and super().enabled(model)


class WindowReserved(WindowOutOfRange):
    """Windows of page 0, the padding page."""

    candidates = misuse.FreeReserved.candidates
    different = misuse.FreeReserved.different


class WindowUnissued(WindowOutOfRange):
    """Windows of a page that was never handed out since the last clear."""

    weight: ClassVar[int] = 6
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("refused", "exactly full"), ("refused", "everything staged")}
    )
    candidates = misuse.FreeUnissued.candidates
    different = misuse.FreeUnissued.different


@dataclass(frozen=True)
class _OfPage(Misuse):
    """One page of the pair, named by a way to free it that isn't for it."""

    of_pool: ClassVar[bool] = True
    ways: ClassVar[tuple[str, ...]]

    how: str
    index: int

    @classmethod
    def pages(cls, model: SWAModel, side: Any) -> list[int]:
        """The pages that make the fault."""
        raise NotImplementedError

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return not model.rings and bool(cls.pages(model, model.side))

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> Any:
        most = len(cls.pages(model, model.side)) - 1
        return cls(choices.pick(open_ways(cls.ways, model)), choices.integer(0, most))

    def applies(self, model: SWAModel) -> bool:
        return (
            self.how in open_ways(self.ways, model)
            and type(self).enabled(model)
            and 0 <= self.index < len(self.pages(model, model.side))
        )

    def call(self, model: SWAModel, side: Any) -> Call | None:  # type: ignore[override]
        found = self.pages(model, side)
        if not found:
            return None
        return release_call(self.how, [found[self.index % len(found)]], model.page_size)


class FreeWindowAgain(_OfPage):
    """The window of a page that has none any more, with the page or without it."""

    methods: ClassVar[tuple[str, ...]] = PAIR_WAYS
    ways: ClassVar[tuple[str, ...]] = PAIR_WAYS
    weight: ClassVar[int] = 8

    @classmethod
    def pages(cls, model: SWAModel, side: Any) -> list[int]:
        # what slot frees of the open group have released they may name again
        again = set(model.state["again"]) if model.exact else side.released
        return sorted(side.ledger.owned_pages() - set(side.mapped) - again)


class FreeFullOfWindow(_OfPage):
    """A full page by itself that still has its window, which would be left behind."""

    methods: ClassVar[tuple[str, ...]] = FULL_WAYS
    ways: ClassVar[tuple[str, ...]] = FULL_WAYS
    weight: ClassVar[int] = 6

    @classmethod
    def pages(cls, model: SWAModel, side: Any) -> list[int]:
        return sorted(side.mapped)


@dataclass(frozen=True)
class BadMapping(Misuse):
    """A full slot mapped to a window slot, one of which can't be, by `how`."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = (
        "set_full_to_swa_mapping", "clear_full_to_swa_mapping",
    )  # fmt: skip
    weight: ClassVar[int] = 8
    ways: ClassVar[tuple[str, ...]] = (
        "free slot", "reserved slot", "no slot", "free window", "reserved window", "no window",
        "twice", "other number", "occupied", "cleared", "out of step",
    )  # fmt: skip

    how: str

    @classmethod
    def open(cls, model: SWAModel) -> list[str]:
        return [how for how in cls.ways if cls.arguments(model, model.side, how) is not None]

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return model.exact and bool(cls.open(model))

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> BadMapping:
        return cls(choices.pick(cls.open(model)))

    def applies(self, model: SWAModel) -> bool:
        return model.exact and self.how in self.open(model)

    @classmethod
    def arguments(cls, model: SWAModel, side: Any, how: str) -> tuple[list[int], list[int]] | None:
        """Full slots and window slots; None where there is nothing to do it with."""
        size, mapping = model.page_size, model.state["mapping"]
        owned = sorted(side.ledger.owned_pages())
        gone = [page * size for page in owned if page not in side.mapped]
        free = [page * size for page in sorted(side.ledger.available_pages())]
        live = [page * size for page in sorted(side.mapped)]
        taken = [mapping[min(side.mapped[slot // size])] // size * size for slot in live]
        listed = model.state["window_free"] + model.state["window_staged"]
        match how:
            case "free slot" | "cleared":
                return (free[:1], taken[:1] or [size]) if free else None
            case "reserved slot":
                return [0], taken[:1] or [size]
            case "no slot":
                return [(model.num_pages + 1) * size], taken[:1] or [size]
            case "free window":
                return (gone[:1], [listed[0] * size]) if gone and listed else None
            case "reserved window":
                return (gone[:1], [0]) if gone else None
            case "no window":
                return (gone[:1], [-size]) if gone else None
            case "twice":
                return (live[:1] * 2, taken[:1] * 2) if live else None
            case "other number":
                return live[:1], []
            case "out of step":  # with no window, which is the larger fault
                return (gone[:1], [-1]) if gone and size > 1 else None
            case _:  # occupied: the window of another page
                return (gone[:1], taken[:1]) if gone and live else None

    def call(self, model: SWAModel, side: Any) -> Call | None:  # type: ignore[override]
        found = self.arguments(model, side, self.how)
        if found is None:
            return None
        slots, windows = found
        if self.how == "cleared":
            return Call("clear_full_to_swa_mapping", {"full_indices": slots})
        if self.how == "other number" and not slots:
            slots = [model.page_size]
        return Call("set_full_to_swa_mapping", {"full_indices": slots, "swa_indices": windows})


# ---- resize, and arguments --------------------


@dataclass(frozen=True)
class BadResize(Misuse):
    """`resize` that would lose something, or make a side larger."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("resize",)
    weight: ClassVar[int] = 6

    how: str

    @classmethod
    def ways(cls, model: SWAModel) -> list[str]:
        found = ["larger", "negative"] + ([] if model.rings else ["larger windows"])
        owned = bool(model.side.ledger.owned_pages())
        return found + ["owned"] * owned + ["in a group"] * model.group

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> BadResize:
        return cls(choices.pick(cls.ways(model)))

    def applies(self, model: SWAModel) -> bool:
        return self.how in self.ways(model)

    def call(self, model: SWAModel, side: Side) -> Call:
        full, windows = model.state["size"], model.state["window_size"]
        match self.how:
            case "larger":
                full += 1
            case "larger windows":
                windows += 1
            case "negative":
                full = -1
        return Call("resize", {"config": pair_config(full, windows)})


class WrongDtype(protocol_misuse.WrongDtype):
    """Floats where ids or lengths belong."""

    @classmethod
    def could_pass(cls, model: Any, how: str) -> bool:
        return _could_pass(model, how)

    @classmethod
    def ways(cls, model: Any) -> list[str]:
        return [how for how in super().ways(model) if how != "alloc" or not model.paged]


class WrongShape(protocol_misuse.WrongShape):
    """A matrix where a list belongs."""

    @classmethod
    def could_pass(cls, model: Any, how: str) -> bool:
        return _could_pass(model, how)


class WrongDevice(protocol_misuse.WrongDevice):
    """A tensor on another device."""

    @classmethod
    def could_pass(cls, model: Any, how: str) -> bool:
        return _could_pass(model, how)


def _could_pass(model: SWAModel, how: str) -> bool:
    """Whether the call would be legal: growth where a page fits, a free of the first page out."""
    if how in GROWING:
        return model.paged and model.available_pages > 0
    owned = model.side.ledger.owned_pages()
    if not owned:
        return False
    return model.rings or (min(owned) in model.side.mapped) == (how not in FULL_WAYS)


@dataclass(frozen=True)
class NegativeRoom(Misuse):
    """Room for fewer than no tokens, on a side or on both."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("evict_to_free_tokens", "reclaim_for_prealloc")

    side: int

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> NegativeRoom:
        return cls(choices.integer(0, 2))

    def applies(self, model: SWAModel) -> bool:
        return 0 <= self.side <= 2

    def call(self, model: SWAModel, side: Side) -> Call:
        if self.side == 2:
            return Call("make_room", {"num_tokens": -1, "sharing": True})
        sizes = {"full_tokens": -1 if self.side else 0, "swa_tokens": self.side - 1}
        return Call("reclaim", sizes)


MISUSE: tuple[type[Command], ...] = (
    NegativeRoom,
    *misuse.SHARED, *misuse.PAGED, *copy_misuse.MISUSE, *growth_misuse.PAGED,
    protocol_misuse.NestedGroup, protocol_misuse.EndWithoutGroup,
    WrongDtype, WrongShape, WrongDevice,
    WindowOutOfRange, WindowReserved, WindowUnissued, FreeWindowAgain, FreeFullOfWindow,
    *GROWTH_MISUSE, BadMapping, BadResize,
)  # fmt: skip
