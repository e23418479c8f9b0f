"""The host's slot allocator: whole pages, first in, first out, checked on every free.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.4. Slots begin at 0 and the extra page of the
capacity formula is one like the others: nothing is reserved here (§8, Q12).
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch

from impl import checks
from impl.errors import (
    DoubleFree,
    Duplicate,
    Fault,
    NotOwned,
    NotPageMultiple,
    OutOfRange,
    PoolError,
    StillOwned,
    TooMany,
    refuse,
)
from impl.host.pins import Mask, Pins, Slots

#: what a page is: never handed out since the last clear, free again, or somebody's
FRESH, FREE, OUT = range(3)
#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    NotPageMultiple: "Free whole pages",
    OutOfRange: "Use slots that alloc returned",
    NotOwned: "Use slots between their hand-out and their free",
    DoubleFree: "Free each slot once",
    Duplicate: "Name each once per call",
    StillOwned: "Wait until the transfer has finished",
}


class HostSlots:
    """Slots 0..size-1 in pages of `page_size`, on the host.

    Any thread may call any method: a re-entrant lock makes each call one step, and a caller that
    needs several as one step holds `lock` around them. What was freed is handed out again behind
    everything that has been free for longer. Raises `NegativeSize`, `OutOfRange`,
    `NotPageMultiple` for a size that isn't whole pages, `WrongDtype`. O(size). Spec: §4.4.
    """

    def __init__(self, size: int, page_size: int) -> None:
        self.page_size = checks.host_size(page_size, "page_size", 1)
        self.size = checks.pool_size(size, self.page_size)
        num_pages, rest = divmod(self.size, self.page_size)
        if rest:
            raise NotPageMultiple(
                f"size {self.size} isn't whole pages of {self.page_size}. Round it up."
            )
        self.num_pages = num_pages
        self.lock = threading.RLock()
        self._pins = Pins(self.size)
        self._offsets = np.arange(self.page_size)
        self.clear()

    def clear(self) -> None:
        """All slots free, ascending. `StillOwned` while a transfer is under way. O(size). §4.4."""
        with self.lock:
            if self._pins.num_pinned:
                found = f"clear: {self._pins.num_pinned} slots are in transfers"
                raise StillOwned(f"{found}. Wait until they have finished.")
            # a ring: the free pages are `_num_free` of them from `_head` on
            self._ring = torch.arange(self.num_pages)
            self._head, self._num_free = 0, self.num_pages
            self._pages = np.full(self.num_pages, FRESH, dtype=np.uint8)

    def available_size(self) -> int:
        """Slots that are free. O(1). Spec: §4.4."""
        return self._num_free * self.page_size

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Slots of the pages that are free for longest, int64 [need_size] on the CPU.

        None when short, and then nothing has changed. Each page is consecutive and ascending.
        Raises `NegativeSize`, `NotPageMultiple`, `WrongDtype`. O(need_size). Spec: §4.4.
        """
        count = checks.host_size(need_size, "need_size")
        num_pages, rest = divmod(count, self.page_size)
        if rest:
            raise NotPageMultiple(
                f"alloc({count}): not a multiple of the page size {self.page_size}. Round it up."
            )
        with self.lock:
            if num_pages > self._num_free:
                return None
            pages = self._ring.numpy()[self._places(self._head, num_pages)]
            self._head += num_pages
            self._num_free -= num_pages
            self._pages[pages] = OUT
        return torch.from_numpy((pages[:, None] * self.page_size + self._offsets).ravel())

    def free(self, free_index: torch.Tensor) -> int:
        """Give back whole pages, int32 or int64 [k] on any device; how many slots they are.

        Pages go to the end of the list in the order of their first slots. Reads the ids back from
        the device. Raises `NotPageMultiple`, `OutOfRange`, `NotOwned`, `DoubleFree`, `Duplicate`,
        `TooMany`, `StillOwned` for slots in a transfer, `WrongDtype`, `WrongShape`; then nothing
        is freed. O(k log k). Spec: §4.4, §8 Q13.
        """
        slots = on_host(free_index, "free_index")
        if len(slots) % self.page_size:
            found = f"free: {len(slots)} slots, pages have {self.page_size}"
            raise NotPageMultiple(f"{found}. {ADVICE[NotPageMultiple]}.")
        with self.lock:
            distinct, out = len(np.unique(slots)), self.size - self.available_size()
            if distinct > out:
                raise TooMany(f"free: {distinct} slots given back, {out} are out. Free each once.")
            refuse("free", self._faults(slots, writing=True, whole=True), ADVICE)
            pages, offsets = np.divmod(slots, self.page_size)
            pages = pages[offsets == 0]
            end = self._head + self._num_free
            self._ring.numpy()[self._places(end, len(pages))] = pages
            self._num_free += len(pages)
            self._pages[pages] = FREE
        return len(slots)

    def _places(self, start: int, count: int) -> Slots:
        """So many places of the ring, one after the other."""
        return np.arange(start, start + count) % max(1, self.num_pages)

    # For the pools of these slots

    def _faults(self, slots: Slots, *, writing: bool, whole: bool = False) -> list[Fault]:
        """What is wrong with slots to be read, or written, or given back as `whole` pages."""
        inside = (slots >= 0) & (slots < self.size)
        # what is outside stands for slot 0 here: that it is outside is named before all else
        pages = np.where(inside, slots, 0) // self.page_size
        state = self._pages[pages] if self.size else np.full(len(slots), OUT)
        wrong: dict[type[PoolError], tuple[Mask, str]] = {
            OutOfRange: (~inside, f"is outside 0..{self.size - 1}"),
            NotOwned: (state == FRESH, "was not issued since clear"),
            DoubleFree: (state == FREE, "is free already"),
            StillOwned: (self._busy(slots, inside, writing), "is in a transfer"),
        }
        if writing:
            wrong[Duplicate] = (repeated(slots), "was named already")
        if whole:
            torn = inside & ~np.isin(pages, self._whole_pages(slots[inside]))
            wrong[NotPageMultiple] = (torn, "is of a page that isn't all there")
        return faults_at(slots, wrong)

    def _busy(self, slots: Slots, inside: Mask, writing: bool) -> Mask:
        found = np.zeros(len(slots), dtype=np.bool_)
        found[inside] = self._pins.busy(slots[inside], writing)
        return found

    def _whole_pages(self, slots: Slots) -> Slots:
        """Pages of which every slot is there."""
        pages, counts = np.unique(np.unique(slots) // self.page_size, return_counts=True)
        found: Slots = pages[counts == self.page_size]
        return found

    # Inspection

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping as plain Python: size, free slots in order, owned, issued, pins."""
        with self.lock:
            free = self._ring.numpy()[self._places(self._head, self._num_free)]
            return {
                "size": self.size,
                "free": self._slots_of(free),
                "owned": self._slots_of(np.flatnonzero(self._pages == OUT)),
                "issued": self._slots_of(np.flatnonzero(self._pages != FRESH)),
                "pinned": self._pins.snapshot(),
            }

    def _slots_of(self, pages: Slots) -> list[int]:
        found: list[int] = (pages[:, None] * self.page_size + self._offsets).ravel().tolist()
        return found

    def audit(self) -> list[str]:
        """Recount everything from scratch: violated invariants, [] when healthy. O(size)."""
        state = self.snapshot()
        listed, owned = state["free"], state["owned"]
        problems = []
        if sorted(listed + owned) != list(range(self.size)):
            problems.append(
                f"I34: free {listed} and owned {owned} slots aren't a partition of "
                f"0..{self.size - 1}"
            )
        if stray := sorted(state["pinned"].keys() - set(owned)):
            problems.append(f"I65: slots {stray} are in transfers, and nobody's")
        return problems


def on_host(value: Any, name: str) -> Slots:
    """Ids int32 or int64 [k] of any device as an array of its own; waits for the device."""
    checks.require_ids(value, name, getattr(value, "device", checks.CPU))
    ids: Slots = value.to("cpu", torch.int64, copy=True).numpy()
    return ids


def repeated(slots: Slots) -> Mask:
    """Which of `slots` stood there before."""
    found = np.ones(len(slots), dtype=np.bool_)
    found[np.unique(slots, return_index=True)[1]] = False
    return found


def faults_at(slots: Slots, wrong: dict[type[PoolError], tuple[Mask, str]]) -> list[Fault]:
    """The faults that masks over `slots` say."""
    return [
        Fault(kind, int(at), f"slot {slots[at]} {what}")
        for kind, (mask, what) in wrong.items()
        if mask.any()
        for at in np.flatnonzero(mask)
    ]
