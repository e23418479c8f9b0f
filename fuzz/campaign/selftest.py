"""What shows that a campaign finds what is there: a canary that must fail, a bug that is planted.

Both go through the same workers and the same files as all else, in a folder of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fuzz.campaign.task import Lane
from properties.choices import Seeded
from properties.planted import BUGS
from properties.subjects import Factory, TensorSubject

# The rarest planted bugs need thousands of steps, some seconds.
LONGEST_SECONDS = 60.0
MOST_DEATHS = 5


@dataclass
class Trial:
    """Something that must be found, and by which invariants."""

    name: str
    lane: Lane
    expected: frozenset[str]
    tries: int = 0
    deaths: int = 0
    seconds: float = 0.0
    #: what was found, or why it can't be any more
    verdict: str = ""
    passed: bool = False
    wrong: list[str] = field(default_factory=list)

    def judge(self, report: dict[str, Any]) -> None:
        """Books the report of a round of it."""
        if self.verdict:
            return
        self.seconds += report.get("blind_seconds", 0.0)
        number = report.get("number")
        if number in self.expected:
            self.passed, self.verdict = True, f"{self.name}: {number}"
        elif number is not None:
            self.wrong.append(number)
        elif wrong := report.get("error") or report.get("unusable"):
            self.verdict = f"{self.name}: {wrong.strip().splitlines()[-1]}"
        elif "died" in report:  # somebody may have ended the worker
            self.deaths += 1
            self.verdict = f"{self.name}: its workers die" if self.deaths > MOST_DEATHS else ""
        if not self.verdict and self.seconds > LONGEST_SECONDS:
            told = f", but {', '.join(sorted(set(self.wrong)))}" if self.wrong else ""
            wanted = "/".join(sorted(self.expected))
            self.verdict = f"{self.name}: {wanted} not found in {self.seconds:.0f} s{told}"


class Canary:
    """An allocator of tokens that hands out slot 1 to everybody."""

    def alloc(self, need_size: int) -> torch.Tensor:
        return torch.ones(need_size, dtype=torch.int64)

    def available_size(self) -> int:
        return 0


def _canary(system: str, config: Any) -> TensorSubject:
    return TensorSubject(Canary(), calls=("alloc", "available_size"))


canary = Factory(name="fuzz.campaign.selftest:canary", make=_canary, systems=frozenset({"token"}))


def trials(systems: Sequence[str], seed: str) -> list[Trial]:
    """The canary, and a bug drawn from those that are planted in these systems."""
    fitting = [bug for bug in BUGS if bug.system in systems] or list(BUGS)
    bug = Seeded(f"{seed}/planted").pick(fitting)
    subject = f"planted:{bug.slug}"
    return [
        Trial("canary", Lane(system="token", subject=canary.name), frozenset({"I2", "I34"})),
        Trial(
            f"planted bug {bug.slug}",
            Lane(system=bug.system, subject=subject),
            frozenset({bug.invariant, *bug.also}),
        ),
    ]
