"""Slots up to a one-to-one renaming of pages: what two runs share whose free lists differ in order.

Structures are equal exactly if some renaming of pages turns one run's rows into the other's.
"""

from __future__ import annotations

from collections.abc import Mapping

from properties.systems.slot_model import Row

#: request → (first position, (page by order of first appearance, offset) of each slot)
Structure = dict[int, tuple[int, tuple[tuple[int, int], ...]]]


def structure(rows: Mapping[int, Row], page_size: int) -> Structure:
    """The rows with pages numbered in the order in which they first appear."""
    numbers: dict[int, int] = {}
    found: Structure = {}
    for name, row in sorted(rows.items()):
        places = []
        for slot in row.slots:
            page, offset = divmod(slot, page_size)
            places.append((numbers.setdefault(page, len(numbers)), offset))
        found[name] = (row.start, tuple(places))
    return found
