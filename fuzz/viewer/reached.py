"""Which marks the corpus of a campaign reaches, on the reference: required ones met, and missing.

A mark is a command with an outcome in a situation; a campaign that never met one can't have found
what shows there only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuzz.campaign.rounds import REPLAYED, opened
from properties.commands import UnusableTrace
from properties.marks import ANY, required
from properties.seeded import Plan, Tally, drive, usable
from properties.subjects import standin
from properties.systems import System
from properties.trace import Trace, load

# What the replay of a corpus may take; the page says how much of it was replayed.
LONGEST_SECONDS = 60.0
NEVER = -1


def reached(
    paths: Sequence[Path],
    show: Callable[[str], None],
    note: Callable[[str], None],
    longest_seconds: float = LONGEST_SECONDS,
) -> tuple[list[dict[str, Any]], list[Trace]]:
    """The marks by system, and the traces that were replayed."""
    started = time.monotonic()
    tallies: dict[str, Tally] = {}
    replayed: list[Trace] = []
    for i, path in enumerate(paths):
        if time.monotonic() - started > longest_seconds:
            note(f"{i} of {len(paths)} traces of the corpus were replayed in {longest_seconds:g} s")
            break
        show(f"{i} of {len(paths)} traces of the corpus")
        try:
            trace = load(path)
        except UnusableTrace as error:
            note(str(error))
            continue
        _replay(trace, tallies.setdefault(trace.system.name, Tally()))
        replayed.append(trace)
    systems = {trace.system.name: trace.system for trace in replayed}
    return [_table(systems[name], tally) for name, tally in tallies.items()], replayed


def _replay(trace: Trace, tally: Tally) -> None:
    """Runs a trace on the reference, which no trace can end."""
    plan = Plan(system=trace.system, factory=standin.factory(), seed=0, misuse=True)
    round_ = opened(plan, REPLAYED, "", [trace])
    drive(plan, round_.config, round_.commands, tally, lambda: True)
    tally.rounds += 1


def _table(system: System, tally: Tally) -> dict[str, Any]:
    """A row for each command and outcome, with a count for each situation or NEVER."""
    calls = frozenset(method for command in system.commands for method in command.methods)
    commands = usable(system, calls, True, frozenset())
    marks = required(commands, system.situations)
    counts, wanted = tally.marks.counts(), set(marks)
    situations = (ANY, *system.situations)
    rows = [
        [
            name,
            outcome,
            *(
                counts[name, outcome, situation] if (name, outcome, situation) in wanted else NEVER
                for situation in situations
            ),
        ]
        for name, outcome in dict.fromkeys((name, outcome) for name, outcome, _ in marks)
    ]
    return {
        "system": system.name,
        "traces": tally.rounds,
        "situations": situations,
        "rows": rows,
        "required": len(marks),
        "reached": sum(counts[mark] > 0 for mark in marks),
    }
