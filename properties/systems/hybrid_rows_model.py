"""What the harness knows about the rows of hybrid models: who has which row and which state slots.

Follows `spec/pools_states_sizing.md` §4. A request is in the queue (with a state at most, from a
prefix hit), admitted, or has given its state back and still has its row. What the prefix cache
holds are nodes, of a slot each. Two ledgers say who owns what; `content` is what must lie in each
slot that somebody owns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from properties.commands import ALLOCATING, Call, Command
from properties.subjects.hybrid_reference import with_slots
from properties.subjects.state_records import POISON
from properties.systems.row_model import Faults, RowModel, RowSide
from reference.ledger import Ledger

ROWS_FULL = "no row free"
SITUATIONS = ("exactly full", "one short", ROWS_FULL, "inside a group", "after clear")
# More of them only slow a run down.
MOST_NODES = 6
EMPTY = -1
#: where slots are that nobody has
SLOT_LISTS = ("slots_free", "slots_parked")


class HybridSide(RowSide):
    """One side's requests and nodes, by name."""

    def __init__(self, config: Any) -> None:
        super().__init__(config.size, 1)
        self.slot_ledger = Ledger(config.mamba_size, 1)
        #: request → the slot of its state and the places of its buffer, [] without a state
        self.states: dict[int, list[int]] = {}
        #: node of the prefix cache → its slot
        self.nodes: dict[int, int] = {}
        #: rows of no request, and requests of before a `clear` with what they had
        self.loose: dict[int, int] = {}
        self.lost: dict[int, tuple[int, list[int]]] = {}
        #: requests whose turn is over and that go on later
        self.sessions: set[int] = set()
        #: request in whose first extend a node's state is copied → the node, which is locked
        self.copies: dict[int, int] = {}
        #: request → length whose state lies in the last and in the other place
        self.tracked: dict[int, tuple[int | None, int | None]] = {}
        #: slot → what must lie in it, as long as somebody owns it
        self.content: dict[int, int] = {}

    @property
    def queued(self) -> list[int]:
        """Requests that have a state and no row."""
        return [name for name in self.states if name not in self.held]

    @property
    def running(self) -> list[int]:
        """Requests that have both, and no session."""
        return [n for n in self.states if n in self.held and n not in self.sessions]

    @property
    def tracking(self) -> list[int]:
        """Requests with a row and a buffer."""
        return [n for n, slots in self.states.items() if n in self.held and len(slots) > 1]

    @property
    def written(self) -> list[int]:
        """Nodes with a state in them."""
        return [node for node, slot in self.nodes.items() if self.content[slot] != POISON]

    @property
    def unlocked(self) -> list[int]:
        """Nodes that nobody is about to copy."""
        return [node for node in self.nodes if node not in self.copies.values()]

    def has(self, name: int, slots: Sequence[int]) -> Faults:
        """Books that the request has these slots now: who comes is issued, who goes is free."""
        before = {slot for slot in self.states.get(name, ()) if slot > 0}
        now = [slot for slot in slots if slot > 0]
        faults = self.lose(before.difference(now)) if before.difference(now) else []
        faults += self.gain(("request", name), [slot for slot in now if slot not in before])
        self.states[name] = list(slots)
        return faults

    def gain(self, owner: Hashable, slots: Sequence[int]) -> Faults:
        self.content.update(dict.fromkeys(slots, POISON))
        return self.slot_ledger.issue(owner, slots)

    def lose(self, slots: Any) -> Faults:
        for slot in slots:
            self.content.pop(slot, None)
        return self.slot_ledger.release_pages(slots)

    def forget(self, name: int) -> None:
        """The request has no state any more."""
        self.states.pop(name, None)
        self.tracked.pop(name, None)
        self.copies.pop(name, None)
        self.sessions.discard(name)

    def hand_over(self, slot: int, owner: Hashable) -> Faults:
        """A slot changes its owner and keeps what is in it."""
        kept = self.content.get(slot, POISON)
        faults = self.slot_ledger.release_pages([slot]) + self.slot_ledger.issue(owner, [slot])
        self.content[slot] = kept
        return faults

    def clear(self) -> None:
        for name in [*self.states, *(name for name in self.held if name not in self.states)]:
            slots = [slot for slot in self.states.get(name, ()) if slot > 0]
            self.lost[name] = (self.held.get(name, (0, 0))[0], slots)
        super().clear()
        self.slot_ledger.clear()
        for kept in (self.states, self.nodes, self.tracked, self.copies, self.content, self.loose):
            kept.clear()
        self.sessions.clear()


class HybridModel(RowModel):
    """The reference, its last snapshot, and the requests and nodes; commands draw from it."""

    side: HybridSide

    def __init__(self, config: Any, reference: Any) -> None:
        super().__init__(config, reference)
        self.state = {**with_slots(self.state), "records": {}}

    def new_side(self) -> HybridSide:
        return HybridSide(self.config)

    @property
    def in_group(self) -> bool:
        return bool(self.state["slots_group"])

    @property
    def parked(self) -> list[int]:
        found: list[int] = self.state["slots_parked"]
        return found

    @property
    def num_free(self) -> int:
        return len(self.state["slots_free"])

    @property
    def width(self) -> int:
        """How many places a buffer has."""
        return int(self.config.places)

    @property
    def initial(self) -> int:
        """How many of them have a slot from the start."""
        return 1 if self.config.lazy else self.width

    def lacking(self, name: int) -> list[int]:
        """How many slots admitting the request takes, at a time."""
        slots = self.side.states.get(name, [])
        buffer = self.width > 0 and len(slots) < 2
        return ([] if slots else [1]) + ([self.initial] if buffer else [])

    def fits(self, counts: Sequence[int]) -> int:
        """How many slots of the free list that takes: single ones may be parked."""
        return sum(counts) - min(counts.count(1), len(self.parked))

    @property
    def most_nodes(self) -> int:
        """How many nodes there may be."""
        return MOST_NODES if self.scope is None else 1

    def shown_key(self, shown: dict[str, Any]) -> Hashable:
        """What is shown, whatever the rows and slots are called.

        A pool is the same with its rows and slots renamed, for as long as nobody clears it, and
        then it is as new. So of a free slot it counts whether it was ever issued, in order; of a
        request what it has, and what is planned, lengths aside.
        """
        issued = set(shown.get("slots_issued", ()))
        lists = [tuple(s in issued for s in shown.get(name, ())) for name in SLOT_LISTS]
        records = sorted(repr(_nameless(each)) for each in shown.get("records", {}).values())
        return len(shown.get("free", ())), shown.get("slots_group"), *lists, *records

    def in_order(self, side: RowSide) -> list[int]:
        return []

    def requests_key(self, side: RowSide, order: Sequence[int]) -> Hashable:
        """The nodes: whether there is a state in each, and whether it is about to be copied."""
        assert isinstance(side, HybridSide)
        return tuple(sorted((n in side.written, n in side.unlocked) for n in side.nodes))

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        spare = self.num_free - demand
        found: tuple[str, ...] = ()
        if spare == 0:
            found += ("exactly full",)
        if spare == (-1 if allocates else 1):
            found += ("one short",)
        if not self.state["free"]:
            found += (ROWS_FULL,)
        if self.in_group:
            found += ("inside a group",)
        if self.cleared:
            found += ("after clear",)
        return found

    #: which invariant a difference in one part of the snapshot is about, on the exact level
    difference: ClassVar[dict[str, str]] = {
        "generations": "I28",
        "held": "I34",
        "available": "I2",
        "records": "I27",
        "mapping": "I41",
        "track_mapping": "I41",
        "bytes": "I60",
    }

    def change_faults(
        self, call: Call, before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any]
    ) -> Faults:
        """I9: after None or a refusal all is as before, the requests included."""
        for key, value in before.items():
            if after[key] != value:
                return [
                    ("I9", f"{call.method} failed, yet {key} went from {value} to {after[key]}")
                ]
        return []

    def unserved(self, command: Command, call: Call, outcome: str) -> str:
        """I47 where the resource is optional; else as for rows."""
        if getattr(command, "optional", False):
            return "I47"
        if command.name().startswith("group"):
            return "I21"
        if call.method not in ALLOCATING:
            return "I4"
        return "I11" if command.demand(self) or "reqs" not in call.args else "I26"

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: RowSide,
    ) -> Faults:  # fmt: skip
        """I6, I25, I26: a row and a state for every request, holders keep theirs."""
        if call.method != "alloc" or "reqs" not in call.args:
            return []
        assert isinstance(side, HybridSide)
        names, line = call.args["reqs"], 2 + self.width
        if len(value) != line * len(names):
            return [("I6", f"{len(names)} requests, {value} were given")]
        for name, at in zip(names, range(0, len(value), line), strict=True):
            row, slots = value[at], value[at + 1 : at + line]
            if name in side.held and row != side.held[name][0]:
                return [("I25", f"the holder of row {side.held[name][0]} got row {row}")]
            had = side.states.get(name, [])
            if had and slots[: len(had)] != had:
                return [("I26", f"request {name} had slots {had}, now {slots}")]
            if slots[0] < 1 or sum(slot > 0 for slot in slots[1:]) < (1 if self.width else 0):
                return [("I6", f"request {name} has slots {slots}")]
        return []

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: RowSide
    ) -> Faults:
        """I29, I28, rows; I66, I21, I1, I3, I34, I2, slots; I27, I41, records and maps; I60."""
        assert isinstance(side, HybridSide)
        cleared = command.name() == "clear"
        if faults := self._length_faults(after) or _row_faults(before, after, side, cleared):
            return faults
        if faults := _slot_faults(command, after, side):
            return faults
        if faults := _record_faults(after, side):
            return faults
        return _content_faults(after, side)

    def _length_faults(self, state: dict[str, Any]) -> Faults:
        """I29: the maps have a line for every row."""
        for name in ("generations", "mapping", "track_mapping"):
            if name in state and len(state[name]) <= self.config.size:
                last = len(state[name]) - 1
                return [
                    ("I29", f"rows up to {self.config.size} are handed out, {name} ends at {last}")
                ]
        return []


def _nameless(record: Sequence[Any]) -> tuple[Any, ...]:
    """A record without the names of its row and its slots, and without lengths."""
    row, state, buffer, source, _, following, last, length, before, clear = record
    places = None if buffer is None else [slot != EMPTY for slot in buffer]
    has = [each is not None for each in (row, state, source, length, before)]
    return places, has, following, last, clear


def shown_tag(content: int) -> str:
    """What lies in a slot, in words."""
    words = {POISON: "what nobody may see", 0: "a cleared state"}
    return words.get(content, f"request {content // 1000}'s state of step {content % 1000}")


def _row_faults(
    before: dict[str, Any], after: dict[str, Any], side: HybridSide, cleared: bool
) -> Faults:
    for row, generation in enumerate(after.get("generations", ())):
        if generation != side.issued.get(row, 0):
            due = side.issued.get(row, 0)
            return [("I28", f"row {row} was handed out {due} times, generation {generation}")]
    if "free" in after and (faults := side.ledger.faults(after["free"], [])):
        return [("I66", faults[0][1])] if cleared else faults
    return []


def _slot_faults(command: Command, after: dict[str, Any], side: HybridSide) -> Faults:
    """The census of the slots: free and parked are what the ledger says is available."""
    if not after.keys() >= set(SLOT_LISTS):
        return []
    faults = side.slot_ledger.faults([slot for name in SLOT_LISTS for slot in after[name]], [])
    if faults and command.name() == "clear":
        return [("I66", faults[0][1])]
    if faults and command.name().startswith("group"):
        return [("I21", faults[0][1])]
    if faults:
        return faults
    owned = sorted(side.slot_ledger.owned_pages())
    if after.get("slots_owned", owned) != owned:
        return [("I34", f"slots {after['slots_owned']} are owned, by the ledger {owned}")]
    return []


def _content_faults(after: dict[str, Any], side: HybridSide) -> Faults:
    """I60: in each part of each slot lies what its owner wrote, or what nobody may see yet."""
    for part, tags in after.get("bytes", {}).items():
        for slot, due in side.content.items():
            if tags[slot] != due:
                said = f"{part} of slot {slot} holds {shown_tag(tags[slot])}"
                return [("I60", f"{said}, due is {shown_tag(due)}")]
    return []


def _record_faults(after: dict[str, Any], side: HybridSide) -> Faults:
    """I27: records are what the requests were given; I41: the maps of live rows say the same."""
    for name, record in after.get("records", {}).items():
        row, state, buffer, _, flags, *_ = record
        slots = [] if state is None and buffer is None else [state, *(buffer or ())]
        if row != side.held.get(name, (None,))[0]:
            return [("I27", f"request {name} knows of row {row}, it has {side.held.get(name)}")]
        if slots != side.states.get(name, []):
            due = side.states.get(name)
            return [("I27", f"request {name} knows of slots {slots}, it has {due}")]
        begins = side.content.get(state) == POISON and name in side.states
        if begins and record[3] is None and not record[-1]:
            return [("I60", f"request {name} will begin with what lies in slot {state}")]
        if buffer is not None and flags != [slot == EMPTY for slot in buffer]:
            return [("I27", f"request {name} has {buffer}, marked empty are {flags}")]
    for name, slots in side.states.items():
        live = [slot for slot in slots if slot > 0]
        if len(set(live)) < len(live):
            return [("I34", f"request {name} has a slot twice: {slots}")]
        if name not in side.held or "mapping" not in after:
            continue
        row = side.held[name][0]
        tracks = after["track_mapping"][row] if len(slots) > 1 else []
        if [after["mapping"][row], *tracks] != slots:
            found = [after["mapping"][row], *tracks]
            return [("I41", f"the maps of row {row} say {found}, its request has {slots}")]
    return []
