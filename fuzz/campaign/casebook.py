"""What becomes of findings and of dead workers: made short, told once, explained; never lost.

A finding is a file of `as-found` until its minimal trace is one of `findings`. A task whose worker
died is a file of `suspects` until an autopsy has told why.
"""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.campaign.autopsy import key
from fuzz.campaign.store import Store
from fuzz.campaign.task import AUTOPSY, SHORTEN, Lane, Task
from properties.commands import UnusableTrace
from properties.invariants import FATAL
from properties.minimize import LONGEST_SECONDS
from properties.report import replay_line
from properties.trace import Trace, load

# The first findings that look alike are made short, then ever fewer: one bug must not hide another.
# Those that end their process take long, so of these only the first.
ALWAYS_SHORTENED = 3
RARELY_SHORTENED = frozenset(4**n for n in range(12))
#: what nobody's subject did: somebody ended the worker
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)

Kinds = tuple[str, ...]


class Casebook:
    """The findings of a campaign, and the tasks that they still need."""

    def __init__(
        self, store: Store, limit: float, say: Callable[[str], None], task: Callable[..., Task]
    ) -> None:
        self.store = store
        self.limit = limit
        self.say = say
        self._task = task
        #: to be done before any round
        self.urgent: deque[Task] = deque()
        #: by what makes them one, and how often each came
        self.findings: Counter[Kinds] = Counter()
        self.errors: list[str] = []
        self._alike: Counter[Kinds] = Counter()
        self._suspects: dict[int, Path] = {}
        self._complained: set[str] = set()

    @property
    def red(self) -> bool:
        return bool(self.findings.total() or self.errors)

    def resume(self, lanes: Mapping[tuple[str, str], Lane]) -> None:
        """What an earlier run has left to do: findings to make short, deaths to explain."""
        for path in self.store.waiting(self.store.findings):
            if trace := self._load(path):
                self.findings[tuple(key(trace))] += 0
        for path in self.store.waiting(self.store.as_found):
            trace = self._load(path)
            if trace and (lane := lanes.get((trace.system.name, trace.subject))):
                invariant, last = key(trace)[:2]
                self.found(lane, {"found": str(path), "number": invariant, "command": last})
        for path, told in self.store.suspected():
            lane = lanes.get((told["task"]["lane"]["system"], told["task"]["lane"]["subject"]))
            if lane:
                self._examine(lane, told, path)

    def _load(self, path: Path) -> Trace | None:
        try:
            return load(path)
        except UnusableTrace as error:
            self.complain(str(error))
            return None

    # ---- findings --------------------

    def found(self, lane: Lane, report: dict[str, Any]) -> None:
        """A finding is on disk: it is made short unless many like it were."""
        path, number = Path(report["found"]), report["number"]
        alike = (number, report["command"], lane.system, lane.subject)
        self._alike[alike] += 1
        count = self._alike[alike]
        if count in RARELY_SHORTENED or (count <= ALWAYS_SHORTENED and number not in FATAL):
            self.store.log("found", file=path.name, invariant=number, count=count)
            limit = LONGEST_SECONDS + self.limit
            # As its seed the task carries what the trace breaks.
            self.urgent.append(
                self._task(
                    SHORTEN, lane, seed=number, bases=(str(path),), seconds=self.limit, limit=limit
                )
            )
            return
        self.findings[alike] += 1
        self.store.forget(path)

    def unsaved(self, lane: Lane, report: dict[str, Any]) -> None:
        """A finding that no file can be written for is told, and kept in memory."""
        self.findings[report["number"], report["command"], lane.system, "unsaved"] += 1
        self.say(f"{report['message']}\n  not saved yet: no file can be written")

    def shortened(self, task: Task, report: dict[str, Any]) -> None:
        """A finding was made short, or why it can't be."""
        path = Path(task.bases[0])
        if "text" not in report:
            return self.keep_whole(path, report.get("whole") or report.get("unusable") or "failed")
        kinds = tuple(report["key"])
        self.findings[kinds] += 1
        if self.findings[kinds] == 1:
            saved = self.store.keep(self.store.findings, report["text"])
            where = replay_line(saved, task.lane.subject) if saved else "  not saved yet"
            self.say(f"{report['story']}\n{where}")
            if saved is None:
                return
            self.store.log("finding", file=saved.name, kinds=kinds)
        self.store.forget(path)

    def keep_whole(self, path: Path, reason: str) -> None:
        """A finding that can't be made short stays as it was found."""
        trace = self._load(path)
        if trace is None:
            return
        kinds = (*key(trace)[:4], "as found")
        self.findings[kinds] += 1
        saved = self.store.keep(self.store.findings, trace.dumps())
        if saved is not None:
            self.store.forget(path)
            self.say(f"not minimised: {reason}\n  kept as found: {saved}")
            self.store.log("finding", file=saved.name, kinds=kinds)

    # ---- workers that died --------------------

    def died(self, task: Task, status: int, calls: tuple[str, ...]) -> None:
        """A worker ended in the middle of a task."""
        self.store.log("worker", status=ending(status), task=task.suspect())
        if task.kind == SHORTEN:
            self.keep_whole(Path(task.bases[0]), f"the worker ended: {ending(status)}")
        elif task.kind != AUTOPSY:
            told = {"task": task.suspect(), "status": status, "calls": calls}
            self._examine(task.lane, told, self.store.suspect(task.number, told))
        elif not task.seed:
            again = self._task(AUTOPSY, task.lane, of=task.of, limit=task.limit)
            self._suspects[again.number] = self._suspects.pop(task.number, Path())
            self.urgent.append(replace(again, seed="again"))
        else:
            self.complain(f"why a worker ended can't be told: {task.of}")
            self._settled(task)

    def _examine(self, lane: Lane, told: dict[str, Any], path: Path | None) -> None:
        task = self._task(AUTOPSY, lane, of=told, limit=3 * self.limit)
        if path is not None:
            self._suspects[task.number] = path
        self.urgent.append(task)

    def examined(self, task: Task, report: dict[str, Any]) -> None:
        """An autopsy tells whether it was the subject's doing."""
        if "found" in report:
            self.found(task.lane, report)
        elif report.get("innocent") and task.of["status"] not in FROM_OUTSIDE:
            how = ending(task.of["status"])
            self.complain(f"a worker ended by {how}, which doesn't come again: task {task.of}")
            self.findings["died", "comes and goes", task.lane.system, task.lane.subject] += 1
        self._settled(task)

    def _settled(self, task: Task) -> None:
        if path := self._suspects.pop(task.number, None):
            self.store.forget(path)

    # ---- what is said --------------------

    def error(self, task: Task, text: str) -> None:
        """Something of ours broke: no finding about the subject, and no clean run either."""
        self.errors.append(text)
        self.store.log("error", task=task.suspect(), error=text)
        self.complain(f"an error of the harness:\n{text}")

    def complain(self, line: str) -> None:
        """What isn't as it should be, once."""
        if line not in self._complained:
            self._complained.add(line)
            self.say(f"note: {line}")
            self.store.log("note", line=line)


def ending(status: int) -> str:
    """A process's exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
