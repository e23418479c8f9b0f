"""The paged allocator: configs, commands, reference (`spec/core.md` §4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from impl import PagedTokenToKVPoolAllocator
from properties.choices import Choices
from properties.scope import Scope
from properties.subjects.reference import EchoCache, ReferenceSubject
from properties.systems import (
    copy_misuse,
    faulty,
    growth,
    growth_misuse,
    misuse,
    protocol_misuse,
    slots,
)
from properties.systems.slot_model import SITUATIONS, SlotModel
from properties.systems.system import Limits, System, allowed
from reference import PagedTokenToKVPoolAllocator as Reference

# 1, powers of two and not, small ones often: a boundary is then never far. 64 is the largest that
# engines use much; its steps cost ten times as much, so it is rare.
PAGE_SIZES = (1, 2, 3, 4, 1, 2, 3, 4, 3, 4, 16, 16, 64)
# Pools are small so that they run full; the smallest ones twice as often, since there everything
# is staged, tight or one short all the time.
PAGES = (*range(1, 17), *range(1, 7))
LARGEST_PAGE, LARGEST_POOL = 2**12, 2**16


@dataclass(frozen=True, kw_only=True)
class PagedConfig:
    """A pool of `num_pages` pages and `spare` slots that make no page."""

    page_size: int
    num_pages: int
    spare: int
    need_sort: bool

    @property
    def size(self) -> int:
        """Slots, as the constructor wants them."""
        return self.num_pages * self.page_size + self.spare

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> PagedConfig:
        page_size = choices.pick(allowed(limits, "page_size", PAGE_SIZES))
        pages = allowed(limits, "num_pages", PAGES)
        spares = (0, 0, page_size - 1)
        return cls(
            page_size=page_size,
            num_pages=choices.pick(pages),
            spare=choices.pick(allowed(limits, "spare", spares)),
            need_sort=choices.pick(allowed(limits, "need_sort", (False, True))),
        )

    def resized(self, size: int) -> Self:
        """The config of a pool of `size` slots."""
        num_pages, spare = divmod(size, self.page_size)
        return replace(self, num_pages=num_pages, spare=spare)

    def problem(self) -> str | None:
        if not 1 <= self.page_size <= LARGEST_PAGE:
            return f"page_size must be in 1..{LARGEST_PAGE}, found {self.page_size}"
        if not 0 <= self.num_pages <= LARGEST_POOL:
            return f"num_pages must be in 0..{LARGEST_POOL}, found {self.num_pages}"
        if not 0 <= self.spare < self.page_size:
            return f"spare must be in 0..page_size - 1, found {self.spare}"
        return None

    def smaller(self) -> list[Self]:
        found = [replace(self, num_pages=n) for n in range(1, self.num_pages)]
        found += [
            replace(self, page_size=n, spare=min(self.spare, n - 1))
            for n in range(1, min(self.page_size, 5))
        ]
        if self.spare:
            found.append(replace(self, spare=0))
        if self.need_sort:
            found.append(replace(self, need_sort=False))
        return found


def reference(config: PagedConfig) -> ReferenceSubject:
    """The reference of this config, as a subject."""
    return ReferenceSubject(
        Reference(config.size, config.page_size, need_sort=config.need_sort, kvcache=EchoCache())
    )


def small(scope: Scope) -> list[PagedConfig]:
    """The pools of a scope: whole pages, with and without sorting."""
    size = {"page_size": scope.page_size, "num_pages": scope.pages, "spare": 0}
    return [PagedConfig(**size, need_sort=sort) for sort in (False, True)]


PAGED = System(
    name="paged",
    config=PagedConfig,
    commands=(
        *growth.GROWTH,
        *slots.SHARED,
        *misuse.SHARED,
        *copy_misuse.MISUSE,
        *protocol_misuse.SHARED,
        *misuse.PAGED,
        *growth_misuse.PAGED,
    ),
    situations=SITUATIONS,
    reference=reference,
    model=lambda config, target: SlotModel(config, target, paged=True),
    interface=PagedTokenToKVPoolAllocator,
    faulty=faulty.PAGED,
    small=small,
)
