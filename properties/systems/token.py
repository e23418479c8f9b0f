"""The token allocator: configs, commands, reference (`spec/core.md` §3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from impl import TokenToKVPoolAllocator
from properties.choices import Choices
from properties.scope import Scope
from properties.subjects.reference import EchoCache, ReferenceSubject
from properties.systems import copy_misuse, faulty, growth_misuse, misuse, protocol_misuse, slots
from properties.systems.slot_model import SITUATIONS, SlotModel
from properties.systems.system import Limits, System, allowed
from reference import TokenToKVPoolAllocator as Reference

SIZES = (*range(1, 17), *range(1, 7))  # small, so that pools run full
LARGEST_POOL = 2**16


@dataclass(frozen=True, kw_only=True)
class TokenConfig:
    """A pool of `size` slots; a page is a slot."""

    size: int
    need_sort: bool

    @property
    def page_size(self) -> int:
        return 1

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> TokenConfig:
        return cls(
            size=choices.pick(allowed(limits, "size", SIZES)),
            need_sort=choices.pick(allowed(limits, "need_sort", (False, True))),
        )

    def resized(self, size: int) -> Self:
        """The config of a pool of `size` slots."""
        return replace(self, size=size)

    def problem(self) -> str | None:
        if not 0 <= self.size <= LARGEST_POOL:
            return f"size must be in 0..{LARGEST_POOL}, found {self.size}"
        return None

    def smaller(self) -> list[Self]:
        found = [replace(self, size=n) for n in range(1, self.size)]
        return [*found, replace(self, need_sort=False)] if self.need_sort else found


def reference(config: TokenConfig) -> ReferenceSubject:
    """The reference of this config, as a subject."""
    return ReferenceSubject(Reference(config.size, need_sort=config.need_sort, kvcache=EchoCache()))


def small(scope: Scope) -> list[TokenConfig]:
    """The pools of a scope, with and without sorting."""
    return [TokenConfig(size=scope.pages, need_sort=sort) for sort in (False, True)]


TOKEN = System(
    name="token",
    config=TokenConfig,
    commands=(
        *slots.SHARED,
        *misuse.SHARED,
        *copy_misuse.MISUSE,
        *protocol_misuse.SHARED,
        *growth_misuse.TOKEN,
    ),
    # a page of one slot is never half filled
    situations=tuple(s for s in SITUATIONS if s != "half-filled page"),
    reference=reference,
    model=lambda config, target: SlotModel(config, target, paged=False),
    interface=TokenToKVPoolAllocator,
    faulty=faulty.TOKEN,
    small=small,
)
