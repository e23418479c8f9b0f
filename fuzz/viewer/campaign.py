"""Everything that the report of a campaign shows, read from its directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fuzz.options import Unusable
from fuzz.viewer import log
from fuzz.viewer.frames import clipped, shown
from fuzz.viewer.reached import LONGEST_SECONDS, reached
from properties.commands import UnusableTrace
from properties.invariants import CATALOGUE, FATAL
from properties.trace import LARGEST_FILE_BYTES, Trace, load, versions

LOG, CORPUS, FOLDERS, MUTANTS = "log.jsonl", "traces", ("findings", "as-found"), "mutants.json"
# Of a longer finding the trace's page tells the rest.
MOST_COMMANDS_SHOWN = 12
Found = list[tuple[Path, Trace]]


def check(directory: Path) -> None:
    """Raises Unusable where no campaign has kept anything."""
    if not ((directory / LOG).is_file() or (directory / CORPUS).is_dir()):
        raise Unusable(
            f"{directory}: no campaign; a directory with {LOG} or a folder {CORPUS} is wanted"
        )


def findings(directory: Path, note: Callable[[str], None]) -> Found:
    """The findings that can be read, the minimised ones first."""
    found: Found = []
    for folder in FOLDERS:
        for path in sorted((directory / folder).glob("*.json")):
            try:
                found.append((path, load(path)))
            except UnusableTrace as error:
                note(str(error))
    return found


def state(
    directory: Path, found: Found, links: dict[Path, str], show: Callable[[str], None],
    notes: list[str], longest_seconds: float = LONGEST_SECONDS,
) -> dict[str, Any]:  # fmt: skip
    """The report's data; `links` leads from a finding's file to its page."""
    # In the order of their hashes, so that a part of them is a part of every system's.
    paths = sorted((directory / CORPUS).glob("*.json"), key=lambda path: path.stem.split("-")[-1])
    marks, replayed = reached(paths, show, notes.append, longest_seconds)
    told = log.read(directory / LOG)
    if told.unread:
        notes.append(f"{told.unread} lines of {LOG} can't be read and are left out")
    mutants = _mutants(directory / MUTANTS, notes)
    return {
        "name": directory.resolve().name or str(directory),
        "log": told.to_json(),
        "corpus": _by_system(paths),
        "marks": marks,
        "findings": [_finding(path, trace, links.get(path)) for path, trace in found],
        "mutants": mutants,
        "versions": _versions([*replayed, *(trace for _, trace in found)]),
        "notes": [clipped(line) for line in notes],
    }


def _by_system(paths: Iterable[Path]) -> dict[str, int]:
    """How many traces of the corpus each system has, by their names."""
    counts: dict[str, int] = {}
    for path in paths:
        system = path.name.split("-")[0]
        counts[system] = counts.get(system, 0) + 1
    return counts


def _finding(path: Path, trace: Trace, link: str | None) -> dict[str, Any]:
    kind = {**CATALOGUE, **FATAL}.get(trace.invariant or "")
    config = trace.system.config_to_json(trace.config)
    return {
        "file": path.name,
        "minimised": path.parent.name == FOLDERS[0],
        "link": link,
        "invariant": trace.invariant or "-",
        "title": kind.title if kind else "",
        "system": trace.system.name,
        "subject": trace.subject,
        "config": ", ".join(f"{key}={value}" for key, value in config.items()),
        "commands": [clipped(str(each)) for each in trace.commands[:MOST_COMMANDS_SHOWN]],
        "count": len(trace.commands),
    }


def _versions(traces: Iterable[Trace]) -> list[tuple[str, str]]:
    """What is installed here, then what else the traces were made with."""
    here = versions()
    found: dict[str, dict[str, None]] = {name: {version: None} for name, version in here.items()}
    for trace in traces:
        for name, version in trace.versions.items():
            found.setdefault(shown(name), {})[version] = None
    return [(name, ", ".join(each)) for name, each in found.items()]


def _mutants(path: Path, notes: list[str]) -> dict[str, Any] | None:
    """The table of planted bugs, where one lies there: who found which."""
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ValueError(f"more than {LARGEST_FILE_BYTES} bytes")
        rows = [_mutant(item) for item in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        notes.append(f"{path.name}: not a list of planted bugs: {type(error).__name__}: {error}")
        return None
    return {"ways": list(dict.fromkeys(way for row in rows for way in row["found"])), "rows": rows}


def _mutant(item: Any) -> dict[str, Any]:
    upstream = item["upstream"]
    references = upstream if isinstance(upstream, list) else [upstream]
    found = {}
    for way, one in item["found"].items():
        found[shown(way)] = one and {
            "invariant": shown(one["invariant"]),
            "seconds": log.number(one["seconds"]),
            "commands": log.number(one["commands"]),
        }
    return {
        "bug": shown(item["bug"]),
        "upstream": ", ".join(shown(each) for each in references if each),
        "invariant": shown(item["invariant"]),
        "found": found,
    }
