"""What stands where on one side after one command: the cells of a line of the viewer's grid.

The places are the side's own account, as far as it shows any; who owns a page and how many of its
slots are used is the ledger's. For request rows a row is a page of one slot.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

# Bits of a cell's places. A page that exists and has no other bit is nowhere.
FREE, STAGED, PARKED, OWNED, TWICE, EXISTS = 1, 2, 4, 8, 16, 32
PLACES = FREE | STAGED | PARKED | OWNED
NOBODY = -1
# A broken list may name any number as a page; so many beyond the pool's end get a cell.
MOST_BEYOND = 8
# What a side shows is told whole where it is short: nobody compares a thousand ids by eye.
MOST_ITEMS, MOST_CHARACTERS = 64, 600


class Cell(NamedTuple):
    """A page after a command: its places, who owns it (or nobody), how many slots are used."""

    places: int
    owner: Hashable
    used: int

    @property
    def broken(self) -> bool:
        """Whether the page is nowhere, or in two places."""
        return self.places & TWICE > 0 or (self.places & PLACES).bit_count() != 1


Cells = dict[int, Cell]


def cells(state: Mapping[str, Any], side: Any) -> Cells:
    """The cells of a side that shows this state; pages that don't exist have none."""
    ledger = side.ledger
    size = int(state["size"]) // ledger.page_size if "size" in state else ledger.num_pages
    places = dict.fromkeys(range(1, size + 1), EXISTS)
    owned = state.get("holders", state.get("held", ledger.owned_pages()))
    for bit, pages in (
        (FREE, state.get("free", ledger.available_pages())),
        (STAGED, state.get("staged", ())),
        (PARKED, _parked(state, ledger)),
        (OWNED, owned),
    ):
        for page in pages:
            if 0 <= page <= size + MOST_BEYOND:
                had = places.get(page, EXISTS)
                places[page] = had | bit | (TWICE if had & bit else 0)
    owners = _owners(ledger)
    return {page: Cell(bits, *owners.get(page, (NOBODY, 0))) for page, bits in places.items()}


def _parked(state: Mapping[str, Any], ledger: Any) -> Iterable[int]:
    """The parked pages, each once: several slot frees of a group may name one."""
    if "parked_slots" not in state:
        parked: frozenset[int] = ledger.parked_pages()
        return parked
    pages = {slot // ledger.page_size for part in state["parked_slots"] for slot in part}
    return pages.union(page for part in state["parked_pages"] for page in part)


def _owners(ledger: Any) -> dict[int, tuple[Hashable, int]]:
    """Who owns each page that is out, by its first slot that has an owner, and the used slots."""
    found: dict[int, tuple[Hashable, int]] = {}
    size = ledger.page_size
    for page in ledger.owned_pages():
        owners = [ledger.owner_of(slot) for slot in range(page * size, (page + 1) * size)]
        having = [owner for owner in owners if owner is not None]
        found[page] = (having[0] if having else NOBODY, len(having))
    return found


def shown(value: Any) -> str:
    """A part of a state, or an outcome, as text of bearable length."""
    if isinstance(value, list | tuple) and len(value) > MOST_ITEMS:
        inner = ", ".join(map(str, value[:MOST_ITEMS]))
        return clipped(f"[{inner}, … {len(value)} in all]")
    return clipped(str(value))


def clipped(text: str) -> str:
    """The text, cut where it is too long to be looked at."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


class View(NamedTuple):
    """One side after a command: its cells, and all that it shows, as text."""

    cells: Cells
    facts: dict[str, str]


def view(state: Mapping[str, Any], side: Any) -> View:
    """What is to be seen of a side that shows this state."""
    return View(cells(state, side), {key: shown(value) for key, value in state.items()})
