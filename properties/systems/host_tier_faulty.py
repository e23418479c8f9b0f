"""What callers of the host tier do who have a bug, as commands; to its caller each is legal use.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.4.
"""

from __future__ import annotations

from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.host_tier_commands import Free
from properties.systems.host_tier_model import Faults, HostModel, HostSide


class ReleaseTwice(Free):
    """One function frees what a prefetch didn't fill, the loop that called it frees it again."""

    breaks: ClassVar[str] = "I5"
    weight: ClassVar[int] = 16

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return bool(model.idle())

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> ReleaseTwice:
        return cls((choices.pick(model.idle()),), False)

    def applies(self, model: HostModel) -> bool:
        return bool(self.requests) and super().applies(model)

    def call(self, model: HostModel, side: HostSide) -> Call:
        slots = [slot for name in self.requests for slot in side.host[name]]
        return Call("free", {"free_index": slots * 2})

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        return [(self.breaks, f"{self.name()}: slots of requests {self.requests} go twice")]


FAULTY: tuple[type[Command], ...] = (ReleaseTwice,)
