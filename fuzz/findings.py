"""What becomes of a finding: written down, then made short, then told; each kind once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fuzz.stop import Stop
from properties.invariants import Violation
from properties.minimize import minimize
from properties.report import describe
from properties.seeded import Finding
from properties.subjects import Factory
from properties.trace import FINDINGS, Replay, Trace, save

#: system, invariant, last command
Kind = tuple[str, str, str]


class Findings:
    """The findings of one run. Files first: the raw trace is on disk before it is touched."""

    def __init__(self, stop: Stop, tell: Callable[[str], None], directory: Path = FINDINGS) -> None:
        self.stop = stop
        self.tell = tell
        self.directory = directory
        self.told: Counter[Kind] = Counter()
        self._told_as: dict[Kind, Kind] = {}

    @property
    def total(self) -> int:
        """All findings, repeated ones included."""
        return self.told.total()

    def take(self, finding: Finding, factory: Factory) -> None:
        """Books a finding; the first of its kind is saved, minimised and printed."""
        raw = kind(finding.trace)
        known_as = self._told_as.get(raw)
        if known_as is not None:
            self.told[known_as] += 1
            return
        path = self._save(finding.trace, f"{finding.violation.number} found")
        short = self._shorten(finding, factory)
        known_as = raw if short is None else kind(short)
        self._told_as[raw] = known_as
        self.told[known_as] += 1
        if self.told[known_as] > 1:
            return
        if short is None:
            self.tell(f"{finding.violation}\n  kept as found: {path or 'nowhere'}")
            return
        path = self._save(short, f"{finding.violation.number} minimised") or path
        self.tell(describe(short, factory.make, path))

    def _shorten(self, finding: Finding, factory: Factory) -> Trace | None:
        """The minimal trace; None, with a line that says why, where there is none."""
        trace = finding.trace
        try:
            with self.stop.interruptible():
                if not breaks(trace, factory):
                    note(f"{finding.violation.number} doesn't come again on replay: not minimised")
                    return None
                short = minimize(trace, factory)
                if breaks(short, factory):
                    return short
                note(f"{finding.violation.number} comes and goes on replay: not minimised")
        except KeyboardInterrupt:
            note(f"{finding.violation.number}: interrupted before it was minimised")
        except Exception as error:  # a broken subject must not end the run
            note(f"{finding.violation.number}: not minimised: {type(error).__name__}: {error}")
        return None

    def _save(self, trace: Trace, what: str) -> Path | None:
        try:
            path = save(trace, self.directory)
        except OSError as error:
            note(f"{what}, can't be saved under {self.directory}: {error}")
            return None
        note(f"{what}: {path}")
        return path


def kind(trace: Trace) -> Kind:
    """What makes two findings the same."""
    last = trace.commands[-1].name() if trace.commands else "__init__"
    return trace.system.name, trace.invariant or "", last


def breaks(trace: Trace, factory: Factory) -> bool:
    """Whether the trace, run again, breaks the invariant that it names."""
    violation: Violation | None = Replay(trace, factory.make).run()
    return violation is not None and violation.number == trace.invariant


def note(line: str) -> None:
    """One line on stderr, beside what the job prints."""
    print(" ".join(line.split()), file=sys.stderr, flush=True)
