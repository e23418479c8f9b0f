"""Searches for one command's fault: short legal preludes, then the command, on small pools.

How the tables of known misuse are reproduced, and a quick way to ask what a subject does with one
kind of call.
"""

from __future__ import annotations

from collections.abc import Iterator

from properties.choices import Seeded
from properties.commands import Command
from properties.invariants import Violation
from properties.lockstep import Lockstep
from properties.memento import Memento, can_be_saved
from properties.minimize import minimize
from properties.seeded import Finding, Picker, Plan, trace_of, usable
from properties.systems.system import Limits

# A prelude of a few commands opens groups, stages pages and half-fills some; longer ones only cost.
LONGEST_PRELUDE = 8
# A command that was refused this often, in as many states, is taken to be refused.
ENOUGH_HITS = 60
MOST_TRIES = 600
# Every other state is in a pool where all is soon taken or staged.
CRAMPED: Limits = {"num_pages": (1, 2), "size": (1, 2), "need_sort": (True,)}


def way(command: Command) -> str:
    """The method through which a misuse is committed, where there is a choice."""
    return str(getattr(command, "how", ""))


class Prober:
    """Asks what one subject does with commands, each in the same states."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._states: dict[int, tuple[Lockstep, Memento]] = {}

    def probe(self, kind: type[Command], how: str = "") -> Finding | None:
        """The minimal trace of a violation by such a command, or None if all were fine.

        Over `ENOUGH_HITS` states, a violation of I9 (refused, but not without effect) gives way to
        any other: what a subject accepts somewhere, it accepts.
        """
        found: dict[str, Finding] = {}
        hits = 0
        for attempt in range(MOST_TRIES):
            lock = self._state(attempt)
            drawn = _draws(self.plan, kind, lock, attempt)
            command = next((each for each in drawn if way(each) == how), None)
            if command is None:
                continue
            hits += 1
            try:
                lock.step(command)
            except Violation as violation:
                trace = trace_of(self.plan, lock, violation)
                found.setdefault(violation.number, Finding(violation, trace))
            if hits >= ENOUGH_HITS:
                break
        if not found:
            return None
        worst = next((found[number] for number in found if number != "I9"), found.get("I9"))
        assert worst is not None
        least = minimize(worst.trace, self.plan.factory, same_command=True)
        return Finding(worst.violation, least)

    def ways(self, kind: type[Command]) -> list[str]:
        """The methods through which a command commits its misuse on this subject."""
        states = ((self._state(attempt), attempt) for attempt in range(ENOUGH_HITS))
        return sorted(
            {
                way(each)
                for lock, attempt in states
                for each in _draws(self.plan, kind, lock, attempt)
            }
        )

    def _state(self, attempt: int) -> Lockstep:
        """A run behind a prelude; what was done there before is undone."""
        if attempt not in self._states:
            lock = _prelude(self.plan, attempt)
            if not can_be_saved(lock):
                return lock
            self._states[attempt] = lock, Memento(lock)
        lock, memento = self._states[attempt]
        memento.restore()
        return lock


def _prelude(plan: Plan, attempt: int) -> Lockstep:
    level, _, limits = plan.judged()
    choices = Seeded(f"prelude/{plan.system.name}/{plan.seed}/{attempt}")
    if attempt % 2:
        limits = {**limits, **CRAMPED}
    config = plan.system.config.draw(choices, limits)
    lock = plan.system.lockstep(plan.system, config, plan.factory.make, level)
    legal = usable(plan.system, lock.subject.calls, False, frozenset())
    picker = Picker(legal, weights=dict.fromkeys(legal, 1))
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
