"""`fuzz exhaust`: every command sequence on a tiny pool, for each small config of a system.

Each config is walked twice: without the commands that open groups, and with all.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuzz import options, walks
from fuzz.findings import Findings
from fuzz.progress import Progress, progress
from fuzz.stop import listening
from fuzz.walks import Event, Walk
from properties.choices import TooManyChoices
from properties.exhaust import Endless, Searched, Unwalked, configs, has_groups
from properties.scope import Scope
from properties.subjects import Factory
from properties.systems import SYSTEMS

CLEAN, FOUND = 0, 1
# There a page is a row, or a slot.
WITHOUT_PAGES = ("rows", "token", "state_slots", "hybrid_rows")
# Far more than any search ends with.
LARGEST = 64


@dataclass
class Reading:
    """How far all walks are."""

    count: int
    started: float = field(default_factory=time.monotonic)
    reached: dict[int, Searched] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def note(self, event: Event) -> None:
        self.reached[event.at] = event.searched
        if event.done:
            self.done.add(event.at)

    @property
    def totals(self) -> str:
        found = self.reached.values()
        states, edges = sum(each.states for each in found), sum(each.edges for each in found)
        return f"{states:,} states, {edges:,} edges, {time.monotonic() - self.started:.1f} s"

    def __str__(self) -> str:
        going = [each.depth for at, each in self.reached.items() if at not in self.done]
        depth = f", at depth {max(going)}" if going else ""
        return f"{self.totals}; {len(self.done)} of {self.count} walks done{depth}"


def add(jobs: options.Jobs) -> None:
    """The arguments of `exhaust`."""
    doing = "run every command sequence on a tiny pool, as a graph of states"
    job = jobs.add_parser("exhaust", help=doing, description=doing)
    job.set_defaults(start=start)
    job.add_argument("system", metavar="SYSTEM", help=", ".join(SYSTEMS))
    job.add_argument("--pages", type=int, required=True, metavar="P", help="pages, slots or rows")
    job.add_argument("--page-size", type=int, metavar="B", help="slots of a page (rows, token: 1)")
    job.add_argument("--requests", type=int, required=True, metavar="R", help="most, at a time")
    job.add_argument("--depth", type=int, metavar="D", help="most commands (default: no bound)")
    job.add_argument("--subject", default="impl", help=f"what to test: {options.SUBJECTS}")
    job.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core)")


def start(args: argparse.Namespace) -> int:
    """Runs what the arguments ask for; the exit status."""
    factory = options.subject(args.subject)
    if args.system == "all":
        raise options.Unusable(f"system 'all': one is searched at a time: {', '.join(SYSTEMS)}")
    (system,) = options.systems([args.system], factory)
    scope = _scope(args)
    for name in ("depth", "workers"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise options.Unusable(f"--{name} is {value}; at least 1 is allowed")
    try:
        found = [
            Walk(
                system=system.name, subject=args.subject, config=config, scope=scope,
                groups=groups, depth=args.depth,
            )
            for config in configs(system, scope, factory)
            for groups in ((False, True) if has_groups(system) else (False,))
        ]  # fmt: skip
        for one in found:
            walks.probe(one, factory)
        return run(found, factory, min(args.workers or os.cpu_count() or 1, len(found)))
    except Unwalked as error:
        raise options.Unusable(str(error)) from None
    except (Endless, TooManyChoices) as error:
        raise options.Unusable(f"the search would not end: {error}") from None


def _scope(args: argparse.Namespace) -> Scope:
    size = args.page_size
    if args.system in WITHOUT_PAGES:
        if size not in (None, 1):
            raise options.Unusable(f"--page-size is {size}; {args.system} has no pages: 1, or none")
        size = 1
    elif size is None:
        raise options.Unusable(f"--page-size is missing; {args.system} has pages")
    for name, value in (("pages", args.pages), ("page-size", size), ("requests", args.requests)):
        if not 1 <= value <= LARGEST:
            raise options.Unusable(f"--{name} is {value}; 1 to {LARGEST} are allowed")
    return Scope(pages=args.pages, page_size=size, requests=args.requests)


def run(found: Sequence[Walk], factory: Factory, workers: int) -> int:
    """Walks, by so many processes, and tells what comes of it; the exit status."""
    print(f"{found[0].system} of {factory.name}: {found[0].scope}", flush=True)
    with listening() as stop:
        shown = progress()
        findings = Findings(stop, shown.say)
        reading = Reading(len(found))
        heard = _listener(found, factory, findings, reading, shown)
        try:
            if workers > 1:
                for event in walks.apart(found, workers, lambda: stop.asked):
                    heard(event)
            else:
                walks.here(found, factory, heard, lambda: stop.asked)
        except KeyboardInterrupt:
            pass
        finally:
            shown.close()
    print(_verdict(reading, findings, stop.asked), flush=True)
    return FOUND if findings.total else CLEAN


def _listener(
    found: Sequence[Walk], factory: Factory, findings: Findings, reading: Reading, shown: Progress
) -> Callable[[Event], None]:
    """Tells of findings at once, of walks that have ended, and now and then how far all are."""
    due = time.monotonic() + shown.seconds_between

    def heard(event: Event) -> None:
        nonlocal due
        reading.note(event)
        if event.done:
            shown.say(f"{found[event.at]}: {_told(event.searched)}")
            if event.searched.finding is not None:
                findings.take(event.searched.finding, factory)
        elif time.monotonic() >= due:
            due = time.monotonic() + shown.seconds_between
            shown.show(reading)

    return heard


def _told(searched: Searched) -> str:
    """One walk in words."""
    size = f"{searched.states:,} states, {searched.edges:,} edges, depth {searched.depth}"
    if searched.finding is not None:
        trace = searched.finding.trace
        return f"{trace.invariant} after {len(trace.commands)} commands; {size}"
    return f"{size}, {'closed' if searched.closed else 'not closed'}"


def _verdict(reading: Reading, findings: Findings, stopped: bool) -> str:
    """The last line."""
    early = " (stopped early)" if stopped else ""
    if findings.total:
        kinds = ", ".join(
            f"{invariant} {system}.{command} x{count}"
            for (system, invariant, command), count in findings.told.items()
        )
        total, count = findings.total, len(findings.told)
        return f"FINDINGS: {total} of {count} kinds: {kinds}; {reading.totals}{early}"
    everything = len(reading.done) == reading.count
    closed = everything and all(each.closed for each in reading.reached.values())
    return f"clean, {'closed' if closed else 'not closed'}: {reading.totals}{early}"
