"""`fuzz mutants`: each planted bug looked for in every way, and a table of who found it.

What shows how strong the harness is: a bug that its system's test or a campaign misses is a
finding about the harness.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fuzz import options, table, ways
from fuzz.findings import note
from fuzz.progress import progress
from fuzz.stop import listening
from fuzz.ways import Found
from properties.museum import exhibits
from properties.planted import BUGS, BY_SLUG, SLOW, Bug
from properties.subjects import UnusableSubject, load
from properties.systems import SYSTEMS

CLEAN, MISSED = 0, 1
DEFAULT_SECONDS = 60.0
# Nobody reads a longer trace.
MOST_COMMANDS = 15
TESTS, RUN, MUSEUM, SCOPE = "tests", "fuzz run", "museum", "small scope"
WAYS = (TESTS, RUN, MUSEUM, SCOPE)
#: in each of these every bug has to be found
REQUIRED = (TESTS, RUN)
HEADINGS = ("bug", "upstream", "invariant", *WAYS, "commands")
LEFT_COLUMNS = 3


@dataclass
class Verdict:
    """What became of one bug: for each way that applies what it found, or None."""

    bug: Bug
    found: dict[str, Found | None] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        """The ways that had to find it and didn't: at all, by what it breaks, or in short."""
        return [way for way in REQUIRED if way in self.found and not self._rightly(way)]

    def _rightly(self, way: str) -> bool:
        found = self.found[way]
        return (
            found is not None
            and found.invariant in (self.bug.invariant, *self.bug.also)
            and found.commands <= MOST_COMMANDS
        )

    def to_json(self) -> dict[str, Any]:
        """The verdict as `fuzz report` reads it."""
        found = {way: found and asdict(found) for way, found in self.found.items()}
        bug = self.bug
        upstream = list(bug.upstream)
        return {"bug": bug.slug, "upstream": upstream, "invariant": bug.invariant, "found": found}

    def cells(self) -> table.Row:
        """A line of the table."""
        commands = [found.commands for found in self.found.values() if found is not None]
        return (
            self.bug.slug,
            _short(self.bug.upstream),
            self.bug.invariant,
            *(str(self.found[way] or "missed") if way in self.found else "-" for way in WAYS),
            str(min(commands)) if commands else "-",
        )


def _short(references: Sequence[str]) -> str:
    """The first reference, and how many there are besides."""
    more = f" +{len(references) - 1}" if len(references) > 1 else ""
    return f"{references[0]}{more}" if references else "-"


def add(jobs: options.Jobs) -> None:
    """The arguments of `mutants`."""
    doing = "look for every planted bug in every way, and tell who found it"
    job = jobs.add_parser("mutants", help=doing, description=doing)
    job.set_defaults(start=start)
    job.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(SYSTEMS)}, all")
    job.add_argument(
        "--budget", type=float, default=DEFAULT_SECONDS, metavar="S",
        help=f"seconds for each bug and way (default: {DEFAULT_SECONDS:g})",
    )  # fmt: skip
    job.add_argument(
        "-o", dest="out", type=Path, metavar="FILE",
        help="the table as JSON too: as mutants.json beside a campaign's log `report` shows it",
    )  # fmt: skip
    job.add_argument("--generated", action="store_true", help="mutants made by a machine instead")
    job.add_argument("--count", type=int, metavar="N", help="so many of these (default: 100)")
    job.add_argument("--seed", type=int, help="which of these (default: drawn, and printed)")
    job.add_argument("--workers", type=int, metavar="N", help="processes (default: all cores)")
    job.add_argument("--only", default="", metavar="BUG,…", help="only these bugs, by their slugs")


def start(args: argparse.Namespace) -> int:
    """Runs what the arguments ask for; the exit status."""
    if args.generated:
        from fuzz import generated  # which loads all of impl, and its tests

        return generated.run(args.count, args.seed, args.workers)
    if not (math.isfinite(args.budget) and args.budget > 0):
        raise options.Unusable(f"--budget is {args.budget}; a finite number above 0 is allowed")
    bugs = chosen(args.systems, args.only)
    if args.out is None:
        return run(bugs, args.budget)[0]
    try:
        args.out.write_text("[]\n", encoding="utf-8")  # better now than in an hour
        status, verdicts = run(bugs, args.budget)
        rows = ",\n".join(json.dumps(verdict.to_json()) for verdict in verdicts)
        args.out.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    except OSError as error:
        raise options.Unusable(f"-o {args.out}: can't be written: {error.strerror}") from None
    return status


def chosen(systems: Sequence[str], only: str) -> list[Bug]:
    """The bugs that were asked for, of these systems."""
    for name in systems:
        if name != "all" and name not in SYSTEMS:
            raise options.Unusable(
                f"system {name!r} is unknown; allowed: {', '.join(SYSTEMS)}, all"
            )
    slugs = [slug for slug in only.split(",") if slug]
    for slug in slugs:
        if slug not in BY_SLUG:
            load(f"planted:{slug}")  # says which there are
    bugs = [BY_SLUG[slug] for slug in slugs] or [*BUGS, *SLOW]
    if systems and "all" not in systems:
        bugs = [bug for bug in bugs if bug.system in systems]
    if not bugs:
        raise options.Unusable(f"none of these bugs is one of {', '.join(systems)}")
    return bugs


def run(bugs: Sequence[Bug], budget_seconds: float) -> tuple[int, list[Verdict]]:
    """Looks for the bugs and prints the table; the exit status, and what became of each."""
    shown, verdicts = progress(), list[Verdict]()
    with listening() as stop:
        try:
            with stop.interruptible():
                for number, bug in enumerate(bugs, 1):
                    try:
                        load(f"planted:{bug.slug}")
                    except UnusableSubject as error:
                        note(f"{bug.slug} can't be here: {error}")
                        continue
                    verdict = Verdict(bug)
                    for way, look in ways_of(bug, budget_seconds).items():
                        shown.show(f"{number} of {len(bugs)}: {bug.slug}: {way}")
                        verdict.found[way] = look()
                    verdicts.append(verdict)
        except KeyboardInterrupt:
            note(f"interrupted: {len(verdicts)} of {len(bugs)} bugs were looked for")
        finally:
            shown.close()
    table.show([verdict.cells() for verdict in verdicts], HEADINGS, LEFT_COLUMNS)
    return _told(verdicts), verdicts


def ways_of(bug: Bug, budget_seconds: float) -> dict[str, Callable[[], Found | None]]:
    """The ways that apply to a bug."""
    found: dict[str, Callable[[], Found | None]] = {
        TESTS: partial(ways.by_tests, bug, budget_seconds),
        RUN: partial(ways.by_run, bug, budget_seconds),
    }
    for exhibit in exhibits():
        if exhibit.bug == bug.slug:
            found[MUSEUM] = partial(ways.in_museum, exhibit)
    if bug.scope is not None:
        found[SCOPE] = partial(ways.in_scope, bug, bug.scope, budget_seconds)
    return found


def _told(verdicts: Sequence[Verdict]) -> int:
    """Prints the last line; the exit status."""
    missed = [
        f"{verdict.bug.slug} by {' and '.join(verdict.missed)}"
        for verdict in verdicts
        if verdict.missed
    ]
    if missed:
        print(f"MISSED: {len(missed)} of {len(verdicts)}: {', '.join(missed)}", flush=True)
        return MISSED
    print(f"all {len(verdicts)} bugs found by {' and by '.join(REQUIRED)}", flush=True)
    return CLEAN
