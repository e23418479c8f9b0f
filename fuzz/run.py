"""`fuzz run`: rounds of the seeded driver over several systems, until the budget is spent.

The loop over commands is the driver's own (`properties.seeded`); here it is decided whose round is
next, when to stop, and what to show. Systems take turns by what they have used, so that a bounded
run visits all of them.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuzz import options, table
from fuzz.findings import Findings
from fuzz.options import Budget, check_plan
from fuzz.progress import Progress, Reading, progress
from fuzz.stop import listening
from properties.lockstep import EXACT, RENAMED
from properties.seeded import Plan, Tally, run_round
from properties.subjects import UnusableSubject
from properties.systems import SYSTEMS

CLEAN, FOUND = 0, 1


@dataclass
class Lane:
    """One system's part of the run."""

    plan: Plan
    commands: list[str]
    goal_steps: int | None
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
        return self.goal_steps is not None and self.charged >= self.goal_steps


class Run:
    """One run, from its plans to its verdict."""

    def __init__(
        self, lanes: Sequence[Lane], budget: Budget, findings: Findings, shown: Progress
    ) -> None:
        self.lanes = list(lanes)
        self.budget = budget
        self.findings = findings
        self.progress = shown
        self.started = time.monotonic()
        self.paused = 0.0
        self._next_show = self.started + shown.seconds_between
        self._goal = f"{budget.seconds:g} s" if budget.seconds else f"{budget.steps:,} steps"

    @property
    def steps(self) -> int:
        return sum(lane.tally.steps for lane in self.lanes)

    @property
    def seconds(self) -> float:
        """Time spent driving: minimising a finding is not counted."""
        return time.monotonic() - self.started - self.paused

    def drive(self) -> None:
        """Runs rounds until the budget is spent or somebody says stop."""
        try:
            while not self._over(time.monotonic()):
                ready = [lane for lane in self.lanes if not lane.done]
                if not ready:
                    return
                self._round(min(ready, key=self._used))
        except KeyboardInterrupt:
            return

    def _used(self, lane: Lane) -> float:
        return lane.tally.seconds if lane.goal_steps is None else lane.charged

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

    def _over(self, now: float) -> bool:
        if self.findings.stop.asked:
            return True
        limit = self.budget.seconds
        return limit is not None and now - self.started - self.paused >= limit

    def _more(self, lane: Lane) -> Callable[[], bool]:
        """Asked before every step: a clock and two comparisons."""
        goal = lane.goal_steps
        last = None if goal is None else lane.tally.steps + goal - lane.charged
        clock, tally = time.monotonic, lane.tally

        def more() -> bool:
            now = clock()
            if now >= self._next_show:
                self._show(lane, now)
            return not self._over(now) and (last is None or tally.steps < last)

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


def add(jobs: options.Jobs) -> None:
    """The arguments of `run`."""
    doing = "drive systems in lockstep with the reference for a while"
    job = jobs.add_parser("run", help=doing, description=doing)
    job.set_defaults(start=start)
    job.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(SYSTEMS)}, all")
    job.add_argument("--seconds", type=float, help="how long (default: 20)")
    job.add_argument("--steps", type=int, help="how many steps, instead of --seconds")
    job.add_argument("--subject", default="impl", help=f"what to test: {options.SUBJECTS}")
    job.add_argument("--seed", type=int, help="repeats a run (default: drawn, and printed)")
    job.add_argument("--level", choices=(EXACT, RENAMED), help="how closely order is compared")
    job.add_argument("--misuse", action="store_true", help="also what must be refused")
    job.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FIELD=V1,V2",
        help="values of a config field",
    )


def start(args: argparse.Namespace) -> int:
    """Runs what the arguments ask for; the exit status."""
    budget = options.budget(args.seconds, args.steps)
    factory = options.subject(args.subject)
    chosen = options.systems(args.systems, factory)
    limits = options.only(args.only, chosen, factory)
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    plans = [
        Plan(
            system=system,
            factory=factory,
            seed=seed,
            level=args.level or "",
            misuse=True if args.misuse else None,
            limits=limits[system.name],
        )
        for system in chosen
    ]
    return run(plans, budget)


def run(plans: Sequence[Plan], budget: Budget) -> int:
    """Runs the plans and prints the summary; the exit status."""
    commands = [check_plan(plan) for plan in plans]
    shares = _shares(budget.steps, len(plans))
    lanes = [Lane(*parts) for parts in zip(plans, commands, shares, strict=True)]
    print(f"seed {plans[0].seed}: {', '.join(lane.name for lane in lanes)}", flush=True)
    with listening() as stop:
        shown = progress()
        job = Run(lanes, budget, Findings(stop, shown.say), shown)
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


def _shares(steps: int | None, count: int) -> list[int | None]:
    """The steps in equal parts, the first ones larger by one where it doesn't come out even."""
    if steps is None:
        return [None] * count
    return [steps // count + (i < steps % count) for i in range(count)]
