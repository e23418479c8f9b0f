"""`fuzz schedules`: all schedules of three actors, and drawn ones of more.

Exactly those in which somebody uses what is gone must end in a refusal or a violation.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import time

from fuzz import options
from fuzz.options import Unusable
from fuzz.progress import progress
from fuzz.stop import listening
from properties.choices import Seeded
from properties.report import describe
from properties.schedules import Runner, Schedule, drawn, every, stale
from properties.seeded import Plan
from properties.systems import SYSTEMS
from properties.trace import save

CLEAN, FOUND = 0, 1
SYSTEM = "overlap"


def add(jobs: options.Jobs) -> None:
    """The arguments of `schedules`."""
    doing = "run all schedules of three actors, then drawn ones: stale use must show, always"
    job = jobs.add_parser("schedules", help=doing, description=doing)
    job.set_defaults(start=start)
    job.add_argument("--steps", type=int, default=3, choices=(3, 4), help="of each (default: 3)")
    job.add_argument("--drawn", type=int, default=0, metavar="N", help="so many drawn ones besides")
    job.add_argument("--subject", default="impl", help=f"what to test: {options.SUBJECTS}")
    job.add_argument("--seed", type=int, help="of the drawn ones (default: drawn, and printed)")


def start(args: argparse.Namespace) -> int:
    """Runs the schedules; the exit status."""
    if args.drawn < 0:
        raise Unusable(f"--drawn is {args.drawn}; a number from 0 on is allowed")
    factory = options.subject(args.subject)
    system = options.systems([SYSTEM], factory)[0]
    runner = Runner(Plan(system=SYSTEMS[system.name], factory=factory, seed=0))
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    more = (drawn(Seeded(f"{seed}/{i}")) for i in range(args.drawn))
    shown = progress()
    try:
        with listening() as stop:
            wrong, stopped = 0, False
            last = time.monotonic()
            counts = {True: 0, False: 0}
            for schedule in itertools.chain(every(args.steps), more):
                if stop.asked:
                    stopped = True
                    break
                if time.monotonic() - last > shown.seconds_between:
                    last = time.monotonic()
                    shown.show(f"{sum(counts.values()):,} schedules")
                counts[stale(schedule)] += 1
                wrong += _tell(runner, schedule)
    finally:
        shown.close()
    print(
        f"seed {seed}: {sum(counts.values()):,} schedules, {runner.distinct:,} of them distinct:"
        f" {counts[True]:,} use what is gone, {counts[False]:,} don't; {wrong} ended otherwise"
        f"{' (stopped early)' if stopped else ''}",
        flush=True,
    )
    return FOUND if wrong else CLEAN


def _tell(runner: Runner, schedule: Schedule) -> int:
    """1, and the story, where a schedule doesn't end as it must."""
    ran, due = runner.run(schedule), stale(schedule)
    if ran.wrong == due:
        return 0
    print(f"{schedule} must {'' if due else 'not '}go wrong", flush=True)
    if ran.finding is not None:
        trace = ran.finding.trace
        print(describe(trace, runner.plan.factory.make, save(trace)), flush=True)
    return 1
