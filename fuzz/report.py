"""`fuzz report`: the state of a campaign's directory as one page, its findings linked to theirs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import quote

from fuzz.options import Jobs, Unusable, subject
from fuzz.progress import progress
from fuzz.show import shown
from fuzz.viewer.campaign import check, findings, state
from fuzz.viewer.page import page, write
from fuzz.viewer.story import alone
from properties.subjects import UnusableSubject, is_built_in
from properties.trace import Trace

WRITTEN = 0
NAME = "report.html"
# Each is a run of its trace, and a file; nobody looks at more.
MOST_PAGES = 200


def add(jobs: Jobs) -> None:
    """The arguments of `report`."""
    doing = "write the state of a campaign's directory as one HTML page"
    job = jobs.add_parser("report", help=doing, description=doing)
    job.set_defaults(start=lambda args: report(args.directory, args.out))
    job.add_argument("directory", type=Path, metavar="DIR")
    job.add_argument("-o", dest="out", type=Path, metavar="FILE", help=f"default: DIR/{NAME}")


def report(directory: Path, out: Path | None) -> int:
    """Writes the page, and one for each finding beside it; the exit status."""
    check(directory)
    out = directory / NAME if out is None else out
    notes: list[str] = []
    progress_shown, last = progress(), time.monotonic()

    def show(line: str) -> None:
        nonlocal last
        if time.monotonic() - last > progress_shown.seconds_between:
            last = time.monotonic()
            progress_shown.show(line)

    try:
        found = findings(directory, notes.append)
        links: dict[Path, str] = {}
        for i, (path, trace) in enumerate(found[:MOST_PAGES]):
            show(f"{i} of {len(found)} findings")
            written = path.with_suffix(".html")
            write(_finding(path, trace), written)
            links[path] = _link(written, out)
        data = state(directory, found, links, show, notes)
    finally:
        progress_shown.close()
    write(page("report", f"campaign {data['name']}", data), out)
    print(f"{out}: {_told(data['log']['steps'], len(found), len(notes))}", flush=True)
    return WRITTEN


def _told(steps: float, findings: int, notes: int) -> str:
    more = f", {notes} notes" if notes else ""
    return f"{steps:,.0f} steps, {findings} findings{more}"


def _finding(path: Path, trace: Trace) -> str:
    """The page of a finding; code of one's own is never run because a file names it."""
    own = f"python -m fuzz show {path.name} --subject {trace.subject}"
    if not is_built_in(trace.subject):
        why = f"The subject is code of your own, which a report doesn't run: {own} shows it."
    else:
        try:
            return shown(trace, subject(trace.subject))[0]
        except (Unusable, UnusableSubject) as error:
            why = f"The subject can't be run here: {error}"
    return page("trace", f"{trace.system.name} of {trace.subject}", alone(trace, why))


def _link(written: Path, out: Path) -> str:
    """From the report to another page, as a relative address."""
    relative = os.path.relpath(written.resolve(), out.resolve().parent)
    return quote(f"./{Path(relative).as_posix()}")
