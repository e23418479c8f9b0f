"""What callers of the sliding-window pair do who have a bug, as commands of the small life.

To its caller each is legal use. Spec: `spec/swa_unified.md` §2.5, §10.2.
"""

from __future__ import annotations

from typing import Any, ClassVar

from properties.commands import Call, Command
from properties.systems.slot_model import Faults
from properties.systems.swa_life import EvictWindow
from properties.systems.swa_model import SWAModel
from properties.systems.swa_sessions import FailAdmission


class EvictFromTheFront(EvictWindow):
    """Windows are evicted from the first position on: nobody knows that some have gone already."""

    breaks: ClassVar[str] = "I23"

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        return super().fits(model, name) and model.gone(name) > 0

    def call(self, model: SWAModel, side: Any) -> Call:
        row = side.rows[self.request]
        return Call("free_swa_segment", {"free_index": row.slots, "start_pos": row.start})


class KeepFailedAdmission(FailAdmission):
    """The last one is short, and nobody gives back what was taken for those before it."""

    breaks: ClassVar[str] = "I31"

    def call(self, model: SWAModel, side: Any) -> Call:
        made = super().call(model, side)
        return made._replace(args={**made.args, "each": made.args["each"][:-1]})

    def settle(self, model: SWAModel, side: Any, value: list[list[int]]) -> Faults:
        kept = [slot for slots in value for slot in slots]
        return [(self.breaks, f"{self.name()}: nobody knows of slots {kept} any more")]


FAULTY: tuple[type[Command], ...] = (EvictFromTheFront, KeepFailedAdmission)
