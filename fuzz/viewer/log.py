"""What the log of a campaign tells: its runs one behind the other, lanes, and what went wrong.

A log may be cut off in a line, and lines of it may be anything: those that can't be read are
counted and left out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.viewer.frames import clipped

# A chart is a few hundred pixels wide: of a long night every so-manieth reading does.
MOST_POINTS = 600
MOST_TROUBLES = 30
# No campaign counts so far, and JavaScript counts no further.
LARGEST_NUMBER = 2**53


@dataclass
class Log:
    """Readings over all runs: seconds go on where the run before ended."""

    points: list[dict[str, Any]] = field(default_factory=list)
    #: seconds at which another run began
    breaks: list[float] = field(default_factory=list)
    lanes: dict[str, dict[str, float]] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)
    steps: float = 0
    seconds: float = 0
    #: the last line of the last run; empty while it is running, and when it was killed
    verdict: str = ""
    last_time: float = 0
    unread: int = 0

    def to_json(self) -> dict[str, Any]:
        """The log as a JSON object."""
        every = math.ceil(len(self.points) / MOST_POINTS) or 1
        kept = self.points[-1::-every][::-1]
        return {
            "points": kept,
            "breaks": self.breaks,
            "lanes": [{"name": name, **lane} for name, lane in self.lanes.items()],
            "troubles": self.troubles.most_common(MOST_TROUBLES),
            "steps": self.steps,
            "seconds": self.seconds,
            "verdict": self.verdict,
            "last_time": self.last_time,
            "unread": self.unread,
        }


def read(path: Path) -> Log:
    """The log in a file; an empty one where there is none."""
    log, run = Log(), _Run()
    for event in _events(path, log):
        log.last_time = max(log.last_time, number(event.get("time")))
        match event.get("event"):
            case "interval":
                seconds = number(event.get("seconds"))
                if seconds < run.seconds or log.verdict:
                    run = run.next(log)
                run.note(event, log)
                log.verdict = ""
            case "end":
                log.verdict = clipped(str(event.get("verdict", "")))
            case "error" | "note" as kind:
                text = str(event.get("error") or event.get("line") or "").strip()
                log.troubles[clipped(f"{kind}: {text.splitlines()[-1] if text else ''}")] += 1
            case "worker":
                log.troubles[clipped(f"a worker ended: {event.get('status')}")] += 1
    run.next(log)
    return log


class _Run:
    """One run of a campaign, whose seconds and steps begin at 0."""

    def __init__(self, started: float = 0.0) -> None:
        self.started = started
        self.seconds = self.steps = 0.0
        self.lanes: dict[str, dict[str, float]] = {}

    def note(self, event: dict[str, Any], log: Log) -> None:
        """A reading; what it counts is since the run began."""
        seconds, steps = number(event.get("seconds")), number(event.get("steps"))
        if seconds > self.seconds:
            if self.started and not self.seconds:
                log.breaks.append(self.started)
            log.points.append(
                {
                    "at": round(self.started + seconds, 2),
                    "rate": round((steps - self.steps) / (seconds - self.seconds), 1),
                    "features": numbers(event.get("features")),
                    "entries": numbers(event.get("entries")),
                }
            )
        self.seconds, self.steps = seconds, steps
        lanes = event.get("lanes")
        self.lanes = {
            clipped(str(name)): numbers(lane)
            for name, lane in (lanes.items() if isinstance(lanes, dict) else ())
        }

    def next(self, log: Log) -> _Run:
        """Books the run; the one that follows it."""
        log.seconds, log.steps = self.started + self.seconds, log.steps + self.steps
        for name, lane in self.lanes.items():
            whole = log.lanes.setdefault(name, {})
            for key in ("steps", "seconds", "new"):
                whole[key] = round(whole.get(key, 0) + lane.get(key, 0), 2)
        return _Run(log.seconds)


def _events(path: Path, log: Log) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if isinstance(event, dict):
                yield event
            else:
                log.unread += 1


def number(value: Any) -> float:
    """A number of a foreign file; 0 where it is none."""
    # NaN is not below anything.
    return value if isinstance(value, int | float) and abs(value) < LARGEST_NUMBER else 0


def numbers(value: Any) -> dict[str, float]:
    """An object of numbers of a foreign file, of which the rest is left out."""
    found = value.items() if isinstance(value, dict) else ()
    return {clipped(str(key)): number(each) for key, each in found}
