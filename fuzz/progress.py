"""How far a run is: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

# A person reads no faster; at 5 ms a redraw this is a hundredth of the run's time at most.
SECONDS_BETWEEN_REDRAWS = 0.5
# A log of a night stays readable.
SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a run."""

    system: str
    steps: int
    seconds: float
    findings: int
    goal: str

    def __str__(self) -> str:
        rate = self.steps / self.seconds if self.seconds else 0.0
        return (
            f"{self.seconds:6.1f} s  {self.steps:>10,} steps  {rate:>7,.0f} steps/s"
            f"  of {self.goal}  {self.system:<6}  findings: {self.findings}"
        )


class Progress(Protocol):
    """Something that shows readings."""

    seconds_between: float

    def show(self, reading: object) -> None:
        """Shows one reading."""

    def say(self, text: str) -> None:
        """Prints text that stays."""

    def close(self) -> None:
        """The run is over."""


class Lines:
    """Readings as lines on stderr, text on stdout."""

    seconds_between = SECONDS_BETWEEN_LINES

    def show(self, reading: object) -> None:
        print(reading, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        pass


class Live:
    """One line that changes in place, above which text scrolls by; needs rich."""

    seconds_between = SECONDS_BETWEEN_REDRAWS

    def __init__(self, console: Any) -> None:
        from rich.live import Live as RichLive

        self.console = console
        self._live = RichLive(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, reading: object) -> None:
        self._live.update(str(reading), refresh=True)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def progress() -> Progress:
    """The best that this terminal and this installation allow."""
    if not sys.stdout.isatty():
        return Lines()
    try:
        from rich.console import Console
    except ImportError:
        return Lines()
    return Live(Console())
