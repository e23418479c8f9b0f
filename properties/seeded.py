"""The seeded driver: the same commands from a seeded generator, much faster than Hypothesis.

A run is a series of rounds; each draws a config and a length, and runs commands in lockstep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import torch

from properties.choices import Choices, Seeded
from properties.commands import Command, Outcome
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
    #: whether situations are looked at; without them only steps and outcomes are counted
    looks: bool = True

    @property
    def outcomes(self) -> dict[tuple[str, str], int]:
        """How often each command came to each outcome."""
        counts = self.marks.counts().items()
        return {(name, kind): count for (name, kind, what), count in counts if what == ANY}

    def note(
        self, name: str, outcome: Outcome, situations: tuple[str, ...], seconds: float
    ) -> None:
        """One step, as `Marks.note` wants it, and what it took."""
        self.steps += 1
        self.marks.note(name, outcome.kind, situations)
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
        for command in system.every
        if command.supported(calls)
        and (misuse or not command.misuse)
        and (system.name, command.name()) not in known
    ]


class Picker:
    """Draws commands by the weights of their classes, or by others."""

    def __init__(
        self,
        commands: Sequence[type[Command]],
        weights: Mapping[type[Command], int] | None = None,
    ) -> None:
        self.commands = list(commands)
        weights = {kind: kind.weight for kind in commands} if weights is None else weights
        #: each class as many times over as it weighs
        self.urn = [kind for kind in commands for _ in range(weights[kind])]

    def draw(self, choices: Choices, model: Any) -> Command | None:
        """A command that applies; None if nothing is enabled."""
        for _ in range(MOST_MISSES):
            kind = choices.pick(self.urn)
            if kind.enabled(model):
                return kind.draw(choices, model)
        enabled = {kind for kind in self.commands if kind.enabled(model)}
        fitting = [kind for kind in self.urn if kind in enabled]
        return choices.pick(fitting).draw(choices, model) if fitting else None


#: what drives a run: commands one by one, each made when the ones before are done
Source = Callable[[Lockstep], Iterator[Command]]


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

    def usable(self, lock: Lockstep) -> list[type[Command]]:
        """The commands that the subject of a run can be driven with."""
        return usable(self.system, lock.subject.calls, self.judged()[1], self.factory.known)


def rounds(plan: Plan, tally: Tally, more: Callable[[], bool]) -> Iterator[Finding]:
    """Runs rounds while `more()`; yields each finding and goes on with the next round."""
    while more():
        finding = run_round(plan, tally.rounds, tally, more)
        tally.rounds += 1
        if finding is not None:
            yield finding


def run_round(plan: Plan, number: int, tally: Tally, more: Callable[[], bool]) -> Finding | None:
    """One config, one run of commands, all drawn from the plan's seed and the round's number."""
    choices = Seeded(f"{plan.system.name}/{plan.seed}/{number}")
    config = plan.system.config.draw(choices, plan.judged()[2])
    length = choices.integer(SHORTEST_ROUND, LONGEST_ROUND)

    def commands(lock: Lockstep) -> Iterator[Command]:
        picker = Picker(plan.usable(lock))
        tally.commands.update(picker.commands)
        yield from drawn(picker, choices, lock, length)

    return drive(plan, config, commands, tally, more)


def drawn(picker: Picker, choices: Choices, lock: Lockstep, length: int) -> Iterator[Command]:
    """So many commands, each drawn once the one before is done; fewer if none is enabled."""
    for _ in range(length):
        command = picker.draw(choices, lock.model)
        if command is None:
            return
        yield command


@torch.inference_mode()
def drive(
    plan: Plan, config: Any, commands: Source, tally: Tally, more: Callable[[], bool]
) -> Finding | None:
    """Runs commands on a pool of this config, while there are some and `more()`.

    In inference mode, as engines run their schedulers: it is a sixth faster. The state machines
    and every replay run without it.
    """
    clock = time.perf_counter
    started, lock = clock(), None
    try:
        lock = plan.system.lockstep(plan.system, config, plan.factory.make, plan.judged()[0])
        model, situations = lock.model, ()
        for command in commands(lock):
            if not more():
                break
            if tally.looks:
                allocates = "short" in command.outcomes
                situations = model.situations(command.demand(model) if allocates else 0, allocates)
            begun = clock()
            outcome = lock.step(command)
            if outcome is not None:
                tally.note(command.name(), outcome, situations, clock() - begun)
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
