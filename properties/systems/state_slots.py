"""The state slots: configs, commands, reference (`spec/pools_states_sizing.md` §2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from impl.states.slots import MambaSlotAllocator
from properties.choices import Choices
from properties.subjects.reference import ReferenceSubject
from properties.systems.state_slots_commands import LEGAL, MISUSE
from properties.systems.state_slots_model import SITUATIONS, StateSlotModel
from properties.systems.system import Limits, System, allowed
from reference.states.slots import MambaSlotAllocator as Reference

SIZES = (*range(1, 13), *range(1, 7))  # small, so that pools run full
LARGEST_POOL = 2**16


@dataclass(frozen=True, kw_only=True)
class StateSlotsConfig:
    """A pool of `size` slots."""

    size: int

    @property
    def page_size(self) -> int:
        return 1

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> StateSlotsConfig:
        return cls(size=choices.pick(allowed(limits, "size", SIZES)))

    def problem(self) -> str | None:
        if not 0 <= self.size <= LARGEST_POOL:
            return f"size must be in 0..{LARGEST_POOL}, found {self.size}"
        return None

    def smaller(self) -> list[StateSlotsConfig]:
        return [replace(self, size=n) for n in range(1, self.size)]


class StateSlotsReference(ReferenceSubject):
    """The reference, in the form that pools show which stage what is freed: here nothing is."""

    def observe(self) -> dict[str, Any]:
        return {**super().observe(), "staged": []}


STATE_SLOTS = System(
    name="state_slots",
    config=StateSlotsConfig,
    commands=(*LEGAL, *MISUSE),
    situations=SITUATIONS,
    reference=lambda config: StateSlotsReference(Reference(config.size)),
    model=StateSlotModel,
    interface=MambaSlotAllocator,
    small=lambda scope: [StateSlotsConfig(size=scope.pages)],
)
