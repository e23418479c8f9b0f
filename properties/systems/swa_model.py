"""What the harness knows about the sliding-window pair, beside what it knows of the full side.

Full slots have owners in the ledger; of windows the model knows which full slots are mapped, and
how many window pages that makes. Follows `spec/swa_unified.md` §2.13.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar

from properties.commands import Command
from properties.subjects.swa import shown
from properties.systems.slot_model import SITUATIONS as SINGLE
from properties.systems.slot_model import Faults, Side, SlotModel

SITUATIONS = (*SINGLE, "windows gone")


class WindowSide(Side):
    """Requests with their windows: which slots of which full pages are mapped."""

    def __init__(self, num_pages: int, num_windows: int, page_size: int) -> None:
        super().__init__(num_pages, page_size)
        self.num_windows = num_windows
        #: full page → its slots that have window slots
        self.mapped: dict[int, set[int]] = {}
        #: full pages whose windows the open group has released; how many window pages those are
        self.released: set[int] = set()
        self.parked_windows = 0
        #: requests between two turns: what they hold is their sessions'
        self.sessions: set[int] = set()

    def map(self, slots: Iterable[int]) -> None:
        """These slots have window slots."""
        for slot in slots:
            self.mapped.setdefault(slot // self.page_size, set()).add(slot)

    def unmap(self, slots: Iterable[int]) -> None:
        """These slots have none any more, though their pages keep theirs."""
        for slot in slots:
            self.mapped.get(slot // self.page_size, set()).discard(slot)

    def let_go(self, pages: Iterable[int], group: bool) -> None:
        """The windows of these pages go back."""
        for page in pages:
            if self.mapped.pop(page, None) is not None and group:
                self.released.add(page)
                self.parked_windows += 1

    def live(self, slots: Sequence[int]) -> list[bool]:
        """Whether each page of these slots of a row has a window."""
        size = self.page_size
        return [slot // size in self.mapped for slot in slots[::size]]

    def end_group(self) -> None:
        super().end_group()
        self.released, self.parked_windows = set(), 0

    def give(self, name: int, pages: int, group: bool, by_slots: bool) -> Faults:
        faults = super().give(name, pages, group, by_slots)
        self.sessions.intersection_update(self.rows)
        return faults

    def reset(self, num_pages: int | None = None) -> None:
        super().reset(num_pages)
        self.sessions.clear()
        self.mapped.clear()
        self.released, self.parked_windows = set(), 0

    def available_windows(self) -> int:
        """Window pages that are neither a page's peer nor parked."""
        return self.num_windows - len(self.mapped) - self.parked_windows


class SWAModel(SlotModel):
    """Commands draw from both sides: what fits is what fits on both."""

    side: WindowSide

    def __init__(self, config: Any, reference: Any) -> None:
        super().__init__(config, reference, paged=config.page_size > 1)
        self.rings = config.ring > 0
        self.state = shown(reference)

    def new_side(self) -> WindowSide:
        num_windows = 0 if self.config.ring else self.config.num_windows
        return WindowSide(self.config.num_pages, num_windows, self.config.page_size)

    @property
    def available_pages(self) -> int:
        full = super().available_pages
        return full if self.rings else min(full, self.available_windows)

    @property
    def available_windows(self) -> int:
        """Window pages free or staged."""
        return len(self.state["window_free"]) + len(self.state["window_staged"])

    @property
    def growable(self) -> list[int]:
        """Requests in a turn that don't end in a half-filled page without its window."""
        rows, sessions = self.side.rows, self.side.sessions
        return [name for name in rows if name not in sessions and self.can_grow(name)]

    def can_grow(self, name: int) -> bool:
        row = self.side.rows[name]
        half = row.length % self.page_size
        return not half or self.rings or row.slots[-1] // self.page_size in self.side.mapped

    def fitting(self, name: int, gives: str) -> list[int]:
        """How many pages from the front (> 0) or the back (< 0) a call can give back, 0 for all.

        `gives`: "full" pages must have no windows, all others must have theirs.
        """
        slots = self.side.rows[name].slots
        if self.rings:
            return _ends([True] * -(-len(slots) // self.page_size))
        wanted = gives != "full"
        return _ends([live == wanted for live in self.side.live(slots)])

    def gone(self, name: int) -> int:
        """How many pages at the front of a request have no windows any more."""
        live = self.side.live(self.side.rows[name].slots)
        return live.index(True) if True in live else len(live)

    # ---- what decides all that can follow ----

    def shown_key(self, state: dict[str, Any]) -> Hashable:
        named = [(key, value) for key, value in state.items() if key.startswith("window_")]
        window = {key.removeprefix("window_"): value for key, value in named}
        return (
            super().shown_key(state), super().shown_key(window),
            tuple(state.get("mapping", ())), tuple(state.get("again", ())),
        )  # fmt: skip

    def requests_key(self, side: Side, order: Sequence[int]) -> Hashable:
        assert isinstance(side, WindowSide)
        between = tuple(name in side.sessions for name in order)
        # who knows which pages they are names a violation with them, and nothing else
        released = frozenset() if self.exact else frozenset(side.released)
        return super().requests_key(side, order), released, side.parked_windows, between

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        found = set(super().situations(demand, allocates))
        spare = self.available_pages - demand
        found -= {"exactly full", "one short"}
        if spare == 0:
            found.add("exactly full")
        if spare == (-1 if allocates else 1):
            found.add("one short")
        if self.state["window_staged"] and not self.state["window_free"]:
            found.add("everything staged")
        if any(self.gone(name) for name in self.side.rows):
            found.add("windows gone")
        return tuple(each for each in SITUATIONS if each in found)

    #: which invariant a difference in one part of the snapshot is about, on the exact level
    difference: ClassVar[dict[str, str]] = {
        **SlotModel.difference, "mapping": "I17", "again": "I20", "available_swa": "I2",
        "available_pair": "I2",
    }  # fmt: skip

    # ---- what must hold, whatever the order ----

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: Side
    ) -> Faults:
        """The full side's, then I23, I17, I18, I20, I1, I3, I34, I2 of the windows."""
        assert isinstance(side, WindowSide)
        faults = super().state_faults(command, before, after, side)
        faults = faults or self._capacity_faults(after, side)
        if faults or self.rings:
            return faults
        if "mapping" in after:
            faults = self._map_faults(command, after["mapping"], side)
        if not faults and "window_free" in after:
            faults = self._window_faults(after, side)
        return faults

    def _capacity_faults(self, after: dict[str, Any], side: WindowSide) -> Faults:
        due = side.ledger.num_available_pages()
        if not self.rings:
            due = min(due, side.available_windows())
        due *= self.page_size
        if after.get("available_pair", due) != due:
            return [("I2", f"available_size() is {after['available_pair']}, {due} by both sides")]
        return []

    def _map_faults(self, command: Command, mapping: list[int], side: WindowSide) -> Faults:
        *entries, last = mapping
        if last != -1 or min(entries) < 0 or any(entries[: self.page_size]):
            return [("I23", f"the map {mapping} says other than 0 of no window, -1 of no slot")]
        mapped = {slot for slots in side.mapped.values() for slot in slots}
        found = {slot for slot, window in enumerate(entries) if window}
        if stale := sorted(found - mapped):
            text = f"slots {stale} are mapped to {[entries[slot] for slot in stale]}, due is 0"
            if side.released.issuperset(slot // self.page_size for slot in stale):
                return [("I20", f"{text}: the open group has released their windows")]
            if hasattr(command, "chunks"):
                return [("I18", f"{text}: what they had before they were handed out")]
            return [("I17", text)]
        if lacking := sorted(mapped - found):
            return [("I17", f"slots {lacking} are mapped to nothing, they have windows")]
        return self._step_faults(entries, side)

    def _step_faults(self, entries: list[int], side: WindowSide) -> Faults:
        owner: dict[int, int] = {}
        for page, slots in side.mapped.items():
            peers = {entries[slot] // self.page_size for slot in slots}
            offsets = [entries[slot] % self.page_size == slot % self.page_size for slot in slots]
            if len(peers) > 1 or not all(offsets):
                windows = {slot: entries[slot] for slot in sorted(slots)}
                return [("I17", f"page {page}'s window slots are out of step: {windows}")]
            for peer in peers:
                if owner.setdefault(peer, page) != page:
                    return [("I17", f"window page {peer} is that of pages {owner[peer]}, {page}")]
        return []

    def _window_faults(self, after: dict[str, Any], side: WindowSide) -> Faults:
        listed = [*after["window_free"], *after["window_staged"]]
        if len(set(listed)) < len(listed):
            return [("I1", f"window pages {sorted(listed)} are listed, one of them twice")]
        if outside := [page for page in listed if not 0 < page <= side.num_windows]:
            return [("I3", f"window pages {outside} are listed and aren't any")]
        peers = {entry // self.page_size for entry in after.get("mapping", (-1,))[:-1] if entry}
        if both := sorted(peers.intersection(listed)):
            return [("I34", f"window pages {both} are mapped and listed as free")]
        due = side.available_windows()
        counts = {"listed": len(listed)}
        if "available_swa" in after:
            counts["available"] = after["available_swa"] // self.page_size
        for what, count in counts.items():
            if count != due:
                return [("I2", f"{count} window pages are {what}, by the requests {due}")]
        return []


def _ends(wanted: list[bool]) -> list[int]:
    """Counts of pages from either end that are all wanted, 0 where all are."""
    if not wanted or all(wanted):
        return [0, *range(1, len(wanted)), *range(-1, -len(wanted), -1)]
    front = wanted.index(False)
    back = wanted[::-1].index(False)
    return [*range(1, front + 1), *range(-1, -back - 1, -1)]
