"""What the harness knows of the host tier: who has which host slots, and what is under way.

Follows `spec/interleave_hisparse_host_prefix.md` §4. Host slots are handed out by the subject;
device slots are the harness's own, taken from the head of a list and given back at its tail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from properties.commands import ALLOCATING, Call, Command
from properties.scope import Scope
from properties.systems.state_pools_model import first_change

Faults = list[tuple[str, str]]
IN_FLIGHT, RELOCATED = "a transfer under way", "rows have moved"
SITUATIONS = ("exactly full", "one short", "after clear", IN_FLIGHT, RELOCATED)
#: bytes that are written are of 1..TAGS: no row is what a fresh one is
TAGS = 251


def tags(count: int, request: int, step: int, layer: int, buffer: int, place: int) -> list[int]:
    """Bytes that tell whose they are, from which step, and where they belong."""
    first = request * 37 + step * 101 + layer * 7 + buffer * 59 + place * 11
    return [(first + at) % TAGS + 1 for at in range(count)]


@dataclass
class Transfer:
    """A transfer of a request's slots: a backup, or a load with the layers that it has copied."""

    request: int
    loading: bool
    device: list[int]
    gated: bool = False
    layers: set[int] = field(default_factory=set)


class HostSide:
    """The requests of one side by name: host slots, and transfers under way."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.host: dict[int, list[int]] = {}
        #: those of them whose slots a backup has filled
        self.saved: set[int] = set()
        self.transfers: dict[int, Transfer] = {}
        #: transfers that are over, the last of each kind
        self.over: dict[str, int] = {}
        # pages 1.. of the device
        self.free_device = list(range(1, config.device_pages + 1))
        self.freed: set[int] = set()
        self.issued: set[int] = set()
        #: where device ids lie
        self.where = list(range(config.device_size + config.page_size))
        self.moved = False

    def take_device(self, count: int) -> list[int]:
        """The slots of the first `count` free device pages."""
        return [slot for page in self.free_device[:count] for slot in self._page(page)]

    def _page(self, page: int) -> range:
        return range(page * self.config.page_size, (page + 1) * self.config.page_size)

    def occupy(self, device: list[int]) -> None:
        for page in pages_of(device, self.config.page_size):
            self.free_device.remove(page)

    def vacate(self, device: list[int]) -> None:
        self.free_device += pages_of(device, self.config.page_size)

    def num_pages(self, name: int) -> int:
        size: int = self.config.page_size
        return len(self.host[name]) // size

    def users(self, name: int) -> list[Transfer]:
        """Transfers under way that use a request's host slots."""
        return [each for each in self.transfers.values() if each.request == name]

    def pinned(self, host: bool) -> dict[int, int]:
        """Slot to its number of readers, -1 for a writer."""
        found: dict[int, int] = {}
        for each in self.transfers.values():
            for slot in self.host[each.request] if host else each.device:
                found[slot] = found.get(slot, 0) + 1 if each.loading == host else -1
        return found

    def owned(self) -> list[int]:
        return sorted(slot for slots in self.host.values() for slot in slots)


def pages_of(slots: list[int], page_size: int) -> list[int]:
    return [slot // page_size for slot in slots[::page_size]]


class HostModel:
    """The config, the requests, and the reference that says what every row holds."""

    #: what an attribute holds that is replaced as a whole, never changed: see `properties.memento`
    replaced: ClassVar[tuple[str, ...]] = ("config", "state")
    #: the pool has no groups
    group: ClassVar[bool] = False
    #: which invariant a difference in one part of what is shown is about, on the exact level
    difference: ClassVar[dict[str, str]] = {"owned": "I34", "issued": "I34", "available": "I2"}

    def __init__(self, config: Any, reference: Any) -> None:
        self.config = config
        self.reference = reference
        self.side = self.new_side()
        self.next_name = 0
        self.cleared = False
        self.calls: frozenset[str] = frozenset()
        self.exact = True
        self.scope: Scope | None = None
        self.state: dict[str, Any] = reference.observe()

    def new_side(self) -> HostSide:
        return HostSide(self.config)

    @property
    def names(self) -> list[int]:
        return list(self.side.host)

    @property
    def free_pages(self) -> int:
        size: int = self.config.page_size
        return len(self.state["free"]) // size

    def used(self, name: int) -> None:
        self.next_name = max(self.next_name, name + 1)

    def idle(self) -> list[int]:
        """Requests whose slots are in no transfer."""
        return [name for name in self.side.host if not self.side.users(name)]

    def fitting(self, names: list[int]) -> list[int]:
        """Those of the requests that the free device pages are enough for."""
        room = len(self.side.free_device)
        return [name for name in names if self.side.num_pages(name) <= room]

    def loadable(self) -> list[int]:
        """Requests that have been saved, and aren't being saved anew, and fit the device."""
        found = [name for name in self.names if name in self.side.saved]
        users = self.side.users
        return self.fitting([n for n in found if all(each.loading for each in users(n))])

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        """Which of the named situations hold before a call."""
        spare = self.free_pages - demand
        found: tuple[str, ...] = ()
        if spare == 0:
            found += ("exactly full",)
        if spare == (-1 if allocates else 1):
            found += ("one short",)
        if self.cleared:
            found += ("after clear",)
        if self.side.transfers:
            found += (IN_FLIGHT,)
        if self.side.moved:
            found += (RELOCATED,)
        return found

    # ---- what must hold ----

    def change_faults(
        self, call: Call, before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any]
    ) -> Faults:
        """I9: after None or a refusal every byte is as before."""
        for key, value in before.items():
            if after[key] != value:
                return [("I9", f"{call.method} failed, yet {first_change(key, value, after[key])}")]
        return []

    def unserved(self, command: Command, call: Call, outcome: str) -> str:
        """The invariant that a call breaks which came to something else than the result due."""
        return "I60" if call.method == "wait_until" else "I11"

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: HostSide,
    ) -> Faults:  # fmt: skip
        """I68, I6: as many slots as asked for, and none but those are gone."""
        if call.method not in ALLOCATING:
            return []
        asked = call.args["need_size"]
        if len(value) != asked:
            return [("I6" if asked else "I68", f"{asked} slots asked, {len(value)} given: {value}")]
        if lost := set(before.get("free", ())) - set(after.get("free", ())) - set(value):
            return [("I6", f"slots {sorted(lost)} left the free list, not in {value}")]
        return []

    def placement_faults(self, command: Command, value: Any, side: HostSide) -> Faults:
        """I52: what is handed out are pages."""
        size = self.config.page_size
        if not isinstance(value, list) or command.name() != "alloc":
            return []
        for at in range(0, len(value), size):
            first = value[at]
            if first % size or value[at : at + size] != list(range(first, first + size)):
                return [("I52", f"slots {value[at : at + size]} are no page of {size}")]
        return []

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: HostSide
    ) -> Faults:
        """The books against the ledger, content against the reference's."""
        return (
            self._book_faults(command, after, side)
            or self._pin_faults(after, side)
            or self._gate_faults(after)
            or self._content_faults(after, side)
        )

    def _book_faults(self, command: Command, after: dict[str, Any], side: HostSide) -> Faults:
        """I66, I1, I34, I2: free and owned slots, by census."""
        owned, every = side.owned(), set(range(self.config.size))
        free = after.get("free", sorted(every - set(owned)))
        twice = sorted({slot for slot in free if free.count(slot) > 1})
        found: Faults = []
        if twice:
            found.append(("I1", f"slots {twice} are free twice"))
        if both := sorted(set(free) & set(owned)):
            found.append(("I34", f"slots {both} are free, and somebody's"))
        if every ^ (set(free) | set(owned)):
            strange = sorted(every ^ (set(free) | set(owned)))
            found.append(("I2", f"slots {strange} are lost, or never were"))
        if after.get("available", len(free)) != self.config.size - len(owned):
            found.append(("I2", f"{after['available']} slots count as free, owned are {owned}"))
        if after.get("owned", owned) != owned:
            found.append(("I34", f"owned are {after['owned']}, by the ledger {owned}"))
        if command.name() == "clear" and after.get("issued"):
            found.append(("I66", f"slots {after['issued']} count as issued"))
        if command.name() == "clear" and found:
            return [("I66", found[0][1])]
        return found

    def _pin_faults(self, after: dict[str, Any], side: HostSide) -> Faults:
        """I65: what transfers under way use is known, on both sides of them."""
        for key, host in (("pinned", True), ("device_pinned", False)):
            if after.get(key, due := side.pinned(host)) != due:
                return [("I65", f"{key} are {after[key]}, in transfers are {due}")]
        return []

    def _gate_faults(self, after: dict[str, Any]) -> Faults:
        """I60: a layer is open to readers exactly when it is there."""
        due = self.reference.gate.snapshot()
        if after.get("gate", due) != due:
            return [("I60", first_change("gate", due, after["gate"]))]
        return []

    def _content_faults(self, after: dict[str, Any], side: HostSide) -> Faults:
        """I56, I37, I38: each row is the one that was written, backed up, or loaded."""
        wanted = self.reference.observe()
        number = "I37" if self.side.moved else "I38"
        for at, (due, found) in enumerate(zip(wanted["device"], after["device"], strict=True)):
            for slot, row in enumerate(due):
                if row != found[slot]:
                    where = f"device[{at}][{slot}] is {found[slot]}, {row} is due"
                    return [("I56" if slot < self.config.page_size else number, where)]
        for name in side.saved:
            slots, ours = side.host[name], self.side.host.get(name, side.host[name])
            for at, (due, found) in enumerate(zip(wanted["host"], after["host"], strict=True)):
                for slot, mine in zip(slots, ours, strict=True):
                    if found[slot] != due[mine]:
                        how = f"host[{at}][{slot}] of request {name} is {found[slot]}"
                        return [(number, f"{how}, {due[mine]} is due")]
        return []
