"""What callers of the rows of hybrid models do who have a bug, as commands of the small life.

To its caller each is legal use. Spec: `spec/pools_states_sizing.md` §4.
"""

from __future__ import annotations

from typing import Any, ClassVar

from properties.commands import Call, Command
from properties.systems.hybrid_rows_commands import Abort, CloseSession
from properties.systems.hybrid_rows_model import HybridModel, HybridSide
from properties.systems.row_model import Faults


class CloseSessionWithoutState(CloseSession):
    """A session is closed: KV and row go back, the state slots don't."""

    breaks: ClassVar[str] = "I31"
    methods: ClassVar[tuple[str, ...]] = ("free",)
    weight: ClassVar[int] = 16

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("free", {"req": self.request})


class AbortWithoutState(Abort):
    """A request leaves the queue, or isn't admitted; nobody thinks of its prefix hit."""

    breaks: ClassVar[str] = "I31"
    methods: ClassVar[tuple[str, ...]] = ("get_mamba_indices",)
    weight: ClassVar[int] = 16

    def call(self, model: HybridModel, side: HybridSide) -> Call:
        return Call("get_mamba_indices", {"req_indices": []})

    def settle(self, model: HybridModel, side: HybridSide, value: Any) -> Faults:
        slots = [slot for slot in side.states[self.request] if slot > 0]
        how = f"request {self.request} is gone, nobody knows of its slots {slots} any more"
        return [(self.breaks, f"{self.name()}: {how}")]


FAULTY: tuple[type[Command], ...] = (CloseSessionWithoutState, AbortWithoutState)
