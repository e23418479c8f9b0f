"""Whose turn it is: time goes where new features still appear, with a floor for each lane."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.campaign.task import Lane
from properties.seeded import Tally

# A third of the time is shared alike, whatever comes of it: a lane without news may have bugs.
FLOOR = 1 / 3
# News older than a few of these count little: what was found at the start is no promise.
HALF_LIFE_SECONDS = 30.0
# A round that breaks off at once still costs its turn.
LEAST_SECONDS = 0.01


@dataclass
class Track:
    """What a lane has done so far."""

    lane: Lane
    commands: list[str] = field(default_factory=list)
    calls: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)
    rounds: int = 0
    #: steps and seconds of the rounds that were run twice: with feedback, without
    paired: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    #: entries of the corpus that this run hasn't replayed yet
    replays: deque[Path] = field(default_factory=deque)
    new: int = 0
    #: new features and seconds, both fading
    news: float = 0.0
    spent: float = 0.0
    #: seconds used, each counted the more the smaller the lane's share was
    charged: float = 0.0
    #: rounds that are under way
    pending: int = 0

    @property
    def due(self) -> float:
        """What it has used, what is under way included; the least is next."""
        mean = self.tally.seconds / self.rounds if self.rounds else 1.0
        return self.charged + self.pending * mean

    def note(self, report: dict[str, Any], fresh: int) -> None:
        """Books the report of a round, which showed so many new features."""
        seconds = report.get("seconds", 0.0) or report.get("blind_seconds", 0.0)
        self.rounds += 1
        self.tally.steps += report.get("steps", 0)
        self.tally.seconds += seconds
        for name, kind, count in report.get("outcomes", ()):
            self.tally.marks.note(name, kind, (), count)
        for name, spent in report.get("times", {}).items():
            before = self.tally.time_by_command.get(name, 0.0)
            self.tally.time_by_command[name] = before + spent
        if "seconds" in report and "blind_seconds" in report:
            pair = report["steps"], report["seconds"], report["blind_seconds"]
            self.paired = [sum(both) for both in zip(self.paired, pair, strict=True)]
        self.new += fresh
        seconds = max(LEAST_SECONDS, seconds)
        fading = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        self.news = self.news * fading + fresh
        self.spent = self.spent * fading + seconds


def shares(tracks: Sequence[Track]) -> list[float]:
    """What part of the time each lane gets now; they sum to 1."""
    rates = [track.news / track.spent if track.spent else math.inf for track in tracks]
    fixed = FLOOR / len(tracks)
    if math.inf in rates:  # nobody is judged before its first round
        rates = [float(rate == math.inf) for rate in rates]
    total = sum(rates)
    if not total:
        return [1 / len(tracks)] * len(tracks)
    return [fixed + (1 - FLOOR) * rate / total for rate in rates]


def turn(tracks: Sequence[Track]) -> Track:
    """The lane that has used least of what it is due."""
    return min(tracks, key=lambda track: track.due)


def part(tracks: Sequence[Track], seconds: float) -> float:
    """What the next round may take of so many seconds; until each lane had one, its part."""
    return seconds / max(1, sum(not (track.rounds or track.pending) for track in tracks))


def charge(track: Track, seconds: float, tracks: Sequence[Track]) -> None:
    """Counts what a lane has used, against its share of now."""
    share = shares(tracks)[list(tracks).index(track)]
    track.charged += max(LEAST_SECONDS, seconds) / share


def joined(tracks: Sequence[Track]) -> Tally:
    """What several lanes did, outcomes and times."""
    whole = Tally()
    for track in tracks:
        for (name, kind), count in track.tally.outcomes.items():
            whole.marks.note(name, kind, (), count)
        for name, spent in track.tally.time_by_command.items():
            whole.time_by_command[name] = whole.time_by_command.get(name, 0.0) + spent
    return whole
