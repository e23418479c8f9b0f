"""What a round showed, in the harness's own words: the feedback of a campaign.

A feature is a command with its outcome, the same in a situation or in several at once, or one
command right behind another. Its place is how many commands it took to get there: of two traces
that show a feature the one that is there sooner is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from properties.commands import Outcome
from properties.seeded import Tally

# A trace that is there a little sooner is no news: without this a corpus would never come to rest.
SOONER = 0.75


class Watch(Tally):
    """A tally of one round that also remembers where everything was first met."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[tuple[Any, ...], int] = {}
        self._last = ""

    def note(
        self, name: str, outcome: Outcome, situations: tuple[str, ...], seconds: float
    ) -> None:
        super().note(name, outcome, situations, seconds)
        what = outcome.value if outcome.kind == "refused" else outcome.kind
        for key in ((name, what, situations), (self._last, name)):
            if key not in self._first:
                self._first[key] = self.steps
        self._last = name

    def places(self) -> dict[str, int]:
        """Every feature that the round showed, and after how many commands."""
        found: dict[str, int] = {}
        for key, place in self._first.items():
            for feature in _words(*key):
                found.setdefault(feature, place)
        return found


def _words(first: str, second: str, situations: tuple[str, ...] | None = None) -> Iterator[str]:
    """The features of one entry: of a pair of commands, or of a command with its outcome."""
    if situations is None:
        if first:
            yield f"{first} > {second}"
        return
    yield f"{first} {second}"
    for situation in situations:
        yield f"{first} {second}: {situation}"
    if len(situations) > 1:
        yield f"{first} {second}: {' + '.join(situations)}"


def news(found: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """What of the places found is new, or much sooner than known."""
    return {
        feature: place
        for feature, place in found.items()
        if feature not in known or place < SOONER * known[feature]
    }
