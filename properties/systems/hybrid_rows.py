"""The rows of hybrid models: configs, commands, reference (`spec/pools_states_sizing.md` §4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from impl.hybrid_rows import HybridReqToTokenPool
from impl.rows import ReqToTokenPool
from impl.states.slots import MambaSlotAllocator
from properties.choices import Choices
from properties.scope import Scope
from properties.subjects.hybrid_reference import HybridReference
from properties.systems.hybrid_rows_commands import LIFE
from properties.systems.hybrid_rows_faulty import FAULTY
from properties.systems.hybrid_rows_misuse import MISUSE, ROWS
from properties.systems.hybrid_rows_model import SITUATIONS, HybridModel
from properties.systems.hybrid_rows_tracking import TRACKING
from properties.systems.system import Limits, System, allowed

MOST_ROWS = 6  # small pools, so that they run full
SLOTS = (*range(1, 13), *range(3, 10))
LARGEST = 2**12
#: how a request tracks its state: not at all, in one place, in two, in one and lazily a second
TRACKS = ((0, False), (1, False), (2, False), (2, True), (2, True))
#: which siblings there are: (short conv, n-gram)
SIBLINGS = ((False, False), (True, False), (False, True))


@dataclass(frozen=True, kw_only=True)
class HybridRowsConfig:
    """`size` rows, `mamba_size` state slots, track buffers of so many `places`.

    `short_conv`, `ngram`: which siblings the pool of the recurrent states has.
    """

    size: int
    mamba_size: int
    places: int
    lazy: bool
    short_conv: bool
    ngram: bool

    @property
    def width(self) -> int:
        """Columns of the row table, which is a matter of plain rows."""
        return 1

    @property
    def options(self) -> dict[str, Any]:
        """The same for the constructors of both houses."""
        return {
            "mamba_size": self.mamba_size,
            "enable_mamba_extra_buffer": self.places > 0,
            "enable_mamba_extra_buffer_lazy": self.lazy,
            "enable_overlap_schedule": self.places != 1,
        }

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> HybridRowsConfig:
        places, lazy = choices.pick(
            [
                (places, lazy)
                for places, lazy in TRACKS
                if places in allowed(limits, "places", (0, 1, 2))
                and lazy in allowed(limits, "lazy", (False, True))
            ]
        )
        short_conv, ngram = choices.pick(
            [
                (short_conv, ngram)
                for short_conv, ngram in SIBLINGS
                if short_conv in allowed(limits, "short_conv", (False, True))
                and ngram in allowed(limits, "ngram", (False, True))
            ]
        )
        return cls(
            size=choices.pick(allowed(limits, "size", tuple(range(1, MOST_ROWS + 1)))),
            mamba_size=choices.pick(allowed(limits, "mamba_size", SLOTS)),
            places=places,
            lazy=lazy,
            short_conv=short_conv,
            ngram=ngram,
        )

    def problem(self) -> str | None:
        for name, value in (("size", self.size), ("mamba_size", self.mamba_size)):
            if not 0 <= value <= LARGEST:
                return f"{name} must be in 0..{LARGEST}, found {value}"
        if (self.places, self.lazy) not in TRACKS:
            return f"there are no {self.places} places, lazy {self.lazy}"
        return None

    def smaller(self) -> list[HybridRowsConfig]:
        found = [replace(self, size=n) for n in range(1, self.size)]
        found += [replace(self, mamba_size=n) for n in range(1, self.mamba_size)]
        if self.short_conv or self.ngram:
            found.append(replace(self, short_conv=False, ngram=False))
        fewer = dict.fromkeys(TRACKS[: TRACKS.index((self.places, self.lazy))])
        return [*found, *(replace(self, places=places, lazy=lazy) for places, lazy in fewer)]


def small(scope: Scope) -> list[HybridRowsConfig]:
    """The pools of a scope: `pages` slots, a row for each request."""
    sizes = {"size": scope.requests, "mamba_size": scope.pages}
    return [
        HybridRowsConfig(**sizes, places=2, lazy=lazy, short_conv=not lazy, ngram=lazy)
        for lazy in (False, True)
    ]


HYBRID_ROWS = System(
    name="hybrid_rows",
    config=HybridRowsConfig,
    commands=(*LIFE, *TRACKING, *ROWS, *MISUSE),
    situations=SITUATIONS,
    reference=HybridReference,
    model=HybridModel,
    interface=HybridReqToTokenPool,
    beside=(MambaSlotAllocator, ReqToTokenPool),
    faulty=FAULTY,
    small=small,
)
