"""What the harness knows about the request rows: who holds which row, by which handle.

Follows `spec/core.md` §2 and `spec/pools_states_sizing.md` §1. Rows are ids like slots: the ledger
of a pool with page size 1 says who owns them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from properties.commands import ALLOCATING, Call, Command
from properties.scope import Scope
from reference.ledger import Ledger

Faults = list[tuple[str, str]]
SITUATIONS = ("exactly full", "one short", "after clear")


class RowSide:
    """The rows of one side's requests: current handles, and those that are stale."""

    def __init__(self, size: int, width: int) -> None:
        self.ledger = Ledger(size, 1)
        self.table = [[0] * width for _ in range(size + 1)]
        self.held: dict[int, tuple[int, int]] = {}
        self.stale: dict[int, tuple[int, int]] = {}
        self.issued: dict[int, int] = {}  # how often each row was handed out

    def take(self, name: int, row: int) -> Faults:
        faults = self.ledger.issue(name, [row])
        if not faults:
            self.issued[row] = self.issued.get(row, 0) + 1
            self.held[name] = (row, self.issued[row])
        return faults

    def give(self, name: int) -> Faults:
        self.stale[name] = self.held.pop(name)
        return self.ledger.release_pages([self.stale[name][0]])

    def clear(self) -> None:
        self.stale.update(self.held)
        self.held.clear()
        self.ledger.clear()

    def write(self, call: Call) -> None:
        """Books a served `write`."""
        rows, columns = call.args["indices"]
        if isinstance(columns, slice):
            self.table[rows][columns] = call.args["values"]
            return
        for row, column, value in zip(rows, columns, call.args["values"], strict=True):
            self.table[row][column] = value

    def handle(self, name: int) -> tuple[int, int]:
        """The handle that a request got, whether current or stale."""
        return self.held.get(name) or self.stale[name]

    def request(self, name: int) -> dict[str, Any]:
        """A request as `alloc` and `free` see it, as plain values."""
        held = self.held.get(name)
        return {
            "name": name,
            "row": held[0] if held else None,
            "allocated": 1 if held else 0,
            "holds": held is not None,
        }


class RowModel:
    """The reference, its last snapshot, and the requests; commands draw from it."""

    #: what an attribute holds that is replaced as a whole, never changed: see `properties.memento`
    replaced: ClassVar[tuple[str, ...]] = ("config", "state")

    def __init__(self, config: Any, reference: Any) -> None:
        self.config = config
        self.reference = reference
        self.side = self.new_side()
        self.next_name = 0
        self.cleared = False
        self.calls: frozenset[str] = frozenset()
        self.exact = True
        #: how much commands may ask for, where all that they can do is walked
        self.scope: Scope | None = None
        self.state: dict[str, Any] = reference.snapshot()

    def new_side(self) -> RowSide:
        return RowSide(self.config.size, self.config.width)

    @property
    def names(self) -> list[int]:
        return list(self.side.held)

    def fresh(self, name: int) -> bool:
        return name >= self.next_name

    def used(self, name: int) -> None:
        self.next_name = max(self.next_name, name + 1)

    # ---- what decides all that can follow ----

    def shown_key(self, shown: dict[str, Any]) -> Hashable:
        """What is shown, as far as it decides: of entries whether they were written.

        The requests of the last call and what the hook was told are looked at then, and gone.
        """
        lists = (tuple(shown.get(name, ())) for name in ("free", "held"))
        written = tuple(tuple(entry != 0 for entry in line) for line in shown.get("table", ()))
        return (*lists, shown.get("available"), written)

    def in_order(self, side: RowSide) -> list[int]:
        """The requests by the rows that they hold: their names decide nothing."""
        return sorted(side.held, key=lambda name: side.held[name])

    def requests_key(self, side: RowSide, order: Sequence[int]) -> Hashable:
        """Who holds which row, and for which rows there is a stale handle besides."""
        rows = tuple(side.held[name][0] for name in order)
        return rows, frozenset(row for row, _ in side.stale.values())

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        """Which of the named situations hold before a call that needs `demand` rows."""
        spare = len(self.state["free"]) - demand
        found: tuple[str, ...] = ()
        if spare == 0:
            found += ("exactly full",)
        if spare == (-1 if allocates else 1):
            found += ("one short",)
        if self.cleared:
            found += ("after clear",)
        return found

    #: which invariant a difference in one part of the snapshot is about, on the exact level
    difference: ClassVar[dict[str, str]] = {
        "generations": "I28",
        "held": "I34",
        "requests": "I27",
        "hooked": "I26",
        "table": "I33",
        "available": "I2",
    }

    # ---- what must hold, whatever the order ----

    def change_faults(
        self, call: Call, before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any]
    ) -> Faults:
        """I9: after None or a refusal all is as before, the requests passed included."""
        passed = call.args.get("reqs") or [call.args[key] for key in ("req",) if key in call.args]
        rows = list({request["name"]: request["row"] for request in passed}.values())
        for key, value in before.items():
            was = rows if key == "requests" else value
            if after[key] != was:
                return [("I9", f"{call.method} failed, yet {key} is {after[key]}, was {was}")]
        return []

    def unserved(self, command: Command, call: Call, outcome: str) -> str:
        """Which invariant a call breaks that came to something else than the result due."""
        if call.method not in ALLOCATING:
            return "I4"
        if command.demand(self):
            return "I11"
        return "I26" if outcome == "short" and call.args.get("reqs") else "I68"

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: RowSide,
    ) -> Faults:  # fmt: skip
        """I68, I25, I26, I6, I27: as many rows as asked for, holders keep theirs."""
        if "req" in call.args and after.get("requests", [None]) != [None]:
            return [("I27", f"after {call.method} the request still has {after['requests']}")]
        if call.method not in ALLOCATING:
            return []
        asked = call.args["need_size"] if "need_size" in call.args else len(call.args["reqs"])
        if len(value) != asked:
            return [("I6" if asked else "I68", f"{asked} rows asked, {len(value)} given: {value}")]
        rows = [request["row"] for request in call.args.get("reqs", ())]
        for held, row in zip(rows, value, strict=False):
            if held not in (None, row):
                # a second row beside the first, or the first one is gone
                gone = row in rows or held in value or held in after.get("free", ())
                return [("I25" if gone else "I26", f"the holder of row {held} got row {row}")]
        if "free" in after:
            lost = set(before["free"]) - set(after["free"]) - set(value)
            if lost:
                number = "I6" if asked else "I68"
                return [(number, f"rows {sorted(lost)} left the free list, not in {value}")]
        if "reqs" in call.args and after.get("requests", value) != value:
            return [("I26", f"rows {value} were given, the requests have {after['requests']}")]
        fresh = [row for row in value if row not in rows]
        if fresh and after.get("hooked", fresh) != fresh:
            return [("I26", f"rows {fresh} are new, the hook was told {after['hooked']}")]
        return []

    def placement_faults(self, command: Command, value: Any, side: RowSide) -> Faults:
        return []

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: RowSide
    ) -> Faults:
        """I28, I66, I1, I3, I34, I2, I27: generations and lists against the ledger."""
        return row_faults(before, after, side, cleared=command.name() == "clear")


def row_faults(
    before: dict[str, Any], after: dict[str, Any], side: RowSide, cleared: bool = False
) -> Faults:
    """What of a row pool's state disagrees with who holds which row, and what was written."""
    if faults := length_faults(after, side):
        return faults
    for row, generation in enumerate(after.get("generations", ())):
        if generation < before["generations"][row]:
            was = before["generations"][row]
            return [("I28", f"the generation of row {row} went back from {was} to {generation}")]
        if generation != side.issued.get(row, 0):
            due = side.issued.get(row, 0)
            return [("I28", f"row {row} was handed out {due} times, generation {generation}")]
    if "free" in after:
        faults = side.ledger.faults(after["free"], [])
        if faults:
            return [("I66", faults[0][1])] if cleared else faults
    for row, line in enumerate(after.get("table", ())):
        if line != side.table[row]:
            return [("I33", f"row {row} of the table is {line}, {side.table[row]} was written")]
    due = side.ledger.num_available_pages()
    if after.get("available", due) != due:
        return [("I2", f"available_size() is {after['available']}, by the ledger {due}")]
    owned = sorted(side.ledger.owned_pages())
    if after.get("held", owned) != owned:
        number = "I66" if cleared else "I34"
        return [(number, f"held are {after['held']}, by the ledger {owned}")]
    return []


def length_faults(state: dict[str, Any], side: RowSide) -> Faults:
    """I29, I30: each table has a line for every row, and the row table a column for every token."""
    last, width = len(side.table) - 1, len(side.table[0])
    for name in ("table", "generations"):
        if (length := len(state.get(name, side.table))) <= last:
            return [("I29", f"rows up to {last} are handed out, {name} ends at {length - 1}")]
    for row, line in enumerate(state.get("table", ())):
        if len(line) < width:
            return [("I30", f"row {row} is {len(line)} long, {width} tokens may be allocated")]
    return []
