"""The host tier: slots, mirrors of device pools, transfers and the layer gate.

Follows `spec/interleave_hisparse_host_prefix.md` §4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from impl.host.gate import LayerGate
from impl.host.pool import HostKVPool, HostStatePool
from impl.host.slots import HostSlots
from impl.host.transfers import Backup, Load
from properties.choices import Choices
from properties.subjects.host_tier_reference import HostTierReference
from properties.systems import (
    host_tier_commands,
    host_tier_faulty,
    host_tier_gate,
    host_tier_misuse,
    host_tier_misuse_flight,
    host_tier_misuse_slots,
    host_tier_transfers,
)
from properties.systems.host_tier_model import SITUATIONS, HostModel
from properties.systems.system import Limits, System, allowed

#: what is mirrored: keys and values, one latent row, or states with their siblings
MHA, MLA, STATES = range(3)
# Small, so that pools run full and all content is compared after each command.
RANGES: dict[str, tuple[Any, ...]] = {
    "kind": (MHA, MHA, MLA, STATES),
    "page_size": (1, 2, 3, 4),
    "pages": (1, 2, 3, 4),
    "device_pages": (1, 2, 3, 4),
    "layers": (1, 2, 3),
    "stride": (1, 1, 2),
    "start": (0, 0, 3),
    "width": (1, 2, 3, 4),
    "virtual": (False, False, True),
}
LARGEST = 64
#: the pseudo layer of what belongs to none
NO_LAYER = 2**32 - 1
NARROWEST = 4  # bytes of a state's row


@dataclass(frozen=True, kw_only=True)
class HostTierConfig:
    """A host pool of `pages` beside a device pool of `device_pages`, of `page_size` slots each.

    Rows in `layers` layers, `start` and every `stride`th one from there on; `width` bytes or more.
    Device ids are rows, or `virtual`: rows that change. States lie one to a page.
    """

    kind: int
    page_size: int
    pages: int
    device_pages: int
    layers: int
    stride: int
    start: int
    width: int
    virtual: bool

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> HostTierConfig:
        drawn: dict[str, Any] = {
            name: choices.pick(allowed(limits, name, values)) for name, values in RANGES.items()
        }
        if drawn["kind"] == STATES:
            drawn |= {"page_size": 1, "virtual": False}
        return cls(**drawn)

    @property
    def size(self) -> int:
        return self.pages * self.page_size

    @property
    def device_size(self) -> int:
        return self.device_pages * self.page_size

    @property
    def layer_ids(self) -> tuple[int, ...]:
        return tuple(self.start + self.stride * at for at in range(self.layers))

    @property
    def span(self) -> range:
        """The layers of a load, those without rows included."""
        return range(self.start, self.layer_ids[-1] + 1)

    @property
    def buffers(self) -> list[tuple[str, int, int]]:
        """Name, layer, bytes of a row, in the device pool's order."""
        if self.kind == STATES:
            named = [("conv", NARROWEST * self.width), ("temporal", NARROWEST)]
            rows = [(name, layer, each) for name, each in named for layer in self.layer_ids]
            return [*rows, ("ple_ngram", NO_LAYER, 2 * NARROWEST)]
        named = [("k", self.width), ("v", 2 * self.width)][: 2 - self.kind]
        return [(name, layer, each) for name, each in named for layer in self.layer_ids]

    def problem(self) -> str | None:
        for name, values in RANGES.items():
            most = STATES if name == "kind" else LARGEST
            if not min(values) <= getattr(self, name) <= most:
                return f"{name} must be in {min(values)}..{most}, found {getattr(self, name)}"
        if self.kind == STATES and (self.page_size > 1 or self.virtual):
            return "states lie one to a page, in rows of their own"
        return None

    def smaller(self) -> list[HostTierConfig]:
        found = [
            self._with(name, type(value)(less))
            for name, values in RANGES.items()
            for value in (getattr(self, name),)
            for less in range(min(values), value)
        ]
        return [each for each in found if each.problem() is None]

    def _with(self, name: str, value: Any) -> HostTierConfig:
        changed: dict[str, Any] = {name: value}
        return replace(self, **changed)


HOST_TIER = System(
    name="host_tier",
    config=HostTierConfig,
    commands=(
        *host_tier_commands.LEGAL,
        *host_tier_transfers.LEGAL,
        *host_tier_gate.LEGAL,
        *host_tier_misuse.MISUSE,
        *host_tier_misuse_slots.MISUSE,
        *host_tier_misuse_flight.MISUSE,
    ),
    situations=SITUATIONS,
    reference=HostTierReference,
    model=HostModel,
    interface=HostKVPool,
    siblings=(HostStatePool, HostSlots, LayerGate, Backup, Load),
    faulty=host_tier_faulty.FAULTY,
)
