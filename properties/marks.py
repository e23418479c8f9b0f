"""Situations that a run must have reached, counted: nothing the suite claims is vacuous.

A mark is (command, outcome, situation). A system's commands declare their outcomes and what cannot
occur; all the rest is required of a long run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from properties.commands import Command

Mark = tuple[str, str, str]
#: the situation that holds always: that the command met the outcome at all
ANY = "at all"


class Marks:
    """Counts of marks over any number of runs."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, tuple[str, ...]], int] = {}

    def note(self, name: str, outcome: str, situations: tuple[str, ...], count: int = 1) -> None:
        """A step: a command's name, its outcome, and the situations that held before it."""
        key = (name, outcome, situations)
        self._counts[key] = self._counts.get(key, 0) + count

    def counts(self) -> Counter[Mark]:
        """Every mark reached, with its count."""
        found: Counter[Mark] = Counter()
        for (name, outcome, situations), count in self._counts.items():
            for situation in (ANY, *situations):
                found[name, outcome, situation] += count
        return found

    def missing(self, required: Iterable[Mark]) -> list[Mark]:
        """The required marks that were not reached."""
        found = self.counts()
        return [mark for mark in required if not found[mark]]


def required(commands: Iterable[type[Command]], situations: Iterable[str]) -> list[Mark]:
    """Every command, outcome and situation that can occur together."""
    return [
        (command.name(), outcome, situation)
        for command in commands
        for outcome in command.outcomes
        for situation in (ANY, *situations)
        if (outcome, situation) not in command.never
    ]
