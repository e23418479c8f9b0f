"""What the harness knows of a paged allocator and the row table that it allocates through.

Follows `spec/core.md` §5a. A *line* is a request that holds a row: its own slots begin behind a
page-aligned prefix, which it shares with another request or whose pages it has given back. Requests
without a row (`side.rows`) are those of the paged system: nothing but the allocator knows of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from properties.commands import Call, Command
from properties.systems.row_model import RowSide, length_faults, row_faults
from properties.systems.slot_model import SITUATIONS as SLOT_SITUATIONS
from properties.systems.slot_model import Faults, Row, Side, SlotModel

SHARED_PAGE = "page shared by two rows"
SITUATIONS = (*SLOT_SITUATIONS, SHARED_PAGE)
# Old lengths of a row that are kept: where misuse looks for entries that are somebody else's now.
MOST_OLD = 6
Handle = tuple[int, int]


class LineSide(Side):
    """One side's requests with and without rows, its table, and who holds which page."""

    def __init__(self, config: Any) -> None:
        super().__init__(config.size // config.page_size, config.page_size)
        self.pool = RowSide(config.rows, config.width)
        self.lines: dict[int, Row] = {}
        #: line → length of the prefix that it took over from another request
        self.hits: dict[int, int] = {}
        #: row → lengths that it once had: the entries may still stand there
        self.old: dict[int, list[int]] = {}
        #: pages that came through a row call; other owned pages are anonymous
        self.holders: dict[int, Handle] = {}

    # ---- rows ----

    def admit(self, name: int, row: int) -> Faults:
        self.lines[name] = Row(0, [])
        return self.pool.take(name, row)

    def finish(self, name: int) -> Faults:
        """The row goes back; what is left of its pages belongs to a request without one."""
        self._remember(name)
        line = self.lines.pop(name)
        self.hits.pop(name, None)
        if line.slots:
            self.rows[name] = line
        return self.pool.give(name)

    def row(self, name: int) -> int:
        return self.pool.held[name][0]

    def entry(self, row: int, position: int) -> int:
        return self.pool.table[row][position]

    def last(self, name: int) -> int:
        """What the table says is the slot of a line's last token; -1 where it has none."""
        length = self.lines[name].length
        return self.entry(self.row(name), length - 1) if length else -1

    def prefix(self, name: int) -> list[int]:
        """The slots of a request from position 0 on, as far as all their pages are owned."""
        line = self.lines.get(name)
        if line is not None:
            slots = self.pool.table[self.row(name)][: line.length]
        else:
            slots = self.rows[name].slots if self.rows[name].start == 0 else []
        owned, found = self.ledger.owned_pages(), []
        for slot in slots:
            if slot // self.page_size not in owned:
                break
            found.append(slot)
        return found

    def write(self, name: int, values: Sequence[int]) -> None:
        """Books a `write` to the first positions of a line."""
        self._remember(name)
        self.pool.table[self.row(name)][: len(values)] = values
        self.old.setdefault(self.row(name), []).append(len(values))

    def _remember(self, name: int) -> None:
        length = self.lines[name].length
        if length:
            kept = self.old.setdefault(self.row(name), [])
            kept.append(length)
            del kept[:-MOST_OLD]

    # ---- pages ----

    def extend(self, name: int, slots: Sequence[int]) -> Faults:
        """Books a served row call for one line: slots, table, holders of the new pages."""
        line, row = self.lines[name], self.row(name)
        for position, slot in enumerate(slots, line.length):
            self.pool.table[row][position] = slot
            if position % self.page_size == 0:
                self.holders[slot // self.page_size] = self.pool.held[name]
        line.slots.extend(slots)
        return self.ledger.issue(name, slots)

    def adopt(self, name: int, source: int, count: int) -> Faults:
        """A line takes over what a request without a row holds, its last tokens aside."""
        slots = self.rows.pop(source).slots
        self.write(name, slots[:count])
        self.lines[name] = Row(0, slots[:count])
        return self.ledger.drop(source, slots) + self.ledger.issue(name, slots[:count])

    def give_line(self, name: int, pages: int, group: bool, by_slots: bool) -> Faults:
        """Books the release of a part of a line's own pages; with nothing left it starts anew."""
        self._remember(name)
        slots = self.lines[name].drop(pages, self.page_size)
        if not self.lines[name].slots:
            self._empty(name)
        return self.release(self.pages(slots), group, by_slots)

    def trim_line(self, name: int, kept: int, page_end: int, group: bool) -> Faults:
        """Books a trim to `kept` own slots; the pages behind slot `page_end` go back."""
        self._remember(name)
        line = self.lines[name]
        pages = self.pages(line.slots[page_end:])
        faults = self.ledger.drop(name, line.slots[kept:page_end])
        del line.slots[kept:]
        return faults + self.release(pages, group, by_slots=False)

    def _empty(self, name: int) -> None:
        self.lines[name] = Row(0, [])
        self.hits.pop(name, None)

    def release(self, ids: list[int], group: bool, by_slots: bool) -> Faults:
        for page in ids:
            self.holders.pop(page, None)
        return super().release(ids, group, by_slots)

    def reset(self, num_pages: int | None = None) -> None:
        for name in self.lines:
            self._remember(name)
            self._empty(name)
        self.holders.clear()
        super().reset(num_pages)

    # ---- what misuse looks for ----

    def free_rows(self) -> list[int]:
        return sorted(self.pool.ledger.available_pages())

    def foreign(self, page: int, handle: Handle) -> bool:
        """Whether another holder than this has the page; an anonymous one doesn't count."""
        return self.holders.get(page, handle) != handle


class LineModel(SlotModel):
    """The allocator's reference, its last snapshot, and the requests; commands draw from it."""

    side: LineSide

    def __init__(self, config: Any, reference: Any) -> None:
        super().__init__(config, reference, paged=True)

    def new_side(self) -> LineSide:
        return LineSide(self.config)

    @property
    def bound(self) -> bool:
        """Whether the allocator is bound to the table; no order decides that."""
        return self.reference.row_table is not None

    @property
    def line_names(self) -> list[int]:
        return list(self.side.lines)

    def line_pages(self, requests: Sequence[tuple[int, int]]) -> int:
        """New pages for appending (name, tokens) to lines."""
        size, total = self.page_size, 0
        for name, tokens in requests:
            prefix = self.side.lines[name].length
            total += -(-(prefix + tokens) // size) - -(-prefix // size)
        return total

    def room(self, name: int) -> int:
        """Tokens that a line's row still has columns for."""
        return int(self.config.width) - self.side.lines[name].length

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        found, side, size = super().situations(demand, allocates), self.side, self.page_size
        if found[:1] != ("half-filled page",) and size > 1 and any(
            line.length % size for line in side.lines.values()
        ):  # fmt: skip
            found = ("half-filled page", *found)
        for name, shared in side.hits.items():
            page = side.entry(side.row(name), shared - 1) // size
            if side.foreign(page, side.pool.held[name]):
                return (*found, SHARED_PAGE)
        return found

    #: which invariant a difference in one part of the snapshot is about, on the exact level
    difference: ClassVar[dict[str, str]] = {**SlotModel.difference, "table": "I33", "bound": "I28"}

    # ---- what must hold, whatever the order ----

    def change_faults(
        self, call: Call, before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any]
    ) -> Faults:
        """I9; a call that is served nothing may still have bound the allocator to its table."""
        if "bound" in before:
            before = {**before, "bound": self.bound}
        return super().change_faults(call, before, after, wanted)

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: Side,
    ) -> Faults:  # fmt: skip
        """As many rows as asked for, or what holds of slots."""
        if call.method != "alloc_rows":
            return super().count_faults(command, call, value, before, after, side)
        asked = call.args["need_size"]
        if len(value) == asked:
            return []
        return [("I6" if asked else "I68", f"{asked} rows asked, {len(value)} given: {value}")]

    def unserved(self, command: Command, call: Call, outcome: str) -> str:
        """Which invariant a call breaks that came to something else than the result due."""
        if call.method == "alloc_rows":
            return "I11" if call.args["need_size"] else "I68"
        if call.method == "free_rows_segment" and call.args["start"] == call.args["end"]:
            return "I55"
        return super().unserved(command, call, outcome)

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: Side
    ) -> Faults:
        """The allocator's lists, then the table, then who holds pages and rows."""
        assert isinstance(side, LineSide)
        faults = super().state_faults(command, before, after, side)
        faults = faults or length_faults(after, side.pool)
        faults = faults or _table_faults(before.get("table", ()), after.get("table", ()), side)
        faults = faults or _holder_faults(after, side)
        if faults or after.get("bound", self.bound) == self.bound:
            return faults or row_faults(before.get("rows", {}), after.get("rows", {}), side.pool)
        number = "I66" if command.name() in ("clear", "resize") else "I28"
        return [(number, f"the allocator's bound is {after['bound']}, due is {self.bound}")]


def _table_faults(before: Any, after: Any, side: LineSide) -> Faults:
    """I7, I33: entries that a call names are its slots, all others stay."""
    for row, line in enumerate(after):
        due = side.pool.table[row]
        if line == due:
            continue
        at = next((i for i, (a, b) in enumerate(zip(line, due, strict=False)) if a != b), 0)
        number = "I33" if due[at] == before[row][at] else "I7"
        return [(number, f"position {at} of row {row} is {line[at]} in the table, not {due[at]}")]
    return []


def _holder_faults(after: dict[str, Any], side: LineSide) -> Faults:
    """I34: every owned page is its holder's."""
    for page, holder in after.get("holders", {}).items():
        due = side.holders.get(page, "anonymous")
        if holder != due:
            return [("I34", f"page {page} is held by {holder}, by its last hand-out {due} has it")]
    return []
