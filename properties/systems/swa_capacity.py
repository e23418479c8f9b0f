"""What is asked of the sliding-window pair, and what is done to it as a whole.

Room that a prefix cache makes, capacity of both sides, translation, `resize`. Follows
`spec/swa_unified.md` §2.3, §2.4, §2.10; `spec/pools_states_sizing.md` §19.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems import slots
from properties.systems.slot_model import Faults, Side
from properties.systems.swa_model import SWAModel


@dataclass(frozen=True)
class MakeRoom(Command):
    """`evict_to_free_tokens`: the cache is asked for what each side lacks."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("evict_to_free_tokens",)
    weight: ClassVar[int] = 4

    tokens: int
    sharing: bool

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> MakeRoom:
        size, both = model.page_size, model.available_pages
        full = model.side.ledger.num_available_pages()
        if model.scope is not None:
            return cls(choices.pick((both * size, both * size + 1)), True)
        most = (max(both, full) + 1) * size
        tokens = choices.integer(0, most, (both * size + 1, full * size + 1))
        return cls(tokens, not choices.once_in(4))

    def applies(self, model: SWAModel) -> bool:
        return self.tokens >= 0

    def call(self, model: SWAModel, side: Side) -> Call:
        return Call("make_room", {"num_tokens": self.tokens, "sharing": self.sharing})

    def answer_faults(self, model: SWAModel, call: Call, value: Any) -> Faults:
        tokens = self.tokens if self.sharing else 0
        return _asked_faults(model, value, tokens, tokens)


@dataclass(frozen=True)
class Reclaim(Command):
    """`reclaim_for_prealloc`: the cache is asked for windows."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("reclaim_for_prealloc",)
    weight: ClassVar[int] = 3

    tokens: int

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> Reclaim:
        windows = model.available_windows * model.page_size
        if model.scope is not None:
            return cls(windows + 1)
        return cls(choices.integer(0, windows + model.page_size, (windows, windows + 1)))

    def applies(self, model: SWAModel) -> bool:
        return self.tokens >= 0

    def call(self, model: SWAModel, side: Side) -> Call:
        return Call("reclaim", {"full_tokens": self.tokens, "swa_tokens": self.tokens})

    def answer_faults(self, model: SWAModel, call: Call, value: Any) -> Faults:
        return _asked_faults(model, value[:2], 0, self.tokens)


def _asked_faults(model: SWAModel, asked: list[int], full: int, windows: int) -> Faults:
    """I11: each side is asked for what it lacks of so many tokens, no more and no less."""
    side, size = model.side, model.page_size
    short = max(0, full - side.ledger.num_available_pages() * size)
    lacking = 0 if model.rings else max(0, windows - side.available_windows() * size)
    due = [short, lacking] if full or windows else [0, 0]
    if asked != due:
        return [("I11", f"the cache was asked for {asked} (full, windows), {due} are lacking")]
    return []


# ---- questions and the life cycle --------------------


class TranslateWindows(slots._OfRequest):
    """`translate_loc_from_full_to_swa` of a request's slots, and of no location."""

    methods: ClassVar[tuple[str, ...]] = ("translate_loc_from_full_to_swa",)
    method: ClassVar[str] = "translate_loc_from_full_to_swa"

    def call(self, model: Any, side: Any) -> Call:
        return Call(self.method, {"kv_indices": [*side.rows[self.request].slots, -1]})

    def answer_faults(self, model: Any, call: Call, value: Any) -> Faults:
        *_windows, none = value
        return [("I37", f"no location became {none}")] if none != -1 else []


class TranslateForTransfer(TranslateWindows):
    """`translate_swa_indices_for_transfer`: the same."""

    methods: ClassVar[tuple[str, ...]] = ("translate_swa_indices_for_transfer",)
    method: ClassVar[str] = "translate_swa_indices_for_transfer"


@dataclass(frozen=True)
class PagesAvailable(Command):
    """`new_pages_available`: whether both sides have so many pages."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("new_pages_available",)
    weight: ClassVar[int] = 3

    full: int
    windows: int

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> PagesAvailable:
        full, windows = model.side.ledger.num_available_pages(), model.available_windows
        return cls(choices.pick((full, full + 1)), choices.pick((windows, windows + 1)))

    def applies(self, model: SWAModel) -> bool:
        return self.full >= 0 and self.windows >= 0

    def call(self, model: SWAModel, side: Side) -> Call:
        args = {"num_full_pages": self.full, "num_swa_pages": self.windows}
        return Call("new_pages_available", args)

    def answer_faults(self, model: SWAModel, call: Call, value: Any) -> Faults:
        fits = self.full <= model.side.ledger.num_available_pages()
        fits = fits and (model.rings or self.windows <= model.side.available_windows())
        return [] if value == fits else [("I11", f"{self}: {value}, by the requests {fits}")]


class AllFreePages(slots.AllFreePages):
    """`get_all_free_pages`: those of the full side, free, then staged."""

    def answer_faults(self, model: Any, call: Call, value: Any) -> Faults:
        due = model.side.ledger.num_available_pages()
        return [] if len(value) == due else [("I2", f"{len(value)} free pages, {due} are due")]


@dataclass(frozen=True)
class Resize(Command):
    """`resize` of a pair that owns nothing, to sizes no larger."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("resize",)
    weight: ClassVar[int] = 6
    # a pair that owns nothing has no half-filled page and no windows
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("served", "half-filled page"), ("served", "inside a group"), ("served", "windows gone")}
    )

    size: int
    size_swa: int

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        return not model.group and not model.side.ledger.owned_pages()

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> Resize:
        full, windows = model.state["size"], model.state["window_size"]
        if model.scope is not None:
            page = model.page_size
            return cls(
                choices.pick(range(0, full + 1, page)), choices.pick(range(0, windows + 1, page))
            )
        # seldom much smaller: nothing ever makes it larger again
        return cls(
            choices.integer(full // 2, full, (full, full)),
            choices.integer(windows // 2, windows, (windows, windows)),
        )

    def applies(self, model: SWAModel) -> bool:
        window = model.state["window_size"]
        return (
            type(self).enabled(model)
            and 0 <= self.size <= model.state["size"]
            and self.size_swa >= 0
            and (model.rings or self.size_swa <= window)
        )

    def call(self, model: SWAModel, side: Side) -> Call:
        return Call("resize", {"config": pair_config(self.size, self.size_swa)})

    def settle(self, model: SWAModel, side: Any, value: Any) -> Faults:
        side.reset(self.size // side.page_size)
        if not model.rings:
            side.num_windows = self.size_swa // side.page_size
        return []


def pair_config(size: int, size_swa: int) -> SimpleNamespace:
    """What `resize` reads."""
    return SimpleNamespace(full_max_total_num_tokens=size, swa_max_total_num_tokens=size_swa)


CAPACITY: tuple[type[Command], ...] = (
    MakeRoom, Reclaim, TranslateWindows, TranslateForTransfer, PagesAvailable, slots.GroupBegin,
    slots.GroupEnd, slots.Merge, slots.Clear, Resize, AllFreePages, slots.Translate, slots.BackUp,
    slots.Restore, slots.TransferDone,
)  # fmt: skip
