"""Where two sides part: the outcome, what each shows, and the pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fuzz.viewer.frames import Cells, shown
from properties.commands import Outcome

# A pool that is wrong all over says no more by its thousandth page.
MOST_PAGES = 256
NOTHING = "nothing"
Line = tuple[str, Any, Any]


def difference(
    exact: bool, outcomes: tuple[Outcome | None, Outcome | None],
    states: tuple[Mapping[str, Any], Mapping[str, Any]], cells: tuple[Cells, Cells],
) -> dict[str, Any]:  # fmt: skip
    """What differs between the reference and the subject, in this order; the first line is first.

    Where pages only have other numbers, only what has no numbers is compared, and a page counts
    that is nowhere or in two places.
    """
    lines = [*_of_outcomes(exact, *outcomes), *_of_states(exact, *states)]
    wanted, found = cells
    pages = [
        page
        for page in sorted(wanted.keys() | found.keys())
        if (exact and wanted.get(page) != found.get(page)) or (page in found and found[page].broken)
    ]
    return {
        "lines": [[where, shown(due), shown(came)] for where, due, came in lines],
        "pages": pages[:MOST_PAGES],
    }


def _of_outcomes(exact: bool, due: Outcome | None, came: Outcome | None) -> Iterator[Line]:
    if due is None or came is None or due == came:
        return
    if exact and due.kind == came.kind == "served":
        yield first("outcome", due.value, came.value)
    elif exact or due.kind != came.kind:
        yield "outcome", due, came


def _of_states(exact: bool, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Line]:
    for key, value in found.items():
        due = wanted.get(key)
        if due != value and (exact or not isinstance(value, list | dict)):
            yield first(key, due, value)


def first(where: str, due: Any, came: Any) -> Line:
    """The first place inside two values at which they differ."""
    if isinstance(due, list | tuple) and isinstance(came, list | tuple):
        for i, (a, b) in enumerate(zip(due, came, strict=False)):
            if a != b:
                return first(f"{where}[{i}]", a, b)
        at = min(len(due), len(came))
        if len(due) != len(came):
            rest = (due[at] if at < len(due) else NOTHING, came[at] if at < len(came) else NOTHING)
            return f"{where}[{at}]", *rest
    if isinstance(due, dict) and isinstance(came, dict):
        for key in sorted(due.keys() | came.keys(), key=str):
            a, b = due.get(key, NOTHING), came.get(key, NOTHING)
            if a != b:
                return first(f"{where}[{key}]", a, b)
    return where, due, came
