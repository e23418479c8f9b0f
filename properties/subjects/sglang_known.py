"""What SGLang 0.5.23's token and paged allocators are known to do wrong, as tables.

`test_sglang.py` has the harness search for each entry and find exactly these. The first table is
about legal use; the second about misuse: what is not in it is refused, with nothing changed.
"""

from __future__ import annotations

from dataclasses import dataclass

#: reported upstream: nothing detects a double free (issue and open fix)
DOUBLE_FREE = "sglang #40305, #40348"
#: the same design in another engine, fixed there
BAD_IDS = "mllm #688"
#: nobody has reported it that we know of
UNREPORTED = ""


@dataclass(frozen=True)
class Shared:
    """A legal call whose argument or result shares storage with the pool (I54)."""

    system: str
    method: str
    what: str


@dataclass(frozen=True)
class Known:
    """One kind of misuse that is accepted (or, under I9, refused but not without effect).

    `invariant` is what the harness names; `other` what it names for the methods listed there.
    """

    systems: tuple[str, ...]
    command: str
    kind: str
    invariant: str
    upstream: str = UNREPORTED
    other: tuple[tuple[str, str, str], ...] = ()  # (system, method, invariant)

    def expected(self, system: str, method: str) -> str:
        """The invariant that this misuse through this method breaks."""
        for other_system, other_method, invariant in self.other:
            if (system, method) == (other_system, other_method):
                return invariant
        return self.invariant


@dataclass(frozen=True)
class Broken:
    """A legal call that breaks an invariant, the driver being kept off it otherwise."""

    system: str
    method: str
    invariant: str
    what: str


BROKEN: tuple[Broken, ...] = (
    Broken(
        "state_slots", "clear", "I66", "inside a group, parked slots stay beside the whole list"
    ),
)

SHARED_STORAGE: tuple[Shared, ...] = (
    Shared("paged", "free_page_ids", "under need_sort the caller's tensor itself is staged"),
    Shared("token", "alloc", "the result is a view of the free list"),
    Shared("token", "get_all_free_pages", "the result is the free list itself"),
    Shared("state_slots", "alloc", "the result is a view of the free list"),
)

_BOTH, _PAGED, _SLOTS = ("token", "paged"), ("paged",), ("state_slots",)
#: refused with an exception, after staged pages were sorted in
_GROWTH_AFTER_SORT = (("paged", "alloc_extend", "I9"), ("paged", "alloc_decode", "I9"))

KNOWN: tuple[Known, ...] = (
    Known(_BOTH, "negative_alloc", "NegativeSize", "I68"),
    Known(_BOTH, "negative_start", "NegativeSize", "I68"),
    Known(_PAGED, "unaligned_alloc", "NotPageMultiple", "I4"),
    # raised by an assertion, after the segments before the overlap were freed
    Known(_BOTH, "overlapping_segments", "OverlappingSegments", "I9"),
    Known(_PAGED, "scrambled_segment", "NotConsecutive", "I36"),
    # an extend raises, once staged pages were sorted in
    Known(_PAGED, "seq_below_prefix", "BadLengths", "I4", other=(("paged", "alloc_extend", "I9"),)),
    Known(_PAGED, "wrong_total", "BadLengths", "I4"),
    Known(_PAGED, "wrong_page_count", "BadLengths", "I4"),
    Known(_PAGED, "copies_differ", "BadLengths", "I4"),
    Known(_PAGED, "copy_missing", "BadLengths", "I4"),
    Known(_PAGED, "last_loc_of_nothing", "BadLastLoc", "I4"),
    Known(_PAGED, "misplaced_last_loc", "BadLastLoc", "I4"),
    Known(_PAGED, "last_loc_not_owned", "BadLastLoc", "I4"),
    Known(_PAGED, "continue_twice", "Duplicate", "I4"),
    Known(_BOTH, "free_out_of_range", "OutOfRange", "I4", BAD_IDS),
    Known(_BOTH, "free_reserved", "Reserved", "I4", BAD_IDS),
    Known(_BOTH, "free_unissued", "NotOwned", "I4", BAD_IDS),
    Known(_BOTH, "free_again", "DoubleFree", "I4", DOUBLE_FREE),
    Known(_BOTH, "free_twice_in_call", "Duplicate", "I4", DOUBLE_FREE),
    Known(_BOTH, "free_too_many", "TooMany", "I4", DOUBLE_FREE),
    # copies are passed on to the pool, whose slots may be anybody's
    Known(_BOTH, "back_up_dead", "NotOwned", "I4"),
    Known(_BOTH, "restore_dead", "NotOwned", "I4"),
    Known(_BOTH, "end_without_group", "GroupNotOpen", "I21"),
    Known(_BOTH, "resize_in_group", "GroupOpen", "I21"),
    Known(_BOTH, "resize_owned", "StillOwned", "I4"),
    # the negative size is stored before the free list is built and fails
    Known(_BOTH, "resize_negative", "NegativeSize", "I9"),
    Known(_BOTH, "wrong_dtype", "WrongDtype", "I4"),
    Known(_BOTH, "wrong_shape", "WrongShape", "I4", other=_GROWTH_AFTER_SORT),
    Known(_BOTH, "wrong_device", "WrongDevice", "I4", other=_GROWTH_AFTER_SORT),
    Known(_SLOTS, "negative_alloc", "NegativeSize", "I68"),
    Known(_SLOTS, "negative_group", "NegativeSize", "I68"),
    Known(_SLOTS, "free_out_of_range", "OutOfRange", "I4"),
    Known(_SLOTS, "free_reserved", "Reserved", "I4"),
    Known(_SLOTS, "free_unissued", "NotOwned", "I4"),
    Known(_SLOTS, "free_again", "DoubleFree", "I4"),
    Known(_SLOTS, "free_twice_in_call", "Duplicate", "I4"),
    Known(_SLOTS, "free_too_many", "TooMany", "I4"),
    Known(_SLOTS, "wrong_dtype", "WrongDtype", "I4"),
    Known(_SLOTS, "wrong_shape", "WrongShape", "I4"),
    # the slots that the outer group took ahead are lost
    Known(_SLOTS, "nested_group", "GroupOpen", "I21"),
    Known(_SLOTS, "end_without_group", "GroupNotOpen", "I21"),
)


def known_pairs() -> frozenset[tuple[str, str]]:
    """(system, command) of every known misuse."""
    return frozenset((system, entry.command) for entry in KNOWN for system in entry.systems)
