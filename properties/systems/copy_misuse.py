"""Misuse of host copies: of slots that nobody owns, and into one slot twice.

Follows `spec/core.md` §4a and §4b. Each call names an owned page's slots too, where there is one,
so that something could be copied before the fault is met.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.misuse import Misuse
from properties.systems.slot_model import Side, SlotModel


@dataclass(frozen=True)
class _BadCopy(Misuse):
    """Names slots that can't be copied, for `how` says what reason."""

    of_pool: ClassVar[bool] = True
    ways: ClassVar[tuple[str, ...]] = ("beyond", "below", "reserved", "free", "staged", "parked")

    how: str

    @classmethod
    def bad(cls, model: SlotModel, side: Side, how: str) -> list[int]:
        """The slots that make the fault, behind the owned ones; none where it can't be made."""
        size = model.page_size
        match how:
            case "beyond":
                return [(model.num_pages + 1) * size]
            case "below":
                return [-1]
            case "reserved":
                return [size - 1]
            case "twice":
                return cls.owned(model, side)[-1:]
        return [page * size for page in cls.dead(model, side, how)[:1]]

    @classmethod
    def dead(cls, model: SlotModel, side: Side, how: str) -> list[int]:
        """Pages that nobody owns, in the order in which they lie there."""
        if how == "parked":
            return sorted(side.ledger.parked_pages())
        if model.exact:
            return list(model.state[how])
        # which of its dead pages a subject stages isn't known; the reference may have none at all
        return sorted(side.ledger.available_pages()) if how == "free" else []

    @classmethod
    def owned(cls, model: SlotModel, side: Side) -> list[int]:
        """Slots of a page that is out."""
        pages = sorted(side.ledger.owned_pages())[:1]
        return [page * model.page_size + at for page in pages for at in range(model.page_size)]

    @classmethod
    def open(cls, model: SlotModel) -> list[str]:
        """The reasons that there can be in this state."""
        return [how for how in cls.ways if cls.bad(model, model.side, how)]

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Any:
        return cls(choices.pick(cls.open(model)))

    def applies(self, model: SlotModel) -> bool:
        return self.how in self.open(model)

    def slots(self, model: SlotModel, side: Side) -> list[int] | None:
        """All slots of the call; None where this side has nothing to make the fault of."""
        bad = self.bad(model, side, self.how)
        return [*self.owned(model, side), *bad] if bad else None


class BackUpDead(_BadCopy):
    """`get_cpu_copy` of a slot that nobody owns."""

    methods: ClassVar[tuple[str, ...]] = ("get_cpu_copy",)

    def call(self, model: SlotModel, side: Side) -> Call | None:  # type: ignore[override]
        slots = self.slots(model, side)
        return None if slots is None else Call("get_cpu_copy", {"indices": slots})


class RestoreDead(_BadCopy):
    """`load_cpu_copy` into a slot that nobody owns, or into one twice."""

    methods: ClassVar[tuple[str, ...]] = ("load_cpu_copy",)
    ways: ClassVar[tuple[str, ...]] = (*_BadCopy.ways, "twice")

    def call(self, model: SlotModel, side: Side) -> Call | None:  # type: ignore[override]
        slots = self.slots(model, side)
        if slots is None:
            return None
        return Call("load_cpu_copy", {"kv_cache_cpu": list(range(len(slots))), "indices": slots})


MISUSE: tuple[type[Command], ...] = (BackUpDead, RestoreDead)
