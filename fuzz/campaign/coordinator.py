"""The coordinator: decides who does what next, and books what comes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz.campaign.casebook import Casebook, ending
from fuzz.campaign.crew import Crew, Member
from fuzz.campaign.features import news
from fuzz.campaign.lanes import Track, charge, part, turn
from fuzz.campaign.reading import log_interval, reading
from fuzz.campaign.rounds import CHANGED, FRESH, REPLAYED
from fuzz.campaign.selftest import Trial
from fuzz.campaign.store import Store
from fuzz.campaign.task import AUTOPSY, OPEN, SHORTEN, Lane, Task
from fuzz.options import Settings, Unusable
from fuzz.progress import Progress
from fuzz.stop import Stop
from properties.choices import Seeded
from properties.invariants import FATAL
from properties.subjects import UnusableSubject

# A round that takes longer is cut off: kernels in an interpreter make a hundred steps a second.
ROUND_SECONDS = 5.0
# What is waited for at a time; signals and the clock are looked at in between.
POLL_SECONDS = 0.2
ROUNDS = (FRESH, CHANGED, REPLAYED)


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
        self.casebook = Casebook(store, settings.limit, shown.say, self._task)
        #: the corpus by system, and by system the features known, with their places
        self.entries: dict[str, list[Path]] = {}
        self.known: dict[str, dict[str, int]] = {}
        self.kept = 0
        self.restarts = 0
        #: when the first round began, and how long rounds were running in the end
        self.started, self.lasted = math.inf, 0.0
        self._news: dict[str, list[tuple[str, int]]] = {}
        self._number = 0
        self._next_show = 0.0

    # ---- the loop --------------------

    def run(self) -> None:
        """Opens the lanes, tests itself, then goes on until the time is over or somebody stops."""
        self.entries = self.store.entries()
        lanes = [track.lane for track in self.tracks.values()]
        self.casebook.resume({(lane.system, lane.subject): lane for lane in lanes})
        # Before all else: it may say that there is nothing to run.
        self.casebook.urgent.extendleft([self._task(OPEN, lane) for lane in lanes])
        crew = Crew(self.settings.workers, self.store.root / "workers.log")
        try:
            while not self._over(crew):
                for member in crew.idle():
                    task = self._next(crew, member)
                    if task is not None:
                        member.give(task)
                for report in crew.wait(POLL_SECONDS):
                    self._take(*report)
                self._show(crew)
            for report in crew.stop():
                self._take(*report)
        except KeyboardInterrupt:
            pass
        finally:
            self.lasted = self.seconds
            crew.close()
            self.store.retry()

    @property
    def seconds(self) -> float:
        """How long rounds have been running."""
        return max(0.0, time.monotonic() - self.started)

    def _over(self, crew: Crew) -> bool:
        if self.stop.asked:
            return True
        enough = self.seconds >= self.settings.seconds or self.found_enough
        if not enough or self.casebook.urgent:
            return False
        return all(member.task is None or member.task.kind in ROUNDS for member in crew.members)

    def _show(self, crew: Crew) -> None:
        now = time.monotonic()
        if now < self._next_show or self.started == math.inf:
            return
        self._next_show = now + self.shown.seconds_between
        self.restarts = crew.restarts
        self.shown.show(reading(self))
        self.store.retry()
        log_interval(self)

    # ---- what is next --------------------

    def _task(self, kind: str, lane: Lane, **more: Any) -> Task:
        self._number += 1
        given = {"limit": self.settings.limit, "as_found": str(self.store.as_found), **more}
        return Task(number=self._number, kind=kind, lane=lane, **given)

    def _next(self, crew: Crew, member: Member) -> Task | None:
        """What an idle worker does now; None if there is nothing, or another worker must do it."""
        urgent = self.casebook.urgent
        for task in urgent:
            if member.fresh or not _needs_fork(task):
                urgent.remove(task)
                return task
        if urgent and not any(other.fresh for other in crew.members):
            crew.renew(member)
            return None
        if not all(track.commands for track in self.tracks.values()):
            return None
        trial = next((trial for trial in self.trials if not trial.verdict), None)
        if trial is not None:
            return self._trial(trial)
        if self.started == math.inf:
            self.shown.say(f"seed {self.settings.seed}: {', '.join(self.tracks)}")
            self.started = time.monotonic()
            self._next_show = self.started + self.shown.seconds_between
        left = self.settings.seconds - self.seconds
        return self._round(member, left) if left > 0 else None

    def _trial(self, trial: Trial) -> Task:
        """A round of the self-test; nothing of it is kept or learnt from."""
        trial.tries += 1
        return self._task(
            FRESH,
            trial.lane,
            seed=f"{self.settings.seed}/{trial.name}/{trial.tries}",
            seconds=ROUND_SECONDS,
            as_found=str(self.store.self_test),
            feedback=False,
        )

    def _round(self, member: Member, left: float) -> Task:
        """A round of the lane whose turn it is: what waits to be replayed, else half and half."""
        tracks = list(self.tracks.values())
        track, seconds = turn(tracks), part(tracks, left)
        track.pending += 1
        system = track.lane.system
        kind, bases, entries = FRESH, [], self.entries.get(system, [])
        if track.replays:
            kind, bases = REPLAYED, [track.replays.popleft()]
        elif entries and self._number % 2 and self.settings.feedback:
            choices = Seeded(f"{self.settings.seed}/bases/{self._number}")
            kind, bases = CHANGED, [choices.pick(entries) for _ in range(2)]
        return self._task(
            kind,
            track.lane,
            seed=f"{self.settings.seed}/{self._number}",
            seconds=min(ROUND_SECONDS, seconds),
            bases=tuple(map(str, bases)),
            traces=str(self.store.traces),
            known=self._untold(member, system),
            feedback=self.settings.feedback,
            twice=self.settings.twice,
        )

    def _untold(self, member: Member, system: str) -> dict[str, int]:
        """The features of a system that a worker hasn't heard of."""
        every = self._news.get(system, [])
        untold = dict(every[member.told[system] :])
        member.told[system] = len(every)
        return untold

    # ---- what came of it --------------------

    def _take(self, member: Member, task: Task, report: dict[str, Any]) -> None:
        """Books a report."""
        for line in report.get("unreadable", ()):
            self.casebook.complain(line)
        for what, text in report.get("unsaved", ()):
            self._keep(task, report, what, text)
        trial = next((trial for trial in self.trials if trial.lane is task.lane), None)
        if trial is not None:
            return trial.judge(report)
        if "died" in report:
            return self._died(task, report["died"])
        if "unusable" in report and task.kind in (OPEN, *ROUNDS):
            raise UnusableSubject(report["unusable"])
        if "error" in report:
            self.casebook.error(task, report["error"])
        match task.kind:
            case "open":
                self._opened(task, report)
            case "shorten":
                self.casebook.shortened(task, report)
            case "autopsy":
                self.casebook.examined(task, report)
            case _:
                self._rounded(task, report)

    def _keep(self, task: Task, report: dict[str, Any], what: str, text: str) -> None:
        """Writes what a worker couldn't write, or keeps it in memory."""
        folder = self.store.traces if what == "kept" else Path(task.as_found)
        if path := self.store.keep(folder, text):
            report[what] = str(path)
        elif what == "found":
            self.casebook.unsaved(task.lane, report)

    def _died(self, task: Task, status: int) -> None:
        if task.kind == OPEN:
            raise Unusable(
                f"subject {task.lane.subject} ended its process while it was built for"
                f" {task.lane.system}: {ending(status)}"
            )
        track = self.tracks[task.lane.name]
        if task.kind in ROUNDS:
            track.pending -= 1
            charge(track, ROUND_SECONDS, list(self.tracks.values()))
        self.casebook.died(task, status, track.calls)

    def _opened(self, task: Task, report: dict[str, Any]) -> None:
        if "error" in report:
            raise Unusable(f"{task.lane.name} can't be opened: {report['error'].splitlines()[-1]}")
        track = self.tracks[task.lane.name]
        track.commands, track.calls = report["commands"], tuple(report["calls"])
        first = next(t for t in self.tracks.values() if t.lane.system == task.lane.system)
        if track is first and self.settings.feedback:
            track.replays.extend(self.entries.get(task.lane.system, []))

    def _rounded(self, task: Task, report: dict[str, Any]) -> None:
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
            self.kept += 1
            self.store.log("entry", file=path.name, system=system, features=len(fresh))
        if "found" in report:
            self.casebook.found(task.lane, report)

    @property
    def found_enough(self) -> bool:
        """Whether one finding was asked for and is there."""
        return self.settings.until_found and self.casebook.findings.total() > 0

    @property
    def steps(self) -> int:
        """Lockstep steps of all rounds."""
        return sum(track.tally.steps for track in self.tracks.values())

    @property
    def features(self) -> int:
        """How many features are known, of all systems."""
        return sum(map(len, self.known.values()))


def _needs_fork(task: Task) -> bool:
    """Whether only a worker that has run nothing may do it: a child of it will."""
    return task.kind == AUTOPSY or (task.kind == SHORTEN and task.seed in FATAL)
