"""The museum: for each real bug that is planted here, the shortest trace that shows it.

An exhibit is a trace file beside this module, recorded with the planted bug as its subject, so
`python -m fuzz replay` tells it as it stands; `museum.json` says which real bug it is. The files
stay as they are: sound code passes them for ever, the planted bug fails them by name.
`python -m properties.museum` makes exhibits for bugs that have none yet.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from properties.planted import BUGS, ENTRIES, SLOW, Bug
from properties.trace import Trace, load

HERE = Path(__file__).parent
INDEX = HERE / "museum.json"
#: the planted bugs that are real ones
REAL: tuple[Bug, ...] = tuple(bug for bug in (*BUGS, *SLOW) if bug.entry is not None)


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """What hangs beside a trace: the real bug, and the planted one that has its mechanism."""

    #: the planted bug's slug, also the name of the trace's file
    bug: str
    #: the number of the real bug in the project's list
    entry: int
    title: str
    upstream: tuple[str, ...]
    systems: tuple[str, ...]
    invariant: str

    @property
    def path(self) -> Path:
        """The trace's file."""
        return HERE / f"{self.bug}.json"

    def trace(self) -> Trace:
        """The trace, as recorded with the planted bug."""
        return load(self.path)


def exhibit_of(bug: Bug) -> Exhibit:
    """What is said of a planted bug that is a real one."""
    assert bug.entry is not None, f"{bug} is nobody's bug but ours"
    return Exhibit(
        bug=bug.slug,
        entry=bug.entry,
        title=ENTRIES[bug.entry].title,
        upstream=bug.upstream,
        systems=(bug.system,),
        invariant=bug.invariant,
    )


def exhibits() -> list[Exhibit]:
    """All exhibits, by the number of the real bug."""
    found: list[dict[str, Any]] = json.loads(INDEX.read_text(encoding="utf-8"))
    lists = ("upstream", "systems")
    return [Exhibit(**{**each, **{key: tuple(each[key]) for key in lists}}) for each in found]


def write_index(shown: list[Exhibit]) -> None:
    """Writes `museum.json`, one exhibit a line."""
    ordered = sorted(shown, key=lambda each: (each.entry, each.bug))
    lines = ",\n".join("  " + json.dumps(asdict(each), ensure_ascii=False) for each in ordered)
    INDEX.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
