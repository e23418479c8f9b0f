"""The pictures of the README: `python -m fuzz.viewer.screenshots DIR [TO]`, DIR a campaign's.

They are made again when the pages look different; the trace is always the same one.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzz.report import report
from fuzz.show import shown
from fuzz.viewer.browser import browser, missing
from properties.choices import Seeded
from properties.commands import Command
from properties.lockstep import Lockstep
from properties.seeded import Picker, Plan, Tally, drawn, drive
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.trace import Trace

TO = Path(".github") / "assets"
WIDTH, TRACE_HEIGHT, REPORT_HEIGHT = 1400, 780, 840
#: forgets the half-filled last page of a segment; in this run that shows late
BUG, SEED, MOST_COMMANDS = "planted:a-segments-last-half-filled-page-is-forgotten", "picture 3", 200


def example() -> Trace:
    """A run that breaks an invariant, as found."""
    system = SYSTEMS["paged"]
    plan = Plan(system=system, factory=load(BUG), seed=0, misuse=False)

    def commands(lock: Lockstep) -> Iterator[Command]:
        yield from drawn(Picker(plan.usable(lock)), Seeded(SEED), lock, MOST_COMMANDS)

    config = system.config(page_size=4, num_pages=16, spare=0, need_sort=True)
    finding = drive(plan, config, commands, Tally(looks=False), lambda: True)
    assert finding is not None, "the bug doesn't show in this run any more: take another seed"
    return finding.trace


def main(campaign: Path, to: Path) -> None:
    """Writes both pictures."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        path = Path(folder) / "trace.html"
        path.write_text(shown(example(), load(BUG))[0], encoding="utf-8")
        window.open(path)
        window.picture(to / "trace-light.png", WIDTH, TRACE_HEIGHT)
        path = Path(folder) / "report.html"
        report(campaign, path)
        window.open(path)
        window.find("#theme").click()
        window.picture(to / "report-dark.png", WIDTH, REPORT_HEIGHT)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m fuzz.viewer.screenshots DIR [TO]")
    if reason := missing():
        sys.exit(f"no browser: {reason}")
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else TO)
