"""What the harness knows about a slot allocator: requests, owners, and what must hold of them.

Follows `spec/core.md` §3 and §4. A request is a row of slots that begins at a page-aligned position
`start` (earlier pages may have been given back). The checks of this module use the ledger alone and
no order, so that they hold on a subject whose order nobody knows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from properties.commands import ALLOCATING, Call, Command
from properties.scope import Scope
from reference.ledger import Ledger

# More live requests than this only slow a run down: batches are at most 4 long.
MOST_REQUESTS = 8
Faults = list[tuple[str, str]]
SITUATIONS = (
    "half-filled page",
    "exactly full",
    "one short",
    "everything staged",
    "inside a group",
    "after clear",
)


@dataclass(slots=True)
class Row:
    """One request's slots for positions [start, start + len(slots)) on one side."""

    start: int
    slots: list[int]

    @property
    def length(self) -> int:
        return self.start + len(self.slots)

    @property
    def last_loc(self) -> int:
        return self.slots[-1] if self.slots else -1

    def part(self, pages: int, size: int) -> list[int]:
        """Slots of the first (`pages` > 0) or last (`pages` < 0) pages; 0 means all."""
        if pages > 0:
            return self.slots[: pages * size]
        if pages < 0:
            held = -(-len(self.slots) // size)
            return self.slots[max(0, held + pages) * size :]
        return list(self.slots)

    def drop(self, pages: int, size: int) -> list[int]:
        """Takes `part` away; what follows keeps its positions."""
        gone = self.part(pages, size)
        if pages > 0:
            del self.slots[: len(gone)]
            self.start += len(gone)
        else:
            del self.slots[len(self.slots) - len(gone) :]
        return gone


class Side:
    """What one side's requests hold: rows by name, and the ledger of who owns what."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.rows: dict[int, Row] = {}
        self.ledger = Ledger(num_pages, page_size)
        self.parked_by_slots: list[int] = []

    def grow(self, name: int, slots: Sequence[int]) -> Faults:
        row = self.rows.get(name)
        if row is None:
            self.rows[name] = Row(0, list(slots))
        else:
            row.slots.extend(slots)
        return self.ledger.issue(name, slots)

    def part(self, name: int, pages: int) -> list[int]:
        """Slots of the first (`pages` > 0) or last (`pages` < 0) pages of a row; 0 means all."""
        return self.rows[name].part(pages, self.page_size)

    def give(self, name: int, pages: int, group: bool, by_slots: bool) -> Faults:
        """Books the release of `part(name, pages)`; a row with nothing left disappears."""
        slots = self.rows[name].drop(pages, self.page_size)
        if not self.rows[name].slots:
            del self.rows[name]
        return self.release(self.pages(slots), group, by_slots)

    def pages(self, slots: Sequence[int]) -> list[int]:
        """The pages of these slots, each once, in order."""
        return list(dict.fromkeys([slot // self.page_size for slot in slots]))

    def release(self, ids: list[int], group: bool, by_slots: bool) -> Faults:
        if not group:
            return self.ledger.release_pages(ids)
        if by_slots:
            self.parked_by_slots += ids
        return self.ledger.park_pages(ids)

    def end_group(self) -> None:
        self.ledger.unpark_all()
        self.parked_by_slots = []

    def reset(self, num_pages: int | None = None) -> None:
        self.rows.clear()
        self.parked_by_slots = []
        if num_pages is None:
            self.ledger.clear()
        else:
            self.ledger.resize(num_pages)


class SlotModel:
    """The reference, its last snapshot, and the requests that are alive; commands draw from it."""

    #: what an attribute holds that is replaced as a whole, never changed: see `properties.memento`
    replaced: ClassVar[tuple[str, ...]] = ("config", "state")

    def __init__(self, config: Any, reference: Any, paged: bool) -> None:
        self.config = config
        self.reference = reference
        self.paged = paged
        self.page_size: int = config.page_size
        self.side = self.new_side()
        self.next_name = 0
        self.cleared = False
        #: the subject's methods: misuse commands choose among them
        self.calls: frozenset[str] = frozenset()
        #: whether the subject's order is the reference's, and with it when it merges
        self.exact = True
        #: how much commands may ask for, where all that they can do is walked
        self.scope: Scope | None = None
        self.state: dict[str, Any] = reference.snapshot()

    def new_side(self) -> Side:
        return Side(self.config.size // self.page_size, self.page_size)

    @property
    def group(self) -> bool:
        return bool(self.state["group"])

    @property
    def names(self) -> list[int]:
        return list(self.side.rows)

    @property
    def growable(self) -> list[int]:
        """The requests that may get more tokens."""
        return list(self.side.rows)

    @property
    def num_pages(self) -> int:
        return int(self.state["size"]) // self.page_size

    @property
    def available_pages(self) -> int:
        return len(self.state["free"]) + len(self.state["staged"])

    def fresh(self, name: int) -> bool:
        """Whether a name was never used; names are never used twice."""
        return name >= self.next_name

    @property
    def openings(self) -> int:
        """How many more requests there may be."""
        most = MOST_REQUESTS if self.scope is None else self.scope.requests
        return most - len(self.side.rows)

    # ---- what decides all that can follow ----

    def shown_key(self, shown: dict[str, Any]) -> Hashable:
        """What is shown, as far as it decides.

        Of what a group parked: the pages, in order where they were freed as pages, and whether one
        call did so or several.
        """
        lists = [tuple(shown.get(name, ())) for name in ("free", "staged", "holders", "issued")]
        slots, pages = shown.get("parked_slots", ()), shown.get("parked_pages", ())
        return (
            shown.get("size"), shown.get("group"), shown.get("available"), *lists,
            frozenset(slot // self.page_size for part in slots for slot in part), len(slots) > 1,
            tuple(page for part in pages for page in part), len(pages) > 1,
        )  # fmt: skip

    def in_order(self, side: Side) -> list[int]:
        """The requests by what they have: their names decide nothing."""
        return sorted(side.rows, key=lambda name: side.rows[name].slots)

    def requests_key(self, side: Side, order: Sequence[int]) -> Hashable:
        """What the requests have on a side.

        Pages that were given back at the front don't matter: they make positions larger, by whole
        pages, and no command asks for more.
        """
        held = tuple([tuple(side.rows[name].slots) for name in order])
        return held, frozenset(side.parked_by_slots)

    def pages_for(self, requests: Sequence[tuple[int, int]]) -> int:
        """New pages for appending (name, tokens): ceil(seq/B) - ceil(prefix/B) each."""
        size, rows, total = self.page_size, self.side.rows, 0
        for name, tokens in requests:
            row = rows.get(name)
            prefix = row.length if row is not None else 0
            total += -(-(prefix + tokens) // size) - -(-prefix // size)
        return total

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        """Which of the named situations hold before a call that needs `demand` pages."""
        free, staged, size = self.state["free"], self.state["staged"], self.page_size
        spare = len(free) + len(staged) - demand
        found: tuple[str, ...] = ()
        if size > 1:
            for row in self.side.rows.values():
                if (row.start + len(row.slots)) % size:
                    found = ("half-filled page",)
                    break
        if spare == 0:
            found += ("exactly full",)
        if spare == (-1 if allocates else 1):
            found += ("one short",)
        if staged and not free:
            found += ("everything staged",)
        if self.state["group"]:
            found += ("inside a group",)
        if self.cleared:
            found += ("after clear",)
        return found

    #: which invariant a difference in one part of the snapshot is about, on the exact level
    difference: ClassVar[dict[str, str]] = {"group": "I21", "holders": "I34", "available": "I2"}

    # ---- what must hold, whatever the order ----

    def change_faults(
        self, call: Call, before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any]
    ) -> Faults:
        """I9: after None or a refusal all is as before; staged pages may have been sorted in."""
        merged = self.state["staged"] != wanted["staged"] or not self.exact
        for key, value in before.items():
            if after[key] == value:
                continue
            moved = merged and key in ("free", "staged") and {"free", "staged"} <= after.keys()
            if moved and sorted(_available(before)) == sorted(_available(after)):
                continue
            return [("I9", f"{call.method} failed, yet {key} went from {value} to {after[key]}")]
        return []

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: Side,
    ) -> Faults:  # fmt: skip
        """I68, I6, I52: as many slots as asked for, the pages that left the free list, whole."""
        if call.method not in ALLOCATING:
            return []
        asked = sum(tokens for _, tokens, _ in self.chunks(command, side))
        if len(value) != asked:
            return [("I6" if asked else "I68", f"{asked} slots asked, {len(value)} given: {value}")]
        pages = {slot // self.page_size for slot in value}
        if call.method == "alloc" and len(pages) * self.page_size != len(value):
            return [("I52", f"{value} are not whole pages of {self.page_size} slots")]
        if "free" not in after:
            return []
        taken = set(_available(before)).difference(_available(after))
        lost = taken - pages
        if lost:
            kind = "I6" if asked else "I68"
            return [
                (kind, f"pages {sorted(lost)} left the free list, the result {value} lacks them")
            ]
        return []

    def unserved(self, command: Command, call: Call, outcome: str) -> str:
        """Which invariant a call breaks that came to something else than the result due."""
        if command.name().startswith("group"):
            return "I21"
        if call.method not in ALLOCATING:
            lists = [part for part, _ in call.args.get("segments", ())]
            lists += [ids for ids in call.args.values() if isinstance(ids, list)]
            return "I4" if any(lists) or not lists else "I55"
        asked = not hasattr(command, "chunks") or any(
            tokens for _, tokens, _ in self.chunks(command, self.side)
        )
        return "I11" if asked else "I68"

    def chunks(self, command: Command, side: Side) -> Iterable[tuple[int, int, int]]:
        """(first position, tokens, last_loc) of each request of an allocating command."""
        found: Iterator[tuple[int, int, int]] = command.chunks(self, side)  # type: ignore[attr-defined]
        return found

    def placement_faults(self, command: Command, value: Any, side: Side) -> Faults:
        """I12, I34, I7: continued pages, fresh pages, and offsets of an allocation's result."""
        if not hasattr(command, "chunks"):
            return []
        size, owned, at = self.page_size, side.ledger.owned_pages(), 0
        for first, tokens, last in self.chunks(command, side):
            page = last // size
            for position in range(first, first + tokens):
                slot = value[at]
                at += 1
                if position % size == 0:
                    page = slot // size
                    if page in owned:
                        return [("I34", f"position {position}: page {page} has an owner already")]
                elif position == first and slot // size != page:
                    return [("I12", f"position {position} follows slot {last}, got slot {slot}")]
                if slot != page * size + position % size:
                    return [("I7", f"position {position} lies in slot {slot}, page {page} is due")]
        return []

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: Side
    ) -> Faults:
        """I52, I66, I21, I1, I3, I34, I2, I20: what the subject shows against the ledger."""
        ledger = side.ledger
        if (shown := after.get("page_size", self.page_size)) != self.page_size:
            return [("I52", f"the page size is {shown}, ids come in pages of {self.page_size}")]
        if "free" in after:
            parked = None
            if "parked_slots" in after:
                parked = [s // self.page_size for part in after["parked_slots"] for s in part]
                parked += [page for part in after["parked_pages"] for page in part]
            faults = ledger.faults(after["free"], after["staged"], parked)
            if command.name() == "clear" and (
                faults or any(after.get(key) for key in ("group", "holders", "issued"))
            ):
                return [("I66", faults[0][1] if faults else "a group or an owner is left")]
            if faults and faults[0][0] == "I2" and command.name().startswith("group"):
                return [("I21", faults[0][1])]
            if faults:
                return faults
        due = ledger.num_available_pages() * self.page_size
        if after.get("available", due) != due:
            return [("I2", f"available_size() is {after['available']}, by the ledger {due}")]
        return self._owner_faults(after, ledger)

    def _owner_faults(self, after: dict[str, Any], ledger: Ledger) -> Faults:
        """I20, I34: owned is what is out, and no longer what was freed and waits somewhere."""
        owned = sorted(ledger.owned_pages())
        held = list(after.get("holders", owned))
        if held == owned:
            return []
        late = set(held).difference(owned)
        if late and late <= ledger.parked_pages().union(after.get("staged", ())):
            return [("I20", f"pages {sorted(late)} are freed, parked or staged, and still owned")]
        return [("I34", f"holders are {after['holders']}, by the ledger {owned} are owned")]


def _available(state: dict[str, Any]) -> list[int]:
    return [*state["free"], *state["staged"]]
