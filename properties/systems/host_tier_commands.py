"""The commands of the host tier about slots: who has them, and what is told of them.

Follows `spec/interleave_hisparse_host_prefix.md` §4.3, §4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.systems.host_tier_model import IN_FLIGHT, Faults, HostModel, HostSide

MOST_REQUESTS = 5


@dataclass(frozen=True)
class Alloc(Command):
    """A request gets host slots."""

    methods: ClassVar[tuple[str, ...]] = ("alloc",)
    weight: ClassVar[int] = 16
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    request: int
    pages: int

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return len(model.side.host) < MOST_REQUESTS

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Alloc:
        free = model.free_pages
        return cls(model.next_name, choices.integer(0, free + 1, (1, 1, free, free + 1)))

    def applies(self, model: HostModel) -> bool:
        return self.request >= model.next_name and self.pages >= 0

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("alloc", {"need_size": self.pages * model.config.page_size})

    def settle(self, model: HostModel, side: HostSide, value: list[int]) -> Faults:
        model.used(self.request)
        found: Faults = []
        if len(set(value)) < len(value):
            found.append(("I1", f"alloc gave {value}: one twice"))
        if taken := sorted(set(value) & set(side.owned())):
            found.append(("I34", f"alloc gave {value}, of which {taken} are somebody's"))
        if value:
            side.host[self.request] = list(value)
        side.issued.update(value)
        side.freed.difference_update(value)
        return found

    def demand(self, model: HostModel) -> int:
        return self.pages


@dataclass(frozen=True)
class Free(Command):
    """`free` of all slots of requests; how many there were."""

    methods: ClassVar[tuple[str, ...]] = ("free",)
    weight: ClassVar[int] = 10
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()

    requests: tuple[int, ...]
    backwards: bool

    @classmethod
    def draw(cls, choices: Choices, model: HostModel) -> Free:
        return cls(tuple(choices.subset(model.idle(), 0, 2)), choices.boolean())

    def applies(self, model: HostModel) -> bool:
        names = self.requests
        return len(set(names)) == len(names) and set(names) <= set(model.idle())

    def call(self, model: HostModel, side: HostSide) -> Call:
        slots = [slot for name in self.requests for slot in side.host[name]]
        return Call("free", {"free_index": slots[::-1] if self.backwards else slots})

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        gone = [slot for name in self.requests for slot in side.host.pop(name)]
        side.saved.difference_update(self.requests)
        side.freed.update(gone)
        return [] if value == len(gone) else [("I5", f"free of {len(gone)} slots says {value}")]


@dataclass(frozen=True)
class Clear(Command):
    """`clear`: every request has lost its slots."""

    methods: ClassVar[tuple[str, ...]] = ("clear",)
    weight: ClassVar[int] = 2
    # not under a transfer
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("served", IN_FLIGHT)})

    @classmethod
    def enabled(cls, model: HostModel) -> bool:
        return not model.side.transfers

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("clear")

    def settle(self, model: HostModel, side: HostSide, value: Any) -> Faults:
        model.cleared = True
        side.host.clear()
        side.saved.clear()
        side.issued.clear()
        side.freed.clear()
        return []


@dataclass(frozen=True)
class Query(Command):
    """A question, whose answer is the reference's."""

    weight: ClassVar[int] = 2
    about: ClassVar[str] = "I61"

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call(type(self).methods[0])

    def answer_faults(self, model: HostModel, call: Call, value: Any) -> Faults:
        due = model.reference.call(call)
        how = f"{call.method} gives {value!s:.200}, {due!s:.200} is due"
        return [] if value == due else [(type(self).about, how)]


class Bytes(Query):
    """`get_size_bytes`: what the host's rows take."""

    methods: ClassVar[tuple[str, ...]] = ("get_size_bytes",)


class Describe(Query):
    """`buffers` and `size_per_token`: names, layers and bytes of rows."""

    methods: ClassVar[tuple[str, ...]] = ("buffers", "size_per_token")


@dataclass(frozen=True)
class InTransfer(Query):
    """`in_transfer`: which device slots must stay where they are."""

    methods: ClassVar[tuple[str, ...]] = ("in_transfer",)
    about: ClassVar[str] = "I65"

    def call(self, model: HostModel, side: HostSide) -> Call:
        return Call("in_transfer", {"device_slots": list(range(len(side.where)))})


LEGAL: tuple[type[Command], ...] = (Alloc, Free, Clear, Bytes, Describe, InTransfer)
