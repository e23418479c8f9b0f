"""The request rows: configs, commands, reference (`spec/core.md` §2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from impl import ReqToTokenPool
from properties.choices import Choices
from properties.subjects.reference import RowReference
from properties.systems.row_commands import LEGAL
from properties.systems.row_misuse import MISUSE
from properties.systems.row_model import SITUATIONS, RowModel
from properties.systems.system import Limits, System, allowed
from reference import ReqToTokenPool as Reference

MOST_ROWS, MOST_COLUMNS = 8, 6  # small tables, so that they run full and are compared whole
LARGEST_TABLE = 2**12
# In a scope each entry may be written or not, which doubles the states: rows have two positions
# where they are as few as this, else one.
FEW_ROWS = 2


@dataclass(frozen=True, kw_only=True)
class RowsConfig:
    """A table of `size` rows of `width` positions, row 0 aside."""

    size: int
    width: int

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> RowsConfig:
        return cls(
            size=choices.pick(allowed(limits, "size", tuple(range(1, MOST_ROWS + 1)))),
            width=choices.pick(allowed(limits, "width", tuple(range(1, MOST_COLUMNS + 1)))),
        )

    def problem(self) -> str | None:
        for name, value in (("size", self.size), ("width", self.width)):
            if not 0 <= value <= LARGEST_TABLE:
                return f"{name} must be in 0..{LARGEST_TABLE}, found {value}"
        return None

    def smaller(self) -> list[RowsConfig]:
        found = [replace(self, size=n) for n in range(1, self.size)]
        return found + [replace(self, width=n) for n in range(1, self.width)]


ROWS = System(
    name="rows",
    config=RowsConfig,
    commands=(*LEGAL, *MISUSE),
    situations=SITUATIONS,
    reference=lambda config: RowReference(Reference(config.size, config.width)),
    model=RowModel,
    interface=ReqToTokenPool,
    small=lambda scope: [RowsConfig(size=scope.pages, width=2 if scope.pages <= FEW_ROWS else 1)],
)
