"""`fuzz run`: a campaign for a time, or with `--steps` so many steps of the seeded driver."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from fuzz import options, steps
from fuzz.campaign import job as campaign
from fuzz.campaign.task import Lane
from properties.lockstep import EXACT, RENAMED
from properties.seeded import Plan
from properties.subjects import backends
from properties.systems import SYSTEMS


def add(jobs: options.Jobs) -> None:
    """The arguments of `run`."""
    doing = "drive systems in lockstep with the reference for a while"
    job = jobs.add_parser("run", help=doing, description=doing)
    job.set_defaults(start=start)
    job.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(SYSTEMS)}, all")
    job.add_argument("--seconds", type=float, help="how long (default: 20)")
    job.add_argument("--hours", type=float, help="how long, instead of --seconds")
    job.add_argument("--steps", type=int, help="so many seeded steps in this process, no campaign")
    job.add_argument("--workers", type=int, metavar="N", help="processes (default: 1)")
    job.add_argument(
        "--corpus", type=Path, metavar="DIR", help="where traces and findings are kept"
    )
    job.add_argument("--shard", metavar="I/N", help="part I of N machines, each with other seeds")
    job.add_argument("--limit", type=float, metavar="S", help="seconds for one trace (default: 60)")
    job.add_argument("--until-found", action="store_true", help="end at the first finding")
    job.add_argument("--no-feedback", action="store_true", help="learn nothing from what is met")
    job.add_argument(
        "--measure-feedback", action="store_true", help="run each round with feedback and without"
    )
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
    budget = options.budget(args)
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    settings = None if budget.seconds is None else options.campaign(args, budget.seconds, seed)
    factory = options.subject(args.subject)
    chosen = options.systems(args.systems, factory)
    limits = options.only(args.only, chosen, factory)
    misuse = True if args.misuse else None
    if settings is None:
        plans = [
            Plan(
                system=system,
                factory=factory,
                seed=seed,
                level=args.level or "",
                misuse=misuse,
                limits=limits[system.name],
            )
            for system in chosen
        ]
        return steps.run(plans, budget.steps or 0)
    lanes = [
        Lane(
            system=system.name,
            subject=subject,
            level=args.level or "",
            misuse=misuse,
            limits=dict(limits[system.name]),
        )
        for system in chosen
        for subject in backends(args.subject, system.name)
    ]
    return campaign.run(lanes, settings, args.corpus)
