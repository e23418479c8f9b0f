"""What the harness knows of the state pools: who has which slot, what waits on the host.

Follows `spec/pools_states_sizing.md` §3 and §5. The pools hand nothing out: slots are the
harness's, from the head of a list and back to its tail, as their allocator does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from properties.commands import Call, Command
from properties.scope import Scope

Faults = list[tuple[str, str]]
SITUATIONS = ("all slots taken", "with siblings", "a slot was another's")
#: tags are of 1..TAGS, which bfloat16 holds exactly
TAGS = 251
SIBLINGS = ("short_conv", "ngram")


def tags(count: int, request: int, step: int, layer: int, part: int) -> tuple[int, ...]:
    """Values that tell whose they are, from which step, and where they belong."""
    first = request * 37 + step * 101 + layer * 5 + part * 17
    return tuple((first + at) % TAGS + 1 for at in range(count))


class StateSide:
    """The requests of one side: their slots, and payloads on the host, as plain values."""

    def __init__(self, size: int) -> None:
        self.free = list(range(1, size + 1))
        self.slots: dict[int, int] = {}
        self.parked: dict[int, Any] = {}
        self.saved: dict[str, Any] = {}
        self.used: set[int] = set()

    def take(self, name: int) -> None:
        self.slots[name] = self.free.pop(0)
        self.used.add(self.slots[name])

    def give(self, name: int) -> None:
        self.free.append(self.slots.pop(name))


class StateModel:
    """The config, the requests, and the reference that says what every slot holds."""

    #: what an attribute holds that is replaced as a whole, never changed: see `properties.memento`
    replaced: ClassVar[tuple[str, ...]] = ("config", "state")
    #: the pools have no groups
    group: ClassVar[bool] = False
    #: which invariant a difference in one part of what is shown is about, on the exact level
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

    def new_side(self) -> StateSide:
        return StateSide(self.config.size)

    @property
    def names(self) -> list[int]:
        return list(self.side.slots)

    def fresh(self, names: Sequence[int]) -> bool:
        """Whether these can be the names of new requests, for which there are slots."""
        return len(set(names)) == len(names) <= len(self.side.free) and all(
            name >= self.next_name for name in names
        )

    def new_names(self, count: int) -> tuple[int, ...]:
        return tuple(range(self.next_name, self.next_name + count))

    def used(self, *names: int) -> None:
        self.next_name = max([self.next_name, *(name + 1 for name in names)])

    def has(self, sibling: str) -> bool:
        return bool(getattr(self.config, sibling))

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        """Which of the named situations hold before a call."""
        found: tuple[str, ...] = ()
        if not self.side.free:
            found += ("all slots taken",)
        if any(map(self.has, SIBLINGS)):
            found += ("with siblings",)
        if self.side.used & set(self.side.free):
            found += ("a slot was another's",)
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
        after: dict[str, Any], side: StateSide,
    ) -> Faults:  # fmt: skip
        return []

    def placement_faults(self, command: Command, value: Any, side: StateSide) -> Faults:
        return []

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: StateSide
    ) -> Faults:
        """Content against the reference's, which has executed the call; named by what it does."""
        wanted = self.reference.observe()
        for key, value in after.items():
            if value != wanted[key]:
                number = "I56" if key.endswith("reserved") else getattr(command, "writes", "I57")
                return [
                    (number, f"after {command.name()}: {first_change(key, wanted[key], value)}")
                ]
        return []


def first_change(what: str, due: Any, found: Any) -> str:
    """Where two nested values differ first."""
    if isinstance(due, dict) and isinstance(found, dict) and due.keys() == found.keys():
        for key, value in due.items():
            if value != found[key]:
                return first_change(f"{what}[{key}]", value, found[key])
    if isinstance(due, list) and isinstance(found, list) and len(due) == len(found):
        for at, value in enumerate(due):
            if value != found[at] and isinstance(value, (list, dict)):
                return first_change(f"{what}[{at}]", value, found[at])
    return f"{what} is {found}, {due} is due"
