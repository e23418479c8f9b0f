"""What stands where on one side after one command: the cells of a line of the viewer's grid.

The places are the side's own account, as far as it shows any; who owns a page and how many of its
slots are used is the ledger's. For request rows a row is a page of one slot.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

# Bits of a cell's places. A page that exists and has no other bit is nowhere.
FREE, STAGED, PARKED, OWNED, TWICE, EXISTS = 1, 2, 4, 8, 16, 32
PLACES = FREE | STAGED | PARKED | OWNED
NOBODY = -1
# A broken list may name any number as a page; so many beyond the pool's end get a cell.
MOST_BEYOND = 8
# More pages nobody looks at; of a larger pool the first ones are drawn.
MOST_PAGES = 4096
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
    """The cells of a side that shows this state; pages that don't exist have none.

    Nor has a side whose system hands out no pages: there what it shows says it all.
    """
    if not hasattr(side, "ledger"):
        return {}
    ledger = side.ledger
    size = int(state["size"]) // ledger.page_size if "size" in state else ledger.num_pages
    drawn = min(size + MOST_BEYOND, MOST_PAGES)
    places = dict.fromkeys(range(1, min(size, drawn) + 1), EXISTS)
    owned = state.get("holders", state.get("held", ledger.owned_pages()))
    for bit, pages in (
        (FREE, state.get("free", ledger.available_pages())),
        (STAGED, state.get("staged", ())),
        (PARKED, _parked(state, ledger)),
        (OWNED, owned),
    ):
        for page in pages:
            if 0 <= page <= drawn:
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
        if page > MOST_PAGES:
            continue
        owners = [ledger.owner_of(slot) for slot in range(page * size, (page + 1) * size)]
        having = [owner for owner in owners if owner is not None]
        found[page] = (having[0] if having else NOBODY, len(having))
    return found


def shown(value: Any) -> str:
    """A part of a state, or an outcome, as text of bearable length."""
    return clipped(_short(value))


def _short(value: Any) -> str:
    """Like `str`, but of a long list or dict only the beginning, and how long it is."""
    if type(value) not in (list, tuple, dict):
        return str(value)
    items = islice(value.items() if type(value) is dict else value, MOST_ITEMS)
    if type(value) is dict:
        parts = [f"{key}: {_short(each)}" for key, each in items]
    else:
        parts = [_short(each) for each in items]
    if len(value) > MOST_ITEMS:
        parts.append(f"… {len(value)} in all")
    first, last = "{}" if type(value) is dict else "()" if type(value) is tuple else "[]"
    return f"{first}{', '.join(parts)}{last}"


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
