"""The slow, exact half of the value checks: plain Python over the elements of a refused call.

The allocators decide with a few tensor operations whether anything may be wrong; only then are
these called, to find every fault and name the smallest. O(elements named). Spec: `spec/core.md`
§4 (misuse), §4b.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from impl.allocators.states import MEANING, NEVER, OWNED, PARKED_SLOTS
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

TODO: dict[type[PoolError], str] = {
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
    device_lens: tuple[list[int], list[int]],
    host_lens: tuple[list[int], list[int]],
    last_loc: list[int],
    states: Sequence[int],
    page_size: int,
) -> list[Fault]:
    """Faults of an extend; lengths as (prefix, seq), `states` of the pages of `last_loc`."""
    faults = []
    continued_by: dict[int, int] = {}
    for index, last in enumerate(last_loc):
        prefix, seq = host_lens[0][index], host_lens[1][index]
        device = device_lens[0][index], device_lens[1][index]
        if device != (prefix, seq):
            found = f"prefix and seq are {device} on the device, {(prefix, seq)} on the host"
            faults.append(Fault(BadLengths, index, found))
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
