"""The slow, exact half of the value checks: plain Python over the elements of a refused call.

The allocators decide with a few tensor operations whether anything may be wrong; only then are
these called, to find every fault and name the smallest. O(elements named). Spec: `spec/core.md`
§4 (misuse), §4b.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from impl.allocators.states import (
    BEYOND,
    MEANING,
    NEVER,
    OWNED,
    PARKED_SLOTS,
    RESERVED,
)
from impl.errors import (
    BadLastLoc,
    BadLengths,
    DoubleFree,
    Duplicate,
    Fault,
    NotConsecutive,
    NotOwned,
    OutOfRange,
    PoolError,
    Reserved,
)
from impl.rows import Handle

#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    NotConsecutive: "Give the slots of consecutive positions from a page border on, or use free",
    BadLengths: "Keep the host copies equal to the device's lengths",
    BadLastLoc: "Give the slot of position prefix - 1, of a page that is out; -1 without a prefix",
    OutOfRange: "Free only what this pool issued",
    Reserved: "The reserved page is never issued: drop padding before the call",
    NotOwned: "Free only what was issued since the last clear",
    DoubleFree: "Free each page once",
    Duplicate: "Name each once per call",
}


def _page_fault(index: int, what: str, page: int, num_pages: int, state: int) -> Fault:
    """The fault of one id whose page isn't owned."""
    if not 0 <= page <= num_pages:
        return Fault(OutOfRange, index, f"{what} is outside pages 1..{num_pages}")
    if page == 0:
        return Fault(Reserved, index, f"{what} is reserved")
    if state == NEVER:
        return Fault(NotOwned, index, f"{what} is {MEANING[state]}")
    return Fault(DoubleFree, index, f"{what} is {MEANING[state]}")


def of_pages(
    items: Iterable[tuple[int, int]], states: Sequence[int], num_pages: int
) -> list[Fault]:
    """Faults of (index, page) pairs named once each; `states` in the same order."""
    faults = []
    first_at: dict[int, int] = {}
    for (index, page), state in zip(items, states, strict=True):
        if state != OWNED:
            faults.append(_page_fault(index, f"page {page}", page, num_pages, state))
        elif page in first_at:
            at = first_at[page]
            faults.append(Fault(Duplicate, index, f"page {page} was named at {at} already"))
        first_at.setdefault(page, index)
    return faults


def of_dead(slots: Iterable[int], states: Sequence[int]) -> list[Fault]:
    """Slots whose pages nobody owns, of a call that gives nothing back; `states` of the pages."""
    faults = []
    for index, (slot, state) in enumerate(zip(slots, states, strict=True)):
        if state == OWNED:
            continue
        kind: type[PoolError] = NotOwned
        if state == BEYOND or slot < 0:
            kind, state = OutOfRange, BEYOND
        elif state == RESERVED:
            kind = Reserved
        faults.append(Fault(kind, index, f"slot {slot}: its page is {MEANING[state]}"))
    return faults


def twice(slots: Sequence[int]) -> list[Fault]:
    """Slots that are named again."""
    first_at: dict[int, int] = {}
    return [
        Fault(Duplicate, at, f"slot {slot} was named at {first_at[slot]} already")
        for at, slot in enumerate(slots)
        if first_at.setdefault(slot, at) < at
    ]


def of_slots(
    segments: Sequence[Sequence[int]], states: Sequence[int], page_size: int, num_pages: int
) -> list[Fault]:
    """Faults of slots that free their pages; a page in two of `segments` is a `Duplicate`.

    Indices count through all segments, and `states` has one entry per slot in that order.
    """
    faults = []
    segment_of: dict[int, int] = {}
    index = 0
    for number, slots in enumerate(segments):
        for slot in slots:
            page, state = slot // page_size, states[index]
            what = f"slot {slot} (page {page})"
            if state not in (OWNED, PARKED_SLOTS):
                faults.append(_page_fault(index, what, page, num_pages, state))
            elif segment_of.setdefault(page, number) != number:
                found = f"{what} belongs to segment {segment_of[page]} already"
                faults.append(Fault(Duplicate, index, found))
            index += 1
    return faults


def of_consecutive(segments: Sequence[Sequence[int]], page_size: int) -> list[Fault]:
    """Slots that aren't where their segment's pages put them."""
    faults = []
    index = 0
    for slots in segments:
        for at, slot in enumerate(slots):
            offset = at % page_size
            first = slots[at - offset]
            if offset == 0 and slot % page_size:
                faults.append(Fault(NotConsecutive, index, f"slot {slot} doesn't start a page"))
            elif slot != first + offset:
                found = f"slot {slot} where {first + offset} was expected"
                faults.append(Fault(NotConsecutive, index, found))
            index += 1
    return faults


def of_batch(
    lens: Sequence[tuple[list[int], list[int]]],
    last_loc: list[int],
    states: Sequence[int],
    page_size: int,
) -> list[Fault]:
    """Faults of an extend or decode; lengths as (device, host), of prefix and seq or of seq only.

    `states` are those of the pages of `last_loc`.
    """
    faults = []
    continued_by: dict[int, int] = {}
    for index, last in enumerate(last_loc):
        device = tuple(on_device[index] for on_device, _ in lens)
        host = tuple(on_host[index] for _, on_host in lens)
        if device != host:
            found = f"the lengths are {device} on the device, {host} on the host"
            faults.append(Fault(BadLengths, index, found))
        seq = host[-1]
        prefix = host[0] if len(host) > 1 else seq - 1
        page, offset = last // page_size, prefix % page_size
        if (last + 1) % page_size != offset or (prefix == 0 and last != -1):
            found = f"last_loc {last} doesn't fit a prefix of {prefix}"
            faults.append(Fault(BadLastLoc, index, found))
        elif offset and states[index] != OWNED:
            found = f"page {page} of last_loc {last} is {MEANING[states[index]]}"
            faults.append(Fault(BadLastLoc, index, found))
        elif offset and seq > prefix and continued_by.setdefault(page, index) != index:
            found = f"page {page} is continued by request {continued_by[page]} already"
            faults.append(Fault(Duplicate, index, found))
    return faults


def of_rows(
    rows: tuple[list[int], list[int], list[int]],
    prefix_lens: list[int],
    last_loc: list[int],
    holders: Sequence[Handle | None],
    page_size: int,
) -> list[Fault]:
    """Faults of a batch through the table; rows as (device, host, generation).

    `last_loc` is what the table has before the new positions, `holders` are those of its pages.
    """
    faults = []
    for index, (on_device, row, generation) in enumerate(zip(*rows, strict=True)):
        last, prefix = last_loc[index], prefix_lens[index]
        if on_device != row:
            found = f"the row is {on_device} on the device, {row} on the host"
            faults.append(Fault(BadLengths, index, found))
        if prefix and last < page_size:
            found = f"entry ({row}, {prefix - 1}) is {last}: it was never written"
            faults.append(Fault(BadLastLoc, index, found))
        holder = holders[index]
        if prefix % page_size and holder is not None and holder != (row, generation):
            found = f"page {last // page_size} of row {row}'s last slot {last} {_held(holder)}"
            faults.append(Fault(BadLastLoc, index, found))
    return faults


def of_strangers(
    items: Iterable[tuple[int, int]], holders: Sequence[Handle | None], due: Handle
) -> list[Fault]:
    """Pages, as (index, page), that another than `due` holds; `holders` in the same order."""
    return [
        Fault(NotOwned, index, f"page {page} {_held(holder)}, not by {tuple(due)}")
        for (index, page), holder in zip(items, holders, strict=True)
        if holder is not None and holder != due
    ]


def _held(holder: Handle) -> str:
    return f"is held by row {holder.row}, generation {holder.generation}"
