"""The frames of a trace as plain JSON in which each change stands once.

Ten thousand frames of a pool are a few megabytes so, and a browser finds any of them at once: cells
by going on from the nearest frame that it has whole, facts by looking up who changed last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields
from typing import Any

from fuzz.viewer.frames import NOBODY, Cell, Cells, View, clipped, shown
from properties.commands import Command, Outcome

#: fields of commands that name requests: one, several, or the first of each pair
NAMING = ("request", "requests", "parts")
NO_VIEW = View({}, {})


class Owners:
    """The owners that appear, numbered in the order in which they do."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self._numbers: dict[Hashable, int] = {NOBODY: NOBODY}

    def number(self, owner: Hashable) -> int:
        if owner not in self._numbers:
            self._numbers[owner] = len(self.labels)
            self.labels.append(shown(owner))
        return self._numbers[owner]


class Track:
    """What one side showed over time.

    `changes` has a flat list of (page, places, owner, used) for each frame, places 0 where a page
    ceases to exist; 0 in a frame's place stands for the changes of the track beside it.
    """

    def __init__(self, owners: Owners, beside: Track | None = None) -> None:
        self.changes: list[list[int] | int] = []
        self.facts: dict[str, list[list[Any]]] = {}
        self.last = NO_VIEW
        self.touched: set[int] = set()
        self._owners = owners
        self._beside = beside

    def add(self, view: View) -> None:
        """The next frame."""
        step, self.touched = len(self.changes), set()
        found = self._changed(view.cells)
        if self._beside is not None and self._beside.changes[step] == found:
            self.changes.append(0)
        else:
            self.changes.append(found)
        if view.facts is not self.last.facts:
            for key in view.facts.keys() | self.last.facts.keys():
                text = view.facts.get(key)
                if text != self.last.facts.get(key):
                    self.facts.setdefault(key, []).append([step, text])
        self.last = view

    def _changed(self, cells: Cells) -> list[int]:
        found: list[int] = []
        if cells is self.last.cells:
            return found
        before = self.last.cells
        for page, cell in cells.items():
            had = before.get(page)
            if had != cell:
                found += (page, *self._packed(cell))
                if had is not None:
                    self.touched.add(self._owners.number(had.owner))
        for page in before.keys() - cells.keys():
            found += (page, 0, NOBODY, 0)
        return found

    def _packed(self, cell: Cell) -> tuple[int, int, int]:
        number = self._owners.number(cell.owner)
        self.touched.add(number)
        return cell.places, number, cell.used

    def to_json(self, name: str, order: list[str]) -> dict[str, Any]:
        """The track; its facts in the order in which the reference shows them."""
        known = [key for key in order if key in self.facts]
        facts = {key: self.facts[key] for key in [*known, *(self.facts.keys() - set(known))]}
        return {"name": name, "changes": self.changes, "facts": facts}


class Film:
    """All frames of both sides; the subject's are left out where it wasn't run."""

    def __init__(self, both: bool) -> None:
        self.owners = Owners()
        self.commands: list[str] = []
        self.expected: list[str] = []
        #: by frame, where it isn't what was expected
        self.actual: dict[int, str] = {}
        self.touched: list[list[int]] = []
        self.reference = Track(self.owners)
        self.subject = Track(self.owners, self.reference) if both else None
        self._order: list[str] = []

    def __len__(self) -> int:
        return len(self.commands)

    def add(
        self, command: Command | None, outcomes: tuple[Outcome | None, Outcome | None],
        reference: View, subject: View | None = None,
    ) -> None:  # fmt: skip
        """The frame behind a command, None for the first one; `outcomes` as due, as they came."""
        due, came = (shown(outcome) if outcome is not None else "" for outcome in outcomes)
        if came != due:
            self.actual[len(self)] = came
        self.commands.append("" if command is None else clipped(str(command)))
        self.expected.append(due)
        self._order = self._order or list(reference.facts)
        self.reference.add(reference)
        touched = set(self.reference.touched)
        if self.subject is not None:
            self.subject.add(reference if subject is None else subject)
            touched |= self.subject.touched
        touched.update(self.owners.number(name) for name in _named(command))
        self.touched.append(sorted(touched - {NOBODY}))

    def to_json(self) -> dict[str, Any]:
        """The film as a JSON object."""
        tracks = [self.reference.to_json("reference", self._order)]
        if self.subject is not None:
            tracks.append(self.subject.to_json("subject", self._order))
        return {
            "commands": self.commands,
            "expected": self.expected,
            "actual": self.actual,
            "touched": self.touched,
            "owners": self.owners.labels,
            "sides": tracks,
        }


def _named(command: Command | None) -> Iterator[int]:
    """The requests that a command names."""
    for field in fields(command) if command is not None else ():  # type: ignore[arg-type]
        if field.name in NAMING:
            value = getattr(command, field.name)
            for item in value if isinstance(value, tuple) else (value,):
                yield item[0] if isinstance(item, tuple) else item
