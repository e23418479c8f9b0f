"""A paged allocator and its row table: configs, commands, reference (`spec/core.md` §5a).

What needs no table is the paged system's business; here it is what happens in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from impl import PagedTokenToKVPoolAllocator, ReqToTokenPool
from properties.choices import Choices
from properties.subjects.reference import EchoCache, PagedRowsReference
from properties.systems import copy_misuse, growth, releases, slots
from properties.systems.paged import PagedConfig
from properties.systems.paged_rows_entries import ENTRIES
from properties.systems.paged_rows_faulty import FAULTY
from properties.systems.paged_rows_growth import GROWTH
from properties.systems.paged_rows_lines import LINES
from properties.systems.paged_rows_misuse import MISUSE
from properties.systems.paged_rows_model import SITUATIONS, LineModel
from properties.systems.paged_rows_release import RELEASE
from properties.systems.paged_rows_segments import SEGMENTS
from properties.systems.system import Limits, System, allowed
from reference import PagedTokenToKVPoolAllocator as Reference
from reference import ReqToTokenPool as ReferencePool

PAGE_SIZES = (1, 2, 3, 4, 3, 4, 2, 16)
# Pools are small so that they run full, and have at most as many pages as a few rows can hold.
PAGES = (1, 2, 3, 4, 5, 6, 8, 12, 2, 3, 4, 6)
# Some rows are as wide as the whole pool, in others a request is soon at the end.
ROWS, WIDTHS = (1, 2, 3, 4, 6), (5, 9, 13, 24, 33)
LARGEST_TABLE = 2**12


@dataclass(frozen=True, kw_only=True)
class PagedRowsConfig(PagedConfig):
    """A pool as the paged system has it, and `rows` rows of `width` positions."""

    rows: int
    width: int

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> Self:
        page_size = choices.pick(allowed(limits, "page_size", PAGE_SIZES))
        spares = (0, page_size - 1)
        return cls(
            page_size=page_size,
            num_pages=choices.pick(allowed(limits, "num_pages", PAGES)),
            spare=choices.pick(allowed(limits, "spare", spares)),
            need_sort=choices.pick(allowed(limits, "need_sort", (False, True))),
            rows=choices.pick(allowed(limits, "rows", ROWS)),
            width=choices.pick(allowed(limits, "width", WIDTHS)),
        )

    def problem(self) -> str | None:
        for name, value in (("rows", self.rows), ("width", self.width)):
            if not 1 <= value <= LARGEST_TABLE:
                return f"{name} must be in 1..{LARGEST_TABLE}, found {value}"
        return super().problem()

    def smaller(self) -> list[Self]:
        found = super().smaller()
        found += [replace(self, rows=n) for n in range(1, self.rows)]
        found += [replace(self, width=n) for n in range(1, self.width)]
        return found


def reference(config: PagedRowsConfig) -> PagedRowsReference:
    """The reference of this config, as a subject: the allocator, the table, and another table."""
    return PagedRowsReference(
        Reference(config.size, config.page_size, need_sort=config.need_sort, kvcache=EchoCache()),
        ReferencePool(config.rows, config.width),
        ReferencePool(config.rows, config.width),
    )


# ---- what goes on beside the rows --------------------
# Commands of the paged system, about requests without rows: they make pages free, staged and
# parked. Seldom, so that the rows get most of the pool.


class Alloc(slots.Alloc):
    """A new request without a row takes whole pages."""

    weight = 24


class Extend(growth.Extend):
    """Requests without rows grow."""

    weight = 24


class Free(releases.Free):
    """Slot frees of requests without rows."""

    weight = 40


class Clear(slots.Clear):
    """`clear`: lines keep their rows, and the allocator forgets the table."""

    weight = 6


BESIDE = (
    Alloc, Extend, growth.Decode, Free, releases.FreePageIds, slots.GroupBegin, slots.GroupEnd,
    slots.Merge, Clear, slots.Resize, slots.BackUp, slots.Restore, *copy_misuse.MISUSE,
)  # fmt: skip

PAGED_ROWS = System(
    name="paged_rows",
    config=PagedRowsConfig,
    commands=(*LINES, *GROWTH, *RELEASE, *BESIDE, *MISUSE, *ENTRIES, *SEGMENTS),
    situations=SITUATIONS,
    reference=reference,
    model=LineModel,
    interface=PagedTokenToKVPoolAllocator,
    beside=(ReqToTokenPool,),
    faulty=FAULTY,
)
