"""Searches for one command's fault: short legal preludes, then the command, on small pools.

How the tables of known misuse are reproduced, and a quick way to ask what a subject does with one
kind of call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from properties.choices import Seeded
from properties.commands import Command
from properties.invariants import Violation
from properties.lockstep import Lockstep
from properties.minimize import minimize
from properties.seeded import Finding, Picker, Plan, trace_of, usable

# A prelude of a few commands opens groups, stages pages and half-fills some; longer ones only cost.
LONGEST_PRELUDE = 6
# A command that was refused this often, in as many states, is taken to be refused.
ENOUGH_HITS = 30
MOST_TRIES = 600


def way(command: Command) -> str:
    """The method through which a misuse is committed, where there is a choice."""
    return str(getattr(command, "how", ""))


def probe(plan: Plan, wanted: Callable[[Command], bool], kind: type[Command]) -> Finding | None:
    """The minimal trace that ends in a violation by such a command, or None if all were fine."""
    hits = 0
    for attempt in range(MOST_TRIES):
        lock, command = _prelude(plan, attempt), None
        for command in _draws(plan, kind, lock, attempt):
            if wanted(command):
                break
        else:
            continue
        hits += 1
        try:
            lock.step(command)
        except Violation as violation:
            trace = trace_of(plan, lock, violation)
            minimal = minimize(trace, plan.factory, same_command=True)
            return Finding(violation, minimal)
        if hits >= ENOUGH_HITS:
            return None
    return None


def _prelude(plan: Plan, attempt: int) -> Lockstep:
    level, _, limits = plan.judged()
    choices = Seeded(f"prelude/{plan.system.name}/{plan.seed}/{attempt}")
    config = plan.system.config.draw(choices, limits)
    lock = Lockstep(plan.system, config, plan.factory.make, level)
    picker = Picker(usable(plan.system, lock.subject.calls, False, frozenset()))
    for _ in range(choices.integer(0, LONGEST_PRELUDE)):
        command = picker.draw(choices, lock.model)
        if command is not None:
            lock.step(command)
    return lock


def _draws(plan: Plan, kind: type[Command], lock: Lockstep, attempt: int) -> Iterator[Command]:
    """A few draws of the command in one state, so that each way to commit it comes up."""
    choices = Seeded(f"{kind.name()}/{plan.seed}/{attempt}")
    for _ in range(20):
        if kind.enabled(lock.model):
            command = kind.draw(choices, lock.model)
            if command.applies(lock.model):
                yield command
