"""How the reference says no: `Refused`, with one of the kinds of `spec/core.md` §4b.

Of several faults in one call the smallest (kind, index) names it, kinds in the order of `KINDS`.
"""

import operator
from collections.abc import Iterable

KINDS = (
    "NegativeSize",
    "NotPageMultiple",
    "Misaligned",
    "OverlappingSegments",
    "NotConsecutive",
    "BadLengths",
    "BadLastLoc",
    "OutOfRange",
    "Reserved",
    "NotOwned",
    "DoubleFree",
    "Duplicate",
    "TooMany",
    "GroupOpen",
    "GroupNotOpen",
    "RowNotHeld",
    "RowWithoutKV",
    "StaleHandle",
    "StillOwned",
    "NoWindowPeer",
    "WrongDtype",
    "WrongDevice",
    "WrongShape",
    "Unsupported",
)

Fault = tuple[str, int]
"""A kind and the index of the argument's element that has it (0 where nothing is indexed)."""


class Refused(Exception):
    """Misuse. Nothing has changed, except that staged pages may have been sorted in (§4)."""

    def __init__(self, kind: str, index: int = 0) -> None:
        super().__init__(kind, index)
        self.kind = kind
        self.index = index


def refuse_smallest(faults: Iterable[Fault]) -> None:
    """Raise the smallest fault, if there is one."""
    found = list(faults)
    if found:
        raise Refused(*min(found, key=lambda fault: (KINDS.index(fault[0]), fault[1])))


def as_int(value: object) -> int | None:
    """`value` as an int, or None if it isn't one. A bool isn't: `alloc(True)` is a slip."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return operator.index(value)
