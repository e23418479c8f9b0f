"""A worker: reads a task, does it, says what came of it; `python -m fuzz.campaign.worker`.

It writes what it finds to disk before it says so. A round that doesn't end is ended by an alarm,
with the process; what it was doing, the coordinator knows. It ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz import options, process
from fuzz.campaign import autopsy
from fuzz.campaign.features import Watch, news
from fuzz.campaign.rounds import REPLAYED, Round, opened
from fuzz.campaign.store import written
from fuzz.campaign.task import AUTOPSY, OPEN, SHORTEN, Lane, Task
from properties.commands import Command, UnusableTrace
from properties.lockstep import Lockstep
from properties.seeded import Finding, Plan, Tally, drive
from properties.subjects import UnusableSubject
from properties.trace import Trace, load, versions

Report = dict[str, Any]
# A trace read once is read again soon: half of all rounds change one of the corpus.
MOST_TRACES = 500


class Worker:
    """What a worker keeps between tasks."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan] = {}
        self._known: dict[str, dict[str, int]] = {}
        self._traces: dict[str, Trace] = {}
        self._versions = versions()
        self.stopped = False

    def do(self, task: Task) -> Report:
        """The report of a task."""
        try:
            if task.kind == OPEN:
                return self._open(task)
            if task.kind == SHORTEN:
                return autopsy.shortened(task, self.plan(task.lane))
            if task.kind == AUTOPSY:
                return autopsy.autopsy(task, self.trace)
            return self._round(task)
        except (options.Unusable, UnusableSubject, UnusableTrace) as error:
            return {"unusable": " ".join(str(error).split())}
        except Exception:
            return {"error": traceback.format_exc()}

    def plan(self, lane: Lane) -> Plan:
        """The lane's plan, made once."""
        key = repr(lane)
        if key not in self._plans:
            self._plans[key] = lane.plan()
        return self._plans[key]

    def trace(self, path: str) -> Trace:
        """A trace of the corpus."""
        if path not in self._traces:
            if len(self._traces) >= MOST_TRACES:
                self._traces.clear()
            self._traces[path] = load(Path(path))
        return self._traces[path]

    def _open(self, task: Task) -> Report:
        """Builds the subject once: what can be driven, and with which methods."""
        plan = self.plan(task.lane)
        commands, calls = options.check_plan(plan)
        return {"commands": commands, "calls": sorted(calls)}

    def _round(self, task: Task) -> Report:
        plan = self.plan(task.lane)
        known = self._known.setdefault(task.lane.system, {})
        known.update(task.known)
        bases, unusable = self._bases(task)
        if task.kind == REPLAYED and not bases:
            return {"unreadable": unusable}
        report: Report = {"unreadable": unusable}
        # Which of the two comes first changes from task to task: the second has warm caches.
        for with_feedback in (True, False) if task.number % 2 else (False, True):
            if with_feedback != task.feedback and not task.twice:
                continue
            round_ = opened(plan, task.kind, task.seed, bases)
            begun = time.perf_counter()
            if with_feedback:
                report |= self._watched(task, plan, round_, known)
                report["seconds"] = time.perf_counter() - begun
            else:
                tally = Tally(looks=False)
                finding, _ = self._drive(plan, round_, tally, task.seconds)
                report["blind_steps"] = tally.steps
                report["blind_seconds"] = time.perf_counter() - begun
                if not task.feedback:
                    report |= self._told(task, tally, finding)
        return report

    def _bases(self, task: Task) -> tuple[list[Trace], list[str]]:
        """The traces that the task names, and why others can't be read."""
        found, unusable = [], []
        for path in task.bases:
            try:
                trace = self.trace(path)
            except UnusableTrace as error:
                unusable.append(" ".join(str(error).split()))
                continue
            if trace.system.name == task.lane.system:
                found.append(trace)
            else:
                unusable.append(f"{path}: of {trace.system.name}, not {task.lane.system}")
        return found, unusable

    def _watched(self, task: Task, plan: Plan, round_: Round, known: dict[str, int]) -> Report:
        watch = Watch()
        finding, ran = self._drive(plan, round_, watch, task.seconds)
        report = self._told(task, watch, finding)
        fresh = news(watch.places(), known)
        known.update(fresh)
        report["new"] = fresh
        if fresh and task.traces and task.kind != REPLAYED and ran is not None:
            commands = tuple(ran.commands[: max(fresh.values())])
            trace = Trace(
                system=plan.system,
                config=ran.config,
                commands=commands,
                subject=plan.factory.name,
                level=plan.judged()[0],
                versions=self._versions,
            )
            self._keep(report, "kept", Path(task.traces), trace)
        return report

    def _drive(
        self, plan: Plan, round_: Round, tally: Tally, seconds: float
    ) -> tuple[Finding | None, Lockstep | None]:
        """Runs a round; the finding, and the run as far as it came."""
        runs: list[Lockstep] = []
        end = time.monotonic() + seconds
        clock = time.monotonic

        def commands(lock: Lockstep) -> Iterator[Command]:
            runs.append(lock)
            yield from round_.commands(lock)

        finding = drive(
            plan, round_.config, commands, tally, lambda: not self.stopped and clock() < end
        )
        return finding, runs[0] if runs else None

    def _told(self, task: Task, tally: Tally, finding: Finding | None) -> Report:
        """Steps, outcomes and times of a round; its finding is on disk by then."""
        report: Report = {
            "steps": tally.steps,
            "outcomes": [[*key, count] for key, count in tally.outcomes.items()],
            "times": tally.time_by_command,
        }
        if finding is not None:
            trace = finding.trace
            report["number"] = finding.violation.number
            report["command"] = trace.commands[-1].name() if trace.commands else "__init__"
            report["message"] = str(finding.violation)
            self._keep(report, "found", Path(task.as_found), trace)
        return report

    def _keep(self, report: Report, what: str, folder: Path, trace: Trace) -> None:
        """Writes a trace; where that can't be done the report carries it."""
        text = trace.dumps()
        path = written(folder, text)
        if path is None:
            report.setdefault("unsaved", []).append([what, text])
        else:
            report[what] = str(path)
            self._traces[str(path)] = trace


def main() -> None:
    """Serves tasks until there are no more."""
    process.settle()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a subject prints isn't an answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's
    worker = Worker()

    def stop(*_: Any) -> None:
        worker.stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        task = Task.loads(line)
        signal.setitimer(signal.ITIMER_REAL, task.limit)
        report = worker.do(task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            answers.write(json.dumps({"task": task.number, **report}) + "\n")
            answers.flush()
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
