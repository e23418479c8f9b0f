"""`fuzz merge DIR…`: one corpus from several, without what shorter traces show as well.

Every trace is run on the reference, so that merging needs no subject and no GPU and can't be ended
by what a trace does to one. The first directory keeps the corpus; the others are left as they are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.campaign.autopsy import key
from fuzz.campaign.features import Watch
from fuzz.campaign.rounds import REPLAYED, opened
from fuzz.campaign.store import Store, written
from fuzz.findings import note
from fuzz.options import Jobs, Unusable
from fuzz.progress import progress
from properties.commands import Command, UnusableTrace
from properties.lockstep import Lockstep
from properties.seeded import Plan, drive
from properties.subjects import standin
from properties.trace import Trace, load


def add(jobs: Jobs) -> None:
    """The arguments of `merge`."""
    doing = "join corpora into the first, pruned to the shortest trace for each feature"
    job = jobs.add_parser("merge", help=doing, description=doing)
    job.set_defaults(start=lambda args: merge(args.directories))
    job.add_argument("directories", nargs="+", type=Path, metavar="DIR")


def merge(directories: Sequence[Path]) -> int:
    """Merges into the first directory; the exit status."""
    for path in directories:
        if not (path / "traces").is_dir():
            raise Unusable(f"{path}: no corpus; a directory with a folder 'traces' is wanted")
    store = Store(directories[0], note)
    store.open()
    shown = progress()
    paths = [path for directory in directories for path in entries(directory)]
    watched: dict[Path, Seen] = {}
    last = time.monotonic()
    try:
        for i, path in enumerate(paths):
            if time.monotonic() - last > shown.seconds_between:
                last = time.monotonic()
                shown.show(f"{i} of {len(paths)} traces")
            try:
                trace = load(path)
            except UnusableTrace as error:
                note(str(error))
                continue
            watched[path] = seen(trace)
    finally:
        shown.close()
    kept = shortest(watched)
    saved = {written(store.traces, trace.dumps()) for trace in kept}
    if None in saved:
        raise Unusable(f"{store.traces}: a trace can't be written; nothing was removed")
    # Everything that stays is on disk: only now is the rest removed.
    for path in entries(directories[0]):
        if path in watched and path not in saved:
            store.forget(path)
    found = _findings(store, directories)
    features = {(one.trace.system.name, f) for one in watched.values() for f in one.places}
    print(
        f"{len(paths)} traces of {len(directories)} corpora, {len(features):,} features:"
        f" {len(saved)} traces kept; findings: {found}",
        flush=True,
    )
    return 0


def entries(directory: Path) -> list[Path]:
    """The files of a corpus."""
    return sorted((directory / "traces").glob("*.json"))


@dataclass(frozen=True)
class Seen:
    """A trace as far as it applies, and its features with their places."""

    trace: Trace
    places: dict[str, int]


def seen(trace: Trace) -> Seen:
    """What a trace shows on the reference."""
    plan = Plan(system=trace.system, factory=standin.factory(), seed=0, misuse=True)
    round_, watch = opened(plan, REPLAYED, "", [trace]), Watch()
    runs: list[Lockstep] = []

    def commands(lock: Lockstep) -> Iterator[Command]:
        runs.append(lock)
        yield from round_.commands(lock)

    drive(plan, round_.config, commands, watch, lambda: True)
    return Seen(trace.with_commands(runs[0].commands if runs else ()), watch.places())


def shortest(found: Mapping[Path, Seen]) -> list[Trace]:
    """For each feature the trace that is there first, cut behind the last one it is kept for.

    Where faults come late, the reference doesn't show all that a subject would: such traces stay.
    """
    whole = {path for path, one in found.items() if not one.trace.system.lockstep.settles}
    best: dict[tuple[str, str], tuple[int, list[Path]]] = {}
    for path, one in sorted(found.items(), key=lambda item: item[0].name):
        for feature, place in one.places.items() if path not in whole else ():
            least, paths = best.setdefault((one.trace.system.name, feature), (place, []))
            if place < least:
                best[one.trace.system.name, feature] = (place, [path])
            elif place == least:
                paths.append(path)
    needed: dict[Path, int] = {}
    # Where several are as good, one that is kept anyhow.
    for place, paths in sorted(best.values(), key=lambda item: len(item[1])):
        path = max(paths, key=lambda path: needed.get(path, 0))
        needed[path] = max(place, needed.get(path, 0))
    cut = [found[path].trace.with_commands(found[path].trace.commands[:n]) for path, n in
           sorted(needed.items())]  # fmt: skip
    return [found[path].trace for path in sorted(whole)] + cut


def _findings(store: Store, directories: Sequence[Path]) -> int:
    """Brings the findings along, each kind once; how many there are."""
    known = set()
    for directory in directories:
        for folder in ("findings", "as-found"):
            for path in sorted((directory / folder).glob("*.json")):
                try:
                    trace = load(path)
                except UnusableTrace as error:
                    print(f"note: {error}", file=sys.stderr)
                    continue
                kind = tuple(key(trace))
                if directory != directories[0] and (folder == "as-found" or kind not in known):
                    written(store.root / folder, trace.dumps())
                known.add(kind)
    return len(list(store.findings.glob("*.json")))
