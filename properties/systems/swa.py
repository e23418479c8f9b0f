"""The sliding-window pair: configs, commands, reference (`spec/swa_unified.md` §2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from impl import SWATokenToKVPoolAllocator
from properties.choices import Choices
from properties.scope import Scope
from properties.subjects.swa import SWAReference
from properties.systems.paged import LARGEST_PAGE, LARGEST_POOL
from properties.systems.swa_capacity import CAPACITY
from properties.systems.swa_faulty import FAULTY
from properties.systems.swa_growth import GROWTH
from properties.systems.swa_life import LIFE
from properties.systems.swa_misuse import MISUSE
from properties.systems.swa_model import SITUATIONS, SWAModel
from properties.systems.swa_releases import RELEASES
from properties.systems.swa_sessions import SESSIONS
from properties.systems.system import Limits, System, allowed

# Large pages are the single allocator's business: here both sides have to run full soon.
PAGE_SIZES = (1, 2, 3, 4, 1, 2, 3, 4, 3, 4, 16)
PAGES = (*range(1, 13), *range(1, 7))
# Fewer windows than pages, as engines have; as many, and more, now and then.
WINDOWS = (*range(1, 7), *range(1, 7), 8, 12, 16)
# Rings make a pair of one side: seldom, and then of one page or two.
RINGS = (0,) * 11 + (1,)


@dataclass(frozen=True, kw_only=True)
class SWAConfig:
    """`num_pages` full and `num_windows` window pages, and `spare` slots that make none.

    `ring`: tokens of a request's ring, which is there instead of window pages; 0 for none.
    """

    page_size: int
    num_pages: int
    num_windows: int
    spare: int
    need_sort: bool
    ring: int

    @property
    def size(self) -> int:
        """Full slots, as the constructor wants them."""
        return self.num_pages * self.page_size + self.spare

    @property
    def size_swa(self) -> int:
        """Window slots."""
        return self.num_windows * self.page_size + self.spare

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> SWAConfig:
        page_size = choices.pick(allowed(limits, "page_size", PAGE_SIZES))
        ring = choices.pick(allowed(limits, "ring", RINGS))
        return cls(
            page_size=page_size,
            num_pages=choices.pick(allowed(limits, "num_pages", PAGES)),
            num_windows=choices.pick(allowed(limits, "num_windows", WINDOWS)),
            spare=choices.pick(allowed(limits, "spare", (0, 0, page_size - 1))),
            need_sort=choices.pick(allowed(limits, "need_sort", (False, True))),
            ring=ring * choices.integer(1, 2 * page_size) if page_size > 1 else 0,
        )

    def problem(self) -> str | None:
        if not 1 <= self.page_size <= LARGEST_PAGE:
            return f"page_size must be in 1..{LARGEST_PAGE}, found {self.page_size}"
        for name in ("num_pages", "num_windows"):
            if not 0 <= getattr(self, name) <= LARGEST_POOL:
                return f"{name} must be in 0..{LARGEST_POOL}, found {getattr(self, name)}"
        if not 0 <= self.spare < self.page_size:
            return f"spare must be in 0..page_size - 1, found {self.spare}"
        if self.ring < 0 or (self.ring and self.page_size == 1):
            return f"ring must be 0, or above it with pages, found {self.ring}"
        return None

    def smaller(self) -> list[Self]:
        found = [replace(self, num_pages=n) for n in range(1, self.num_pages)]
        found += [replace(self, num_windows=n) for n in range(1, self.num_windows)]
        least = 2 if self.ring else 1
        found += [
            replace(self, page_size=n, spare=min(self.spare, n - 1))
            for n in range(least, min(self.page_size, 5))
        ]
        if self.spare:
            found.append(replace(self, spare=0))
        if self.need_sort:
            found.append(replace(self, need_sort=False))
        if self.ring:
            found.append(replace(self, ring=0))
        return found


def small(scope: Scope) -> list[SWAConfig]:
    """The pairs of a scope: one window page fewer than pages, with and without sorting."""
    size = {"page_size": scope.page_size, "num_pages": scope.pages, "spare": 0, "ring": 0}
    windows = max(1, scope.pages - 1)
    return [SWAConfig(**size, num_windows=windows, need_sort=sort) for sort in (False, True)]


SWA = System(
    name="swa",
    config=SWAConfig,
    commands=(*GROWTH, *RELEASES, *LIFE, *CAPACITY, *SESSIONS, *MISUSE),
    situations=SITUATIONS,
    reference=SWAReference.of,
    model=SWAModel,
    interface=SWATokenToKVPoolAllocator,
    small=small,
    faulty=FAULTY,
)
