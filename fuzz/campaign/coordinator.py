"""The coordinator: decides who does what, keeps what is reported, and says what came of it."""

from __future__ import annotations

import math
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzz.campaign.autopsy import key
from fuzz.campaign.crew import Crew, Member
from fuzz.campaign.features import news
from fuzz.campaign.lanes import Track, charge, turn
from fuzz.campaign.rounds import CHANGED, FRESH, REPLAYED
from fuzz.campaign.selftest import Trial
from fuzz.campaign.store import Store
from fuzz.campaign.task import AUTOPSY, OPEN, SHORTEN, Lane, Task
from fuzz.options import Settings, Unusable
from fuzz.progress import Progress
from fuzz.stop import Stop
from properties.choices import Seeded
from properties.commands import UnusableTrace
from properties.invariants import FATAL
from properties.minimize import LONGEST_SECONDS
from properties.report import replay_line
from properties.subjects import UnusableSubject
from properties.trace import load

# A round that takes longer is cut off: kernels in an interpreter make a hundred steps a second.
ROUND_SECONDS = 5.0
# What is waited for at a time; signals and the clock are looked at in between.
POLL_SECONDS = 0.2
# The first findings that look alike are made short, then ever fewer: one bug must not hide another.
ALWAYS_SHORTENED = 3
RARELY_SHORTENED = frozenset(4**n for n in range(1, 12))
ROUNDS = (FRESH, CHANGED, REPLAYED)


@dataclass
class Told:
    """What a campaign has to tell in the end."""

    #: findings by what makes them one, and how often each came
    findings: Counter[tuple[str, ...]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    entries: int = 0

    @property
    def red(self) -> bool:
        return bool(self.findings.total() or self.errors)


class Campaign:
    """One campaign, from its lanes to its end."""

    def __init__(
        self, lanes: Sequence[Lane], trials: Sequence[Trial], settings: Settings, store: Store,
        shown: Progress, stop: Stop,
    ) -> None:  # fmt: skip
        self.tracks = {lane.name: Track(lane) for lane in lanes}
        self.trials = list(trials)
        self.settings = settings
        self.store = store
        self.shown = shown
        self.stop = stop
        self.told = Told()
        self.entries: dict[str, list[Path]] = {}
        self.known: dict[str, dict[str, int]] = {}
        self.started = self.ended = math.inf
        self._news: dict[str, list[tuple[str, int]]] = {}
        self._number = 0
        self._urgent: deque[Task] = deque()
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._suspects: dict[int, Path] = {}
        self._complained: set[str] = set()
        self._next_show = 0.0

    # ---- the loop --------------------

    def run(self) -> None:
        """Opens the lanes, tests itself, then goes on until the time is over or somebody stops."""
        self.entries = self.store.entries()
        self._resume()
        self.crew = Crew(self.settings.workers, self.store.root / "workers.log")
        try:
            for track in self.tracks.values():
                self._urgent.append(self._task(OPEN, track.lane))
            while not self._over():
                for member in self.crew.idle():
                    task = self._next(member)
                    if task is not None:
                        self._hand(member, task)
                self._listen(POLL_SECONDS)
            for member, task, report in self.crew.stop():
                self._take(member, task, report)
        except KeyboardInterrupt:
            pass
        finally:
            self.ended = self.seconds
            self.crew.close()
            self.store.retry()

    @property
    def seconds(self) -> float:
        """How long rounds have been running."""
        return max(0.0, time.monotonic() - self.started)

    def _over(self) -> bool:
        if self.stop.asked:
            return True
        waiting = self._urgent or any(m.task and m.task.kind not in ROUNDS for m in self._members())
        return self.seconds >= self.settings.seconds and not waiting

    def _members(self) -> list[Member]:
        return self.crew.members

    def _listen(self, seconds: float) -> None:
        for member, task, report in self.crew.wait(seconds):
            self._take(member, task, report)
        now = time.monotonic()
        if now >= self._next_show and self.started < math.inf:
            self._next_show = now + self.shown.seconds_between
            self.shown.show(self.reading())
            self.store.retry()
            self.log_interval()

    # ---- what is next --------------------

    def _task(self, kind: str, lane: Lane, **more: Any) -> Task:
        self._number += 1
        given = {"limit": self.settings.limit, "as_found": str(self.store.as_found), **more}
        return Task(number=self._number, kind=kind, lane=lane, **given)

    def _next(self, member: Member) -> Task | None:
        """What an idle worker does now; None if there is nothing, or another worker must do it."""
        for task in self._urgent:
            if not _needs_fork(task) or member.fresh:
                self._urgent.remove(task)
                return task
        if self._urgent and all(not m.fresh for m in self.crew.members):
            self.crew.renew(member)
            return None
        if not all(track.commands for track in self.tracks.values()):
            return None
        trial = next((trial for trial in self.trials if not trial.verdict), None)
        if trial is not None:
            return self._trial(trial)
        if self.started == math.inf:
            self.started = time.monotonic()
            self._next_show = self.started + self.shown.seconds_between
        left = self.settings.seconds - self.seconds
        return self._round(member, left) if left > 0 else None

    def _trial(self, trial: Trial) -> Task:
        trial.tries += 1
        seed = f"{self.settings.seed}/{trial.name}/{trial.tries}"
        folder = str(self.store.self_test)
        return self._task(
            FRESH, trial.lane, seed=seed, seconds=ROUND_SECONDS, as_found=folder, feedback=False
        )

    def _round(self, member: Member, left: float) -> Task:
        track = turn(list(self.tracks.values()))
        track.pending += 1
        system = track.lane.system
        kind, bases, entries = FRESH, [], self.entries.get(system, [])
        if track.replays:
            kind, bases = REPLAYED, [track.replays.popleft()]
        elif entries and self._number % 2 and self.settings.feedback:
            choices = Seeded(f"{self.settings.seed}/bases/{self._number}")
            kind, bases = CHANGED, [choices.pick(entries) for _ in range(2)]
        news_of = self._news.get(system, [])
        known = dict(news_of[member.told[system] :])
        member.told[system] = len(news_of)
        return self._task(
            kind, track.lane,
            seed=f"{self.settings.seed}/{self._number}",
            seconds=min(ROUND_SECONDS, left),
            bases=tuple(map(str, bases)),
            traces=str(self.store.traces),
            known=known,
            feedback=self.settings.feedback,
            twice=self.settings.twice,
        )  # fmt: skip

    def _hand(self, member: Member, task: Task) -> None:
        member.give(task)

    # ---- what came of it --------------------

    def _take(self, member: Member, task: Task, report: dict[str, Any]) -> None:
        """Books a report."""
        for line in report.get("unreadable", ()):
            self._complain(line)
        for what, text in report.get("unsaved", ()):
            folder = self.store.traces if what == "kept" else Path(task.as_found)
            if path := self.store.keep(folder, text):
                report[what] = str(path)
            elif what == "found":
                self._count_unsaved(report, task)
        trial = next((trial for trial in self.trials if trial.lane is task.lane), None)
        if trial is not None:
            if not trial.verdict:
                trial.judge(report)
            return
        if "died" in report:
            return self._died(task, report["died"])
        if "error" in report:
            self.told.errors.append(report["error"])
            self.store.log("error", task=task.suspect(), error=report["error"])
            self._complain(f"an error of the harness:\n{report['error']}")
        if "unusable" in report and task.kind in (OPEN, *ROUNDS):
            raise UnusableSubject(report["unusable"])
        match task.kind:
            case kind if kind == OPEN:
                self._opened(task, report)
            case kind if kind == SHORTEN:
                self._shortened(task, report)
            case kind if kind == AUTOPSY:
                self._examined(task, report)
            case _:
                self._rounded(member, task, report)

    def _opened(self, task: Task, report: dict[str, Any]) -> None:
        track = self.tracks[task.lane.name]
        track.commands, track.calls = report["commands"], tuple(report["calls"])
        first = next(t for t in self.tracks.values() if t.lane.system == task.lane.system)
        if track is first and self.settings.feedback:
            track.replays.extend(self.entries.get(task.lane.system, []))

    def _rounded(self, member: Member, task: Task, report: dict[str, Any]) -> None:
        track, system = self.tracks[task.lane.name], task.lane.system
        track.pending -= 1
        known = self.known.setdefault(system, {})
        fresh = news(report.get("new", {}), known)
        new = len(fresh.keys() - known.keys())
        known.update(fresh)
        self._news.setdefault(system, []).extend(fresh.items())
        # What a replay shows was found by an earlier run.
        track.note(report, 0 if task.kind == REPLAYED else new)
        spent = report.get("seconds", 0.0) + report.get("blind_seconds", 0.0)
        charge(track, spent, list(self.tracks.values()))
        if "kept" in report:
            path = Path(report["kept"])
            self.entries.setdefault(system, []).append(path)
            self.told.entries += 1
            self.store.log("entry", file=path.name, system=system, features=len(fresh))
        if "found" in report:
            self._found(task.lane, report)

    # ---- findings --------------------

    def _found(self, lane: Lane, report: dict[str, Any]) -> None:
        """A finding is on disk: it is made short unless many like it were."""
        path = Path(report["found"])
        alike = (report["number"], report["command"], lane.system, lane.subject)
        self._seen[alike] += 1
        count = self._seen[alike]
        self.store.log("found", file=path.name, invariant=report["number"], count=count)
        always = 1 if report["number"] in FATAL else ALWAYS_SHORTENED
        if count <= always or count in RARELY_SHORTENED:
            limit = LONGEST_SECONDS + self.settings.limit
            task = self._task(SHORTEN, lane, bases=(str(path),), limit=limit)
            # The kind of a finding stands in the name of its file.
            self._urgent.append(replace(task, seed=report["number"]))
            return
        self.told.findings[alike] += 1
        self.store.forget(path)

    def _count_unsaved(self, report: dict[str, Any], task: Task) -> None:
        """A finding that no file could be written for is told, and kept in memory."""
        self.told.findings[report["number"], report["command"], task.lane.system, "unsaved"] += 1
        self.shown.say(f"{report['message']}\n  not saved yet: no file can be written")

    def _shortened(self, task: Task, report: dict[str, Any]) -> None:
        path = Path(task.bases[0])
        if "text" not in report:
            reason = report.get("whole") or report.get("unusable") or "not minimised"
            return self._keep_whole(path, reason)
        kinds = tuple(report["key"])
        self.told.findings[kinds] += 1
        if self.told.findings[kinds] == 1:
            saved = self.store.keep(self.store.findings, report["text"])
            where = replay_line(saved, task.lane.subject) if saved else "  not saved yet"
            self.shown.say(f"{report['story']}\n{where}")
            self.store.log("finding", file=saved and saved.name, kinds=kinds)
            if saved is None:
                return
        self.store.forget(path)

    def _keep_whole(self, path: Path, reason: str) -> None:
        """A finding that can't be made short stays as it was found."""
        try:
            trace = load(path)
        except UnusableTrace as error:
            self._complain(str(error))
            return
        kinds = (*key(trace)[:4], "as found")
        self.told.findings[kinds] += 1
        saved = self.store.keep(self.store.findings, trace.dumps())
        if saved is not None:
            self.store.forget(path)
            self.shown.say(f"{reason}\n  kept as found: {saved}")
            self.store.log("finding", file=saved.name, kinds=kinds)

    # ---- workers that died --------------------

    def _died(self, task: Task, status: int) -> None:
        lane = task.lane
        if task.kind == OPEN:
            raise Unusable(
                f"subject {lane.subject} ended its process while it was built for {lane.system}:"
                f" {_how(status)}"
            )
        self.store.log("worker", status=_how(status), task=task.suspect())
        if task.kind == SHORTEN:
            return self._keep_whole(Path(task.bases[0]), f"minimising ended by {_how(status)}")
        if task.kind == AUTOPSY:
            if not task.seed:
                return self._urgent.append(replace(task, number=self._renumber(), seed="again"))
            self._complain(f"why a worker ended can't be told: {task.of}")
            return self._settled(task)
        self.tracks[lane.name].pending -= 1
        charge(self.tracks[lane.name], self.settings.limit, list(self.tracks.values()))
        calls = self.tracks[lane.name].calls
        told = {"task": task.suspect(), "status": status, "calls": calls}
        self._examine(task.lane, told, self.store.suspect(task.number, told))

    def _renumber(self) -> int:
        self._number += 1
        return self._number

    def _examine(self, lane: Lane, told: dict[str, Any], path: Path | None) -> None:
        task = self._task(AUTOPSY, lane, of=told, limit=3 * self.settings.limit)
        if path is not None:
            self._suspects[task.number] = path
        self._urgent.append(task)

    def _examined(self, task: Task, report: dict[str, Any]) -> None:
        status = task.of["status"]
        if "found" in report:
            self._found(task.lane, report)
        elif report.get("innocent") and status not in (-signal.SIGKILL, -signal.SIGTERM):
            self._complain(
                f"a worker ended by {_how(status)}, which doesn't come again: task {task.of}"
            )
            self.told.findings["died", "comes and goes", task.lane.system, task.lane.subject] += 1
        self._settled(task)

    def _settled(self, task: Task) -> None:
        if path := self._suspects.pop(task.number, None):
            self.store.forget(path)

    def _resume(self) -> None:
        """What an earlier run has left to do: findings to make short, deaths to explain."""
        lanes = {(t.lane.system, t.lane.subject): t.lane for t in self.tracks.values()}
        for path in self.store.waiting(self.store.findings):
            try:
                self.told.findings[tuple(key(load(path)))] += 0
            except UnusableTrace as error:
                self._complain(str(error))
        for path in self.store.waiting(self.store.as_found):
            try:
                trace = load(path)
            except UnusableTrace as error:
                self._complain(str(error))
                continue
            lane = lanes.get((trace.system.name, trace.subject))
            if lane is not None:
                last = trace.commands[-1].name() if trace.commands else "__init__"
                report = {"found": str(path), "number": trace.invariant, "command": last}
                self._found(lane, report)
        for path, told in self.store.suspected():
            lane = lanes.get((told["task"]["lane"]["system"], told["task"]["lane"]["subject"]))
            if lane is not None:
                self._examine(lane, told, path)

    # ---- what is said --------------------

    def _complain(self, line: str) -> None:
        """What isn't as it should be, once."""
        if line not in self._complained:
            self._complained.add(line)
            self.shown.say(f"note: {line}")
            self.store.log("note", line=line)

    @property
    def steps(self) -> int:
        return sum(track.tally.steps for track in self.tracks.values())

    @property
    def features(self) -> int:
        return sum(map(len, self.known.values()))

    def reading(self) -> str:
        """How far the campaign is, in one line."""
        seconds = self.seconds
        rate = self.steps / seconds if seconds else 0.0
        corpus = sum(map(len, self.entries.values()))
        return (
            f"{seconds:6.1f} s of {self.settings.seconds:g}  {self.steps:>10,} steps"
            f"  {rate:>7,.0f} steps/s  features {self.features:,}  corpus {corpus:,}"
            f"  findings {self.told.findings.total()}"
        )

    def log_interval(self) -> None:
        """The JSON line of an interval."""
        seconds = self.seconds
        self.store.log(
            "interval",
            seconds=round(seconds, 2),
            steps=self.steps,
            steps_per_second=round(self.steps / seconds, 1) if seconds else 0.0,
            features={system: len(known) for system, known in self.known.items()},
            entries={system: len(paths) for system, paths in self.entries.items()},
            findings=self.told.findings.total(),
            kinds=len(+self.told.findings),
            restarts=self.crew.restarts,
            unsaved=len(self.store.unsaved),
            lanes={
                name: {
                    "steps": track.tally.steps,
                    "seconds": round(track.tally.seconds, 2),
                    "new": track.new,
                }
                for name, track in self.tracks.items()
            },
        )


def _needs_fork(task: Task) -> bool:
    """Whether only a worker that has run nothing may do it: a child of it will."""
    return task.kind == AUTOPSY or (task.kind == SHORTEN and task.seed in FATAL)


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
