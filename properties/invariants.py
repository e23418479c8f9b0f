"""The catalogue of invariants: one exception class for each numbered statement.

Numbers are those of the project's bug list; a check, a test and a failure message always name the
invariant they are about. `waits_for` says which system brings the check where none has it yet.
"""

from __future__ import annotations

from typing import ClassVar


class Violation(AssertionError):
    """An invariant that does not hold; one subclass for each number."""

    number: ClassVar[str] = "I?"
    title: ClassVar[str] = ""
    statement: ClassVar[str] = ""
    waits_for: ClassVar[str] = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.number} ({self.title}): {self.message}"


_HERE = ""
_UNIFIED, _CACHE, _STORE = "unified", "prefix cache", "storage"
_SIZING = "sizing"
# One run can't show it: that a check misses nowhere is what the marks are for (each misuse refused
# in each situation), that implementations agree is what each one's own lockstep adds up to.
_SUM = "all runs together"

# number, title, statement, the system it waits for
_TABLE: tuple[tuple[int, str, str, str], ...] = (
    (1, "unique free list", "no id stands twice in free, staged and parked together", _HERE),
    (2, "conservation", "free, staged, parked and owned ids are exactly 1..C, by census", _HERE),
    (3, "reserved id", "page, slot and row 0 are never free and never handed out", _HERE),
    (4, "frees are checked", "a freed id is in range and live; anything else is refused", _HERE),
    (5, "released once", "an id is released exactly once between two allocations", _HERE),
    (6, "pages taken are pages given", "pages in a result = pages that left the free list", _HERE),
    (7, "row arithmetic", "row[j] lies in page j // B of the row, at offset j % B", _HERE),
    (8, "no read past the free list", "what does not fit is None: tight, one short, empty", _HERE),
    (9, "failure changes nothing", "a call that gives None or refuses changes no state", _HERE),
    (10, "one result", "the result depends on neither implementation nor history", _SUM),
    (11, "completeness", "a call that the available pages cover succeeds", _HERE),
    (12, "last_loc", "a continued page is the page of the previous token", _HERE),
    (13, "recorded lengths", "release follows recorded lengths, never inference", _CACHE),
    (14, "demand", "predicted demand is at least the real demand", _HERE),
    (15, "admission", "what is admitted can be allocated", _SIZING),
    (16, "no livelock", "what fits an empty pool is admitted in the end", _SIZING),
    (17, "window map", "the map is non-zero exactly for live window pages", _HERE),
    (18, "window map reset", "allocation resets each map entry that it hands out", _HERE),
    (19, "checks everywhere", "every check holds for each class, page size, mode and group", _SUM),
    (20, "deferred frees", "a parked or staged free acts like an immediate one", _HERE),
    (21, "group protocol", "groups are paired, never nested, and lose no free", _HERE),
    (22, "siblings agree", "the ways to free agree where all of them apply", _HERE),
    (23, "no window peer", "'no peer' has one representation", _HERE),
    (24, "window frontier", "the frontier is page aligned, monotone, a window behind", _HERE),
    (25, "stable row", "the row of a live request does not change", _HERE),
    (26, "alloc for holders", "alloc is idempotent for holders and all-or-nothing", _HERE),
    (27, "references cleared", "free clears every reference on the holder", _HERE),
    (28, "generations", "generations never go back; a stale handle is detected", _HERE),
    (29, "table lengths", "the highest id is below the length of each table it indexes", _HERE),
    (30, "row width", "an allocated length fits the row", _HERE),
    (31, "every exit releases", "each exit edge releases every class of resource", _HERE),
    (32, "allocated length", "committed <= allocated = what the allocator took", _HERE),
    (33, "entries overwritten", "an entry is overwritten only by a write that names it", _HERE),
    (34, "single owner", "no id has two owners, no owned id is free", _HERE),
    (35, "partial release", "a page goes back exactly when none of its tokens is kept", _HERE),
    (36, "segments", "segments are aligned, consecutive, disjoint: one page, one release", _HERE),
    (37, "index spaces", "ids are translated once, one to one", _HERE),
    (38, "backup and restore", "backup then restore is the identity", _HERE),
    (39, "replication counted", "replicated bytes are counted", _SIZING),
    (40, "tree cuts", "the tree is cut at page boundaries", _CACHE),
    (41, "live rows, live ids", "a live row refers to live ids only", _HERE),
    (42, "locks", "a lock covers the node and its path", _CACHE),
    (43, "ownership transfer", "ownership passes between tree and request exactly", _HERE),
    (44, "progress", "the prefix after a chunk is what was committed", _CACHE),
    (45, "idempotent caching", "caching an unfinished request twice changes nothing", _CACHE),
    (46, "tree census", "evictable + protected = census of the tree", _CACHE),
    (47, "soft failure", "a short optional resource degrades", _HERE),
    (48, "compaction", "compaction keeps content and the id map", _UNIFIED),
    (49, "cached capacity", "a cached capacity equals the recomputed one", _UNIFIED),
    (50, "joint feasibility", "capacity is judged jointly", _UNIFIED),
    (51, "borrowing", "conservation holds under borrowing", _UNIFIED),
    (52, "granularity", "ids come in whole pages of the public page size", _HERE),
    (53, "whole interface", "a wrapper implements the whole interface", _HERE),
    (54, "results own their storage", "results and arguments share no storage with it", _HERE),
    (55, "empty frees", "empty frees are no-ops; equal calls give equal states", _HERE),
    (56, "reserved content", "the reserved slot keeps finite, unchanged content", _HERE),
    (57, "writes to live slots", "a write goes only to live slots of its writer", _HERE),
    (58, "moves", "a move copies exactly the named rows", _HERE),
    (59, "large offsets", "offsets are exact for the largest slot", _STORE),
    (60, "no stale reads", "nothing is read before its owner wrote it", _HERE),
    (61, "reported bytes", "reported bytes are the bytes of the tensors", _HERE),
    (62, "inverse formulas", "the capacity formula and its inverse agree", _SIZING),
    (63, "reference counts", "a count equals the number of owners", _CACHE),
    (64, "hash index", "hash and block indexes are inverse", _CACHE),
    (65, "outstanding reader", "an id with a reader or writer is not allocatable", _HERE),
    (66, "clear", "clear refills everything; frees from before it are refused", _HERE),
    (67, "monotone demand", "demand is monotone in tokens", _SIZING),
    (68, "sizes", "zero is a no-op, a negative size is refused", _HERE),
    (69, "tiers agree", "list membership and tier field agree", _CACHE),
    (70, "re-entrancy", "eviction inside a call spares the call's own objects", _CACHE),
    (71, "exact order", "slots and free lists equal the reference's, in order", _HERE),
)  # fmt: skip

CATALOGUE: dict[str, type[Violation]] = {
    f"I{number}": type(
        f"I{number}",
        (Violation,),
        {
            "number": f"I{number}",
            "title": title,
            "statement": statement,
            "waits_for": waits_for,
            "__doc__": f"I{number}: {statement}.",
        },
    )
    for number, title, statement, waits_for in _TABLE
}


class Died(Violation):
    """The subject ended its process."""

    number, title, statement = "died", "process died", "no call ends the process"


class Hung(Violation):
    """The subject didn't come back."""

    number, title, statement = "hung", "no end", "every call ends, in far less time than it got"


#: what no check can find, since there is nobody left to check
FATAL: dict[str, type[Violation]] = {kind.number: kind for kind in (Died, Hung)}

_GROUP = dict.fromkeys(("GroupOpen", "GroupNotOpen"), "I21")
_SEGMENT = dict.fromkeys(("Misaligned", "OverlappingSegments", "NotConsecutive"), "I36")
_SIZES = dict.fromkeys(("NegativeSize",), "I68")
_STATE = {"StaleHandle": "I28", "RowWithoutKV": "I26", "NoWindowPeer": "I23"}
_MISSED = {**_GROUP, **_SEGMENT, **_SIZES, **_STATE}
# A legal release refused because the subject counts one page more than once is about the list.
_WRONGFUL = {**_MISSED, "Duplicate": "I1", "TooMany": "I1"}


def of_missed_refusal(kind: str) -> str:
    """The invariant that a call breaks which should have been refused with `kind`."""
    return _MISSED.get(kind, "I4")


def of_wrongful_refusal(kind: str) -> str:
    """The invariant that a refusal of a legal call breaks, by the kind the subject gave."""
    return _WRONGFUL.get(kind, "I4")


def violation(number: str, message: str) -> Violation:
    """The exception for invariant `number` (a key of CATALOGUE, or of FATAL)."""
    return {**FATAL, **CATALOGUE}[number](message)
