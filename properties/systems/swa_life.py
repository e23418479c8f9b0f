"""What engines do with the sliding-window pair over a request's life.

Windows fall behind and are evicted, a prefix cache adopts them from one request for another, rows
are released whole. Follows `spec/swa_unified.md` §2.7, §10.2, §10.3. Where one command is several
calls, the adapters make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.slot_model import Faults
from properties.systems.swa_model import SWAModel

MOST_WINDOW = 9


@dataclass(frozen=True)
class EvictWindow(Command):
    """Frees the windows of a request that have fallen behind, up to `window_frontier`."""

    methods: ClassVar[tuple[str, ...]] = ("free_swa_segment",)
    weight: ClassVar[int] = 20

    request: int
    window: int
    bigram: bool

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        """Whether all windows that are gone lie in front of all that are there."""
        live = model.side.live(model.side.rows[name].slots)
        return not model.rings and live == sorted(live) and live[-1:] == [True]

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return any(cls.fits(model, name) for name in model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> EvictWindow:
        names = [name for name in model.side.rows if cls.fits(model, name)]
        size = model.page_size
        if model.scope is not None:
            return cls(choices.pick(names), choices.pick((1, size + 1)), choices.boolean())
        window = choices.integer(1, MOST_WINDOW, (1, size, size + 1))
        return cls(choices.pick(names), window, choices.boolean())

    def applies(self, model: SWAModel) -> bool:
        return (
            self.request in model.side.rows
            and self.fits(model, self.request)
            and 0 < self.window <= model.page_size + MOST_WINDOW
        )

    def call(self, model: SWAModel, side: Any) -> Call:
        row, gone = side.rows[self.request], self.gone(side)
        return Call("evict_window", {
            "free_index": row.slots[gone:], "start_pos": row.start + gone, "length": row.length,
            "window": self.window, "bigram": self.bigram,
        })  # fmt: skip

    def gone(self, side: Any) -> int:
        """How many slots at the front have no windows any more."""
        live = side.live(side.rows[self.request].slots)
        at: int = live.index(True) * side.page_size
        return at

    def settle(self, model: SWAModel, side: Any, value: int) -> Faults:
        row = side.rows[self.request]
        first, last = self.gone(side), value - row.start
        side.let_go(side.pages(row.slots[first : max(first, last)]), model.group)
        return self.frontier_faults(value, row.length, side.page_size)

    def frontier_faults(self, frontier: int, length: int, size: int) -> Faults:
        """I24: at a page border, a window and a page behind what a prefix cache takes."""
        border = max(0, length - self.bigram) // size * size
        if frontier % size or frontier < 0:
            return [("I24", f"the frontier {frontier} isn't at a page border")]
        if frontier and border - frontier < max(self.window, size):
            how = f"{border - frontier} tokens are kept of a window of {self.window}"
            return [("I24", f"{how}: frontier {frontier}, border {border}")]
        return []


@dataclass(frozen=True)
class ReleaseRow(Command):
    """A request ends, or is retracted: what has no windows goes back by itself, then the rest."""

    methods: ClassVar[tuple[str, ...]] = (
        "free_full_segments", "free_segments", "free_group_begin", "free_group_end",
    )  # fmt: skip
    weight: ClassVar[int] = 20

    request: int

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        live = model.side.live(model.side.rows[name].slots)
        return model.rings or live == sorted(live)

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return any(cls.fits(model, name) for name in model.side.rows)

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> ReleaseRow:
        return cls(choices.pick([name for name in model.side.rows if cls.fits(model, name)]))

    def applies(self, model: SWAModel) -> bool:
        return self.request in model.side.rows and self.fits(model, self.request)

    def call(self, model: SWAModel, side: Any) -> Call:
        row = side.rows[self.request]
        gone = 0 if model.rings else sum(not live for live in side.live(row.slots))
        at = min(gone * side.page_size, len(row.slots))
        return Call("release_row", {
            "gone": row.slots[:at], "kept": row.slots[at:], "start_pos": row.start,
            "grouped": not model.group,
        })  # fmt: skip

    def settle(self, model: SWAModel, side: Any, value: Any) -> Faults:
        side.let_go(side.pages(side.rows[self.request].slots), model.group)
        faults: Faults = side.give(self.request, 0, model.group, False)
        return faults


@dataclass(frozen=True)
class Adopt(Command):
    """A request's first window goes to another that had lost its own; the slots go back."""

    methods: ClassVar[tuple[str, ...]] = (
        "translate_loc_from_full_to_swa", "clear_full_to_swa_mapping", "set_full_to_swa_mapping",
        "free_full",
    )  # fmt: skip
    weight: ClassVar[int] = 40  # few states allow it

    keeper: int
    incoming: int

    @classmethod
    def pairs(cls, model: SWAModel) -> list[tuple[int, int]]:
        """(keeper, incoming): as many tokens in a page without window as in one with it."""
        if model.rings:
            return []
        names = list(model.side.rows)
        return [(a, b) for a in names for b in names if a != b and cls.fits(model.side, a, b)]

    @classmethod
    def fits(cls, side: Any, keeper: int, incoming: int) -> bool:
        kept, given = cls.pages(side, keeper), cls.pages(side, incoming)
        if side.live(kept[:1]) != [False] or side.live(given[:1]) != [True]:
            return False
        mapped = side.mapped[given[0] // side.page_size]
        return len(kept) <= len(given) and mapped.issuperset(given[: len(kept)])

    @staticmethod
    def pages(side: Any, name: int) -> list[int]:
        """The slots of a request's first page."""
        found: list[int] = side.rows[name].slots[: side.page_size]
        return found

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return bool(cls.pairs(model))

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> Adopt:
        return cls(*choices.pick(cls.pairs(model)))

    def applies(self, model: SWAModel) -> bool:
        return (self.keeper, self.incoming) in self.pairs(model)

    def call(self, model: SWAModel, side: Any) -> Call:
        kept, given = self.pages(side, self.keeper), self.pages(side, self.incoming)
        first = given[0] // side.page_size * side.page_size
        return Call("adopt", {
            "kept": kept, "given": given[: len(kept)], "freed": given,
            "cleared": list(range(first, first + side.page_size)),
        })  # fmt: skip

    def settle(self, model: SWAModel, side: Any, value: Any) -> Faults:
        kept, given = self.pages(side, self.keeper), self.pages(side, self.incoming)
        del side.mapped[given[0] // side.page_size]
        side.map(kept)
        one = 0 if len(side.rows[self.incoming].slots) == len(given) else 1
        faults: Faults = side.give(self.incoming, one, model.group, True)
        return faults


LIFE: tuple[type[Command], ...] = (EvictWindow, ReleaseRow, Adopt)
