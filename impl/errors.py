"""Misuse: `PoolError` and one class per kind of refusal, in the order of `spec/core.md` §4b.

The order is part of the behaviour: of several faults in one call the error names the smallest
(kind, index). A refused call has changed nothing, except that staged ids may have been sorted in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

# Enough to see a pattern in the ids, few enough to read.
MAX_IDS_SHOWN = 8


class PoolError(Exception):
    """A call that breaks the contract of a pool; says what was asked, found, and what to do."""

    rank: ClassVar[int] = -1


class NegativeSize(PoolError):
    """A size, count or position below its smallest legal value."""


class NotPageMultiple(PoolError):
    """A number of slots that isn't whole pages."""


class Misaligned(PoolError):
    """A segment that doesn't start at a page border."""


class OverlappingSegments(PoolError):
    """Segments of one call that aren't ascending or share a page of positions."""


class NotConsecutive(PoolError):
    """A segment whose slots aren't consecutive positions of whole pages."""


class BadLengths(PoolError):
    """Lengths that contradict each other, their host copies or the announced sums."""


class BadLastLoc(PoolError):
    """A last slot that doesn't fit the prefix, or whose half-filled page isn't owned."""


class OutOfRange(PoolError):
    """An id, position or value outside its range."""


class Reserved(PoolError):
    """An id of the reserved row, slot or page 0."""


class NotOwned(PoolError):
    """An id that was never issued since the last clear."""


class DoubleFree(PoolError):
    """An id that was issued, but is free, staged or parked already."""


class Duplicate(PoolError):
    """An id twice within one call, where that isn't legal."""


class TooMany(PoolError):
    """More ids returned than are out."""


class GroupOpen(PoolError):
    """A call that needs the free group closed."""


class GroupNotOpen(PoolError):
    """The end of a free group that was never begun."""


class RowNotHeld(PoolError):
    """A row that nobody holds."""


class RowWithoutKV(PoolError):
    """A request that brings a row without allocated KV."""


class StaleHandle(PoolError):
    """A handle whose row has been freed since."""


class StillOwned(PoolError):
    """A resize while ids are out, or a full slot let go, or paired anew, while it has a window."""


class NoWindowPeer(PoolError):
    """A full slot that has no live window slot where one is needed."""


class WrongDtype(PoolError):
    """An argument of a type that isn't accepted there."""


class WrongDevice(PoolError):
    """A tensor on another device than expected."""


class WrongShape(PoolError):
    """A tensor of another shape than expected."""


class Unsupported(PoolError):
    """An operation or option that this class doesn't have."""


KINDS: tuple[type[PoolError], ...] = (
    NegativeSize, NotPageMultiple, Misaligned, OverlappingSegments, NotConsecutive, BadLengths,
    BadLastLoc, OutOfRange, Reserved, NotOwned, DoubleFree, Duplicate, TooMany, GroupOpen,
    GroupNotOpen, RowNotHeld, RowWithoutKV, StaleHandle, StillOwned, NoWindowPeer, WrongDtype,
    WrongDevice, WrongShape, Unsupported,
)  # fmt: skip

for _rank, _kind in enumerate(KINDS):
    _kind.rank = _rank


class Fault(NamedTuple):
    """One thing wrong with one element of a call."""

    kind: type[PoolError]
    at: int
    found: str


def refusal(
    call: str, faults: Sequence[Fault], advice: dict[type[PoolError], str]
) -> PoolError | None:
    """The error of the smallest (kind, index) of `faults`; None if there are none."""
    if not faults:
        return None
    kind = min((fault.kind for fault in faults), key=lambda each: each.rank)
    named = sorted((f for f in faults if f.kind is kind), key=lambda fault: fault.at)
    shown = "; ".join(f"[{fault.at}] {fault.found}" for fault in named[:MAX_IDS_SHOWN])
    more = len(named) - MAX_IDS_SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    do = advice.get(kind, "")
    return kind(f"{call}: {shown}{rest}" + (f". {do}." if do else "."))


def refuse(call: str, faults: Sequence[Fault], advice: dict[type[PoolError], str]) -> None:
    """Raise the smallest (kind, index) of `faults`; do nothing if there are none."""
    if (error := refusal(call, faults, advice)) is not None:
        try:
            raise error
        finally:
            del error  # see `checks.raise_first`
