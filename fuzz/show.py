"""`fuzz show`: a trace as a page to look at, step by step, subject and reference side by side."""

from __future__ import annotations

from pathlib import Path

from fuzz.options import SUBJECTS, Jobs, Unusable
from fuzz.traces import open_trace
from fuzz.viewer.page import page, write
from fuzz.viewer.story import story
from properties.subjects import Factory
from properties.trace import Trace

WRITTEN = 0


def add(jobs: Jobs) -> None:
    """The arguments of `show`."""
    doing = "write a recorded trace as one HTML page: commands, pages, both sides"
    job = jobs.add_parser("show", help=doing, description=doing)
    job.set_defaults(start=lambda args: show(args.file, args.subject, args.out))
    job.add_argument("file", type=Path, metavar="TRACE")
    job.add_argument("--subject", help=f"default: the trace's own; {SUBJECTS}")
    job.add_argument("-o", dest="out", type=Path, metavar="FILE", help="default: TRACE with .html")


def show(path: Path, subject_name: str | None, out: Path | None) -> int:
    """Writes the page and says where it is; the exit status."""
    trace, factory = open_trace(path, subject_name, None)
    out = path.with_suffix(".html") if out is None else out
    if out.absolute() == path.absolute():
        raise Unusable(f"{path}: is the trace; name another file with -o")
    text, told = shown(trace, factory)
    write(text, out)
    print(f"{out}: {told}", flush=True)
    return WRITTEN


def shown(trace: Trace, factory: Factory) -> tuple[str, str]:
    """The page of a trace, and what it shows in a few words."""
    data = story(trace, factory)
    found = data["violation"]
    ending = f"{found['number']} ({found['title']})" if found else "no invariant is broken"
    title = f"{trace.system.name} of {trace.subject}: {ending}"
    return page("trace", title, data), f"{len(data['commands']) - 1} commands, {ending}"
