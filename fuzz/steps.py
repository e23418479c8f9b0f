"""`fuzz run --steps`: rounds of the seeded driver over several systems, so many steps in all.

The loop over commands is the driver's own (`properties.seeded`); here it is decided whose round is
next, when to stop, and what to show. The same seed does the same steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuzz import table
from fuzz.findings import Findings
from fuzz.options import check_plan
from fuzz.progress import Progress, Reading, progress
from fuzz.stop import listening
from properties.seeded import Plan, Tally, run_round
from properties.subjects import UnusableSubject

CLEAN, FOUND = 0, 1


@dataclass
class Lane:
    """One system's part of the run."""

    plan: Plan
    commands: list[str]
    goal_steps: int
    tally: Tally = field(default_factory=Tally)
    rounds: int = 0
    #: steps charged: those done, one for each finding, and at least one a round, so that a
    #: subject that fails at once uses up its share too
    charged: int = 0

    @property
    def name(self) -> str:
        return self.plan.system.name

    @property
    def done(self) -> bool:
        return self.charged >= self.goal_steps


class Run:
    """One run, from its plans to its verdict."""

    def __init__(
        self, lanes: Sequence[Lane], steps: int, findings: Findings, shown: Progress
    ) -> None:
        self.lanes = list(lanes)
        self.findings = findings
        self.progress = shown
        self.started = time.monotonic()
        self.paused = 0.0
        self._next_show = self.started + shown.seconds_between
        self._goal = f"{steps:,} steps"

    @property
    def steps(self) -> int:
        return sum(lane.tally.steps for lane in self.lanes)

    @property
    def seconds(self) -> float:
        """Time spent driving: minimising a finding is not counted."""
        return time.monotonic() - self.started - self.paused

    def drive(self) -> None:
        """Runs rounds until all steps are done or somebody says stop."""
        try:
            while not self.findings.stop.asked:
                ready = [lane for lane in self.lanes if not lane.done]
                if not ready:
                    return
                self._round(min(ready, key=lambda lane: lane.charged))
        except KeyboardInterrupt:
            return

    def _round(self, lane: Lane) -> None:
        before = lane.tally.steps
        found = run_round(lane.plan, lane.rounds, lane.tally, self._more(lane))
        lane.rounds += 1
        lane.charged += max(1, lane.tally.steps - before + (found is not None))
        if found is not None:
            begun = time.monotonic()
            self.findings.take(found, lane.plan.factory)
            pause = time.monotonic() - begun
            self.paused += pause
            self._next_show += pause

    def _more(self, lane: Lane) -> Callable[[], bool]:
        """Asked before every step: a clock and two comparisons."""
        last = lane.tally.steps + lane.goal_steps - lane.charged
        clock, tally, stop = time.monotonic, lane.tally, self.findings.stop

        def more() -> bool:
            now = clock()
            if now >= self._next_show:
                self._show(lane, now)
            return not stop.asked and tally.steps < last

        return more

    def _show(self, lane: Lane, now: float) -> None:
        self._next_show = now + self.progress.seconds_between
        self.progress.show(
            Reading(lane.name, self.steps, self.seconds, self.findings.total, self._goal)
        )

    def verdict(self) -> str:
        """The last line of a run."""
        seconds = sum(lane.tally.seconds for lane in self.lanes)
        rounds = sum(lane.rounds for lane in self.lanes)
        rate = self.steps / seconds if seconds else 0.0
        did = f"{self.steps:,} steps in {rounds:,} rounds, {seconds:.1f} s, {rate:,.0f} steps/s"
        stopped = " (stopped early)" if self.findings.stop.asked else ""
        found = self.findings
        if not found.total:
            return f"clean: {did}{stopped}"
        kinds = ", ".join(
            f"{invariant} {system}.{command} x{count}"
            for (system, invariant, command), count in found.told.items()
        )
        return f"FINDINGS: {found.total} of {len(found.told)} kinds: {kinds}; {did}{stopped}"


def run(plans: Sequence[Plan], steps: int) -> int:
    """Runs the plans and prints the summary; the exit status."""
    commands = [check_plan(plan)[0] for plan in plans]
    shares = _shares(steps, len(plans))
    lanes = [Lane(*parts) for parts in zip(plans, commands, shares, strict=True)]
    print(f"seed {plans[0].seed}: {', '.join(lane.name for lane in lanes)}", flush=True)
    with listening() as stop:
        shown = progress()
        job = Run(lanes, steps, Findings(stop, shown.say), shown)
        broken = None
        try:
            job.drive()
        except UnusableSubject as error:
            broken = error
        finally:
            shown.close()
            table.show(
                [row for lane in lanes for row in table.rows(lane.name, lane.commands, lane.tally)]
            )
            # an exception on its way says more than a verdict could
            if broken is not None or sys.exc_info()[0] is None:
                print(job.verdict(), flush=True)
    if broken is not None:
        raise broken
    return FOUND if job.findings.total else CLEAN


def _shares(steps: int, count: int) -> list[int]:
    """The steps in equal parts, the first ones larger by one where it doesn't come out even."""
    return [steps // count + (i < steps % count) for i in range(count)]
