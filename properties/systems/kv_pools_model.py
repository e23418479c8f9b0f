"""What a run of the KV pools knows: requests, their slots, and what every slot must hold.

Slots belong to requests of the harness's own: a pool doesn't know which are whose. Content is
compared with the reference's after every command. Spec: `spec/pools_states_sizing.md` §7 to §13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from properties.commands import Call, Command
from properties.scope import Scope
from properties.systems.state_pools_model import Faults, first_change
from reference.storage.floats import encode

SITUATIONS = ("all slots taken", "a slot was another's", "converted", "padded lanes")
#: types that values come in; a pool's own is one more
SOURCES = ("float32", "bfloat16", "float16")
#: numbers at which types differ: at their largest ones, between two, at their smallest
EDGES = (
    0.0, -0.0, 0.1, -1.5, 240.0, 248.0, 448.0, -449.0, 464.0, 480.0, 57344.0, -61440.0, 65504.0,
    2.0**-6, 2.0**-9, -(2.0**-10), 3 * 2.0**-11, 2.0**-16, 3 * 2.0**-17, 1e30, 1e-30,
)  # fmt: skip
#: those that are in the range of every type
TAME = tuple(each for each in EDGES if abs(each) <= 240)
ENDLESS = (float("inf"), float("-inf"), float("nan"))
#: what is divided by, beside nothing: a power of two is exact, the others aren't
SCALES = (None, 0.5, 0.37, 3.0)
TAGS, MOST_TAME = 251, 199


def numbers(count: int, seed: int, *, finite: bool) -> list[float]:
    """Numbers that tell where they belong, among them some of the edges."""
    edges = TAME if finite else EDGES + ENDLESS
    most = MOST_TAME if finite else TAGS
    found = []
    for at in range(count):
        mixed = seed * 37 + at * 11
        found.append(edges[mixed // 3 % len(edges)] if mixed % 3 == 0 else mixed % most + 1.0)
    return found


def rows(
    count: int, width: int, dtype: str, seed: int, *, finite: bool = False
) -> tuple[tuple[int, ...], ...]:
    """`count` rows of `width` codes of a type, or of bytes."""
    if dtype == "uint8":
        return tuple(tuple((seed * 37 + i * 53 + j * 7) % 256 for j in range(width))
                     for i in range(count))  # fmt: skip
    return tuple(
        tuple(encode(number, dtype) for number in numbers(width, seed + 5 * i, finite=finite))
        for i in range(count)
    )


class KVSide:
    """The requests of one side: their slots, and copies on the host."""

    def __init__(self, first: int, size: int) -> None:
        self.free = list(range(first, first + size))
        self.slots: dict[int, list[int]] = {}
        self.parked: dict[int, tuple[int, Any]] = {}
        self.used: set[int] = set()

    def take(self, name: int, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
        self.slots.setdefault(name, []).extend(taken)
        self.used.update(taken)
        return taken

    def give(self, name: int) -> None:
        self.free += self.slots.pop(name)


class KVModel:
    """The config, the requests, and the reference that says what every slot holds."""

    #: what an attribute holds that is replaced as a whole, never changed: see `properties.memento`
    replaced: ClassVar[tuple[str, ...]] = ("config", "state")
    #: the pools have no groups
    group: ClassVar[bool] = False
    difference: ClassVar[dict[str, str]] = {}

    def __init__(self, config: Any, reference: Any) -> None:
        self.config = config
        self.reference = reference
        self.side = self.new_side()
        self.next_name = 0
        self.calls: frozenset[str] = frozenset()
        self.exact = True
        self.scope: Scope | None = None
        self.state: dict[str, Any] = reference.observe()

    def new_side(self) -> KVSide:
        return KVSide(self.config.page_size, self.config.size)

    @property
    def names(self) -> list[int]:
        return list(self.side.slots)

    def used(self, name: int) -> None:
        self.next_name = max(self.next_name, name + 1)

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        """Which of the named situations hold before a call."""
        found: tuple[str, ...] = ()
        if not self.side.free:
            found += ("all slots taken",)
        if self.side.used & set(self.side.free):
            found += ("a slot was another's",)
        if self.config.dtype not in SOURCES:
            found += ("converted",)
        if self.config.page_size > 1:
            found += ("padded lanes",)
        return found

    # ---- what must hold ----

    def change_faults(
        self, call: Call, before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any]
    ) -> Faults:
        """I9: after a refusal every byte is as before."""
        for key, value in before.items():
            if after[key] != value:
                return [("I9", f"{call.method} failed, yet {first_change(key, value, after[key])}")]
        return []

    def unserved(self, command: Command, call: Call, outcome: str) -> str:
        """The invariant that a call breaks which came to something else than the result due."""
        return "I11"

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: KVSide,
    ) -> Faults:  # fmt: skip
        return []

    def placement_faults(self, command: Command, value: Any, side: KVSide) -> Faults:
        return []

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: KVSide
    ) -> Faults:
        """Content against the reference's, which has executed the call; named by what it does."""
        wanted = self.reference.observe()
        for key, value in after.items():
            if value != wanted[key]:
                number = "I56" if key == "reserved" else getattr(command, "writes", "I57")
                found = first_change(key, wanted[key], value)
                return [(number, f"after {command.name()}: {found}")]
        return []


def window_map(config: Any, variant: int) -> list[int]:
    """Which window slot each full slot has: none, those of odd pages, or all."""
    end = config.size + config.page_size
    chosen = [slot for slot in range(config.page_size, end)
              if variant == 2 or (variant == 1 and slot // config.page_size % 2)]  # fmt: skip
    found = [0] * (end + 1)
    for at, slot in enumerate(chosen):
        found[slot] = config.page_size + at
    found[-1] = -1
    return found


def targets(mapping: Sequence[int], slots: Sequence[int]) -> list[int]:
    """The window slots of full slots; padding for padding."""
    return [mapping[slot] if slot >= 0 else slot for slot in slots]
