"""The seeded driver: the same commands from a seeded generator, much faster than Hypothesis.

A run is a series of rounds; each draws a config and a length, and runs commands in lockstep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import torch

from properties.choices import Choices, Seeded
from properties.commands import Command
from properties.invariants import Violation
from properties.lockstep import Lockstep
from properties.marks import ANY, Marks
from properties.subjects import Factory, UnusableSubject
from properties.systems.system import Limits, System
from properties.trace import Trace, versions

# Rounds this long visit full pools and second uses of a page many times, and still draw new
# configs often: 20,000 steps are then about a hundred configs.
SHORTEST_ROUND, LONGEST_ROUND = 20, 400
# After so many draws of a command that isn't enabled it is cheaper to ask all of them.
MOST_MISSES = 16


@dataclass
class Tally:
    """What a run did: steps and seconds, by command and outcome."""

    steps: int = 0
    rounds: int = 0
    seconds: float = 0.0
    time_by_command: dict[str, float] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    commands: set[type[Command]] = field(default_factory=set)

    @property
    def outcomes(self) -> dict[tuple[str, str], int]:
        """How often each command came to each outcome."""
        counts = self.marks.counts().items()
        return {(name, kind): count for (name, kind, what), count in counts if what == ANY}

    def note(self, name: str, outcome: str, situations: tuple[str, ...], seconds: float) -> None:
        self.steps += 1
        self.marks.note(name, outcome, situations)
        self.time_by_command[name] = self.time_by_command.get(name, 0.0) + seconds


@dataclass(frozen=True)
class Finding:
    """A violation and the trace that led to it, as found."""

    violation: Violation
    trace: Trace


def usable(
    system: System, calls: frozenset[str], misuse: bool, known: frozenset[tuple[str, str]]
) -> list[type[Command]]:
    """The commands that a subject with these methods can be driven with."""
    return [
        command
        for command in system.commands
        if command.supported(calls)
        and (misuse or not command.misuse)
        and (system.name, command.name()) not in known
    ]


class Picker:
    """Draws commands by the weights of their classes, or of all classes alike."""

    def __init__(self, commands: Sequence[type[Command]], weighted: bool = True) -> None:
        self.commands = list(commands)
        #: each class as many times over as it weighs
        self.urn = [kind for kind in commands for _ in range(kind.weight if weighted else 1)]

    def draw(self, choices: Choices, model: Any) -> Command | None:
        """A command that applies; None if nothing is enabled."""
        for _ in range(MOST_MISSES):
            kind = choices.pick(self.urn)
            if kind.enabled(model):
                return kind.draw(choices, model)
        enabled = {kind for kind in self.commands if kind.enabled(model)}
        fitting = [kind for kind in self.urn if kind in enabled]
        return choices.pick(fitting).draw(choices, model) if fitting else None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run: a system of a subject, how judged, from which seed."""

    system: System
    factory: Factory
    seed: int
    level: str = ""
    misuse: bool | None = None
    limits: Limits = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = get_type_hints(self.system.config)
        if unknown := sorted(set(self.factory.limits.get(self.system.name, ())) - set(known)):
            raise UnusableSubject(
                f"subject {self.factory.name}: {self.system.name} has no {', '.join(unknown)}"
                f" to limit; it has {', '.join(known)}"
            )

    def judged(self) -> tuple[str, bool, Limits]:
        """Level, misuse and limits, the subject's own where nothing else is said."""
        misuse = self.factory.misuse if self.misuse is None else self.misuse
        limits = {**self.factory.limits.get(self.system.name, {}), **self.limits}
        return self.level or self.factory.level, misuse, limits


def rounds(plan: Plan, tally: Tally, more: Callable[[], bool]) -> Iterator[Finding]:
    """Runs rounds while `more()`; yields each finding and goes on with the next round."""
    while more():
        finding = run_round(plan, tally.rounds, tally, more)
        tally.rounds += 1
        if finding is not None:
            yield finding


@torch.inference_mode()
def run_round(plan: Plan, number: int, tally: Tally, more: Callable[[], bool]) -> Finding | None:
    """One config, one run of commands.

    In inference mode, as engines run their schedulers: it is a sixth faster. The state machines
    and every replay run without it.
    """
    level, misuse, limits = plan.judged()
    system, factory = plan.system, plan.factory
    choices = Seeded(f"{system.name}/{plan.seed}/{number}")
    config = system.config.draw(choices, limits)
    length = choices.integer(SHORTEST_ROUND, LONGEST_ROUND)
    clock = time.perf_counter
    started, lock = clock(), None
    try:
        lock = system.lockstep(system, config, factory.make, level)
        picker = Picker(usable(system, lock.subject.calls, misuse, factory.known))
        tally.commands.update(picker.commands)
        model = lock.model
        for _ in range(length):
            if not more():
                break
            command = picker.draw(choices, model)
            if command is None:
                break
            allocates = "short" in command.outcomes
            situations = model.situations(command.demand(model) if allocates else 0, allocates)
            begun = clock()
            outcome = lock.step(command)
            if outcome is not None:
                tally.note(command.name(), outcome.kind, situations, clock() - begun)
        lock.close()
    except Violation as violation:
        return Finding(violation, trace_of(plan, lock, violation, config))
    finally:
        tally.seconds += clock() - started
    return None


def trace_of(plan: Plan, lock: Lockstep | None, violation: Violation, config: Any = None) -> Trace:
    """The trace of a run that ended in a violation; without a lock it ended at construction."""
    return Trace(
        system=plan.system,
        config=config if lock is None else lock.config,
        commands=() if lock is None else tuple(lock.commands),
        subject=plan.factory.name,
        level=plan.judged()[0],
        invariant=violation.number,
        versions=versions(),
    )


def run_steps(plan: Plan, steps: int, tally: Tally | None = None) -> tuple[Tally, Finding | None]:
    """Runs until `steps` commands are done or the first finding."""
    tally = Tally() if tally is None else tally
    goal = tally.steps + steps
    for finding in rounds(plan, tally, lambda: tally.steps < goal):
        return tally, finding
    return tally, None
