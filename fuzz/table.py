"""Tables of a job's results; that of a run has a line for each system and command: the count, the
outcomes, the time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from properties.seeded import Tally

HEADINGS = ("system", "command", "count", "served", "short", "refused", "µs/step")
Row = tuple[str, ...]
# Words stand to the left of their column, numbers to the right.
LEFT_COLUMNS = 2


def rows(system: str, commands: Sequence[str], tally: Tally) -> list[Row]:
    """A row for each command that could be drawn, the ones never drawn included."""
    found = []
    for command in commands:
        counts = [tally.outcomes.get((command, kind), 0) for kind in ("served", "short", "refused")]
        count = sum(counts)
        micros = tally.time_by_command.get(command, 0.0) / count * 1e6 if count else 0.0
        found.append(
            (
                system,
                command,
                *(f"{n:,}" for n in (count, *counts)),
                f"{micros:.1f}" if count else "-",
            )
        )
    return found


def plain(lines: Sequence[Row], headings: Row = HEADINGS, left: int = LEFT_COLUMNS) -> str:
    """The table in columns of text."""
    whole = [headings, *lines]
    widths = [max(len(line[i]) for line in whole) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in whole
    )


def show(lines: Sequence[Row], headings: Row = HEADINGS, left: int = LEFT_COLUMNS) -> None:
    """Prints the table, drawn where a terminal and rich are there."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            drawn = Table(*headings[:left])
            for heading in headings[left:]:
                drawn.add_column(heading, justify="right")
            for line in lines:
                drawn.add_row(*line)
            Console().print(drawn)
            return
    print(plain(lines, headings, left), flush=True)
