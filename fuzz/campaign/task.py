"""What a coordinator asks of a worker and what comes back: plain JSON, one line each way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fuzz import options
from properties.seeded import Plan
from properties.systems import SYSTEMS

#: kinds of tasks beside those of a round (`rounds.py`)
OPEN, SHORTEN, AUTOPSY = "open", "shorten", "autopsy"


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One system of one subject, and how it is judged."""

    system: str
    subject: str
    level: str = ""
    misuse: bool | None = None
    limits: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The system, and the subject where several of them share it."""
        return self.system if ":" not in self.subject else f"{self.system} of {self.subject}"

    def plan(self) -> Plan:
        """The plan of the lane; loads the subject."""
        return Plan(
            system=SYSTEMS[self.system],
            factory=options.subject(self.subject),
            seed=0,
            level=self.level,
            misuse=self.misuse,
            limits=self.limits,
        )


@dataclass(frozen=True, kw_only=True)
class Task:
    """One thing to do; a round is told by kind, seed and bases alone."""

    number: int
    kind: str
    lane: Lane
    seed: str = ""
    #: when a round ends at the latest
    seconds: float = 0.0
    #: when the process is given up
    limit: float = 60.0
    #: files of traces: of the corpus, to be made short, or recorded
    bases: tuple[str, ...] = ()
    #: folders: for what shows something new ("" keeps nothing), and for findings
    traces: str = ""
    as_found: str = ""
    #: features that others found since the last task, of the lane's system
    known: dict[str, int] = field(default_factory=dict)
    feedback: bool = True
    #: whether the round is run a second time without feedback, to compare
    twice: bool = False
    #: of an autopsy: the `task` whose worker died, with what `status`, its subject's `calls`
    of: dict[str, Any] = field(default_factory=dict)

    def dumps(self) -> str:
        """The task as one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(line: str) -> Task:
        """The task that `dumps` wrote."""
        data = json.loads(line)
        lane = data.pop("lane")
        lane["limits"] = {name: tuple(values) for name, values in lane["limits"].items()}
        data["bases"] = tuple(data["bases"])
        return Task(lane=Lane(**lane), **data)

    def suspect(self) -> dict[str, Any]:
        """What tells the round again, without what is long and doesn't matter."""
        told: dict[str, Any] = json.loads(replace(self, known={}, of={}).dumps())
        return told
