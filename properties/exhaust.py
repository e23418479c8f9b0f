"""Every command sequence on a tiny pool, walked as a graph of states, breadth first.

Two states are one if their keys are equal: what the subject shows and what its requests have, with
generations and names left aside (`SlotModel.key`, `RowModel.key`). From each state all commands are
run, those that must be refused among them, each compared in lockstep as in any other run; the walk
is closed when no new state comes up. A violation is met first where fewest commands lead to it.

What keeps the space finite and small: at most `requests` requests at a time and in a batch, one
dtype, amounts from nothing to one more than fits. A state's key says that its future depends on
nothing else; so a call that was made from a snapshot is not made again where the same snapshot
comes with other requests: its outcome is known, and only what it does to the requests is
worked out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from properties.choices import Every, TooManyChoices
from properties.commands import Command, Outcome
from properties.invariants import Violation
from properties.lockstep import Lockstep
from properties.memento import Memento, can_be_saved
from properties.scope import Scope
from properties.seeded import Finding, Plan, trace_of
from properties.subjects import Factory
from properties.systems import SYSTEMS
from properties.systems.system import System

# A state takes some ten kilobytes while it waits: a search of more would fill a small machine's
# memory, and take hours.
MOST_STATES = 100_000
MOST_EDGES = 50_000_000
# More commands of a kind than this in one state, and no search ends.
MOST_COMMANDS = 20_000
OPENS_GROUP = "free_group_begin"


class Endless(ValueError):
    """A search that would not end; the message says at what."""


class Unwalked(ValueError):
    """A pool that can't be searched; the message says why."""


@dataclass
class Searched:
    """How far a search is, or how it ended."""

    states: int = 0
    #: commands tried in a state, each once
    edges: int = 0
    #: how many commands lead to the states that are farthest away
    depth: int = 0
    #: whether every command was tried in every state that can be reached
    closed: bool = False
    finding: Finding | None = None


More = Callable[[Searched], bool]


def configs(system: System, scope: Scope, factory: Factory) -> list[Any]:
    """The configs of a scope that the subject has; raises Unwalked where there is none."""
    if system.small is None:
        known = ", ".join(each.name for each in SYSTEMS.values() if each.small is not None)
        raise Unwalked(
            f"{system.name} isn't searched, its states are too many or don't show in a snapshot;"
            f" allowed: {known}"
        )
    found = system.small(scope)
    for config in found:
        if problem := config.problem():
            raise Unwalked(f"{system.name}: {problem}")
    limits = factory.limits.get(system.name, {})
    fitting = [
        config
        for config in found
        if all(getattr(config, name) in values for name, values in limits.items())
    ]
    if not fitting:
        words = (f"{name} {', '.join(map(str, dict.fromkeys(limits[name])))}" for name in limits)
        raise Unwalked(f"{factory.name} has no such {system.name}; it has {'; '.join(words)}")
    return fitting


def probe(plan: Plan, config: Any, scope: Scope) -> None:
    """Raises TooManyChoices where already the first state has too many commands to try."""
    graph = _Walk(plan, config, scope, True, Searched())
    graph.commands({})
    graph.lock.close()


def has_groups(system: System) -> bool:
    """Whether a command of the system opens a group."""
    return any(OPENS_GROUP in command.methods for command in system.commands)


def search(
    system: System, scope: Scope, factory: Factory, *, groups: bool, depth: int | None = None,
    more: More = lambda searched: True, level: str = "",
) -> Searched:  # fmt: skip
    """Walks all configs of a scope, behind a finding for one of fewer commands only.

    Raises `Unwalked`, and `Endless` or `TooManyChoices` for a space that is too large. `more` is
    asked in between.
    """
    plan = Plan(system=system, factory=factory, seed=0, level=level)
    whole = Searched(closed=True)
    for config in configs(system, scope, factory):
        one = walk(plan, config, scope, groups=groups, depth=depth, more=more)
        whole.states += one.states
        whole.edges += one.edges
        whole.depth = max(whole.depth, one.depth)
        whole.closed = whole.closed and one.closed
        if one.finding is not None:
            whole.finding = one.finding
            depth = len(one.finding.trace.commands) - 1
            if depth < 1:
                break
    return whole


@torch.inference_mode()
def walk(
    plan: Plan, config: Any, scope: Scope, *, groups: bool, depth: int | None = None,
    more: More = lambda searched: True,
) -> Searched:  # fmt: skip
    """Walks one config, to the end or to so many commands or to the first violation."""
    searched = Searched()
    graph: _Walk | None = None
    try:
        graph = _Walk(plan, config, scope, groups, searched)
        graph.run(depth, more)
        graph.lock.close()
    except Violation as violation:
        lock = None if graph is None else graph.lock
        searched.finding = Finding(violation, trace_of(plan, lock, violation, config))
    return searched


def every(kind: type[Command], model: Any) -> list[Command]:
    """All commands of a kind that apply in this state, some twice; raises TooManyChoices."""
    if not kind.enabled(model):
        return []
    paths = Every(kind.name()).walk(lambda choices: kind.draw(choices, model))
    found = list(itertools.islice(paths, MOST_COMMANDS + 1))
    if len(found) > MOST_COMMANDS:
        raise TooManyChoices(f"{kind.name()}: over {MOST_COMMANDS:,} commands in one state")
    return found


class _Came(NamedTuple):
    """What a call came to, and what was shown then."""

    outcome: Outcome
    shown: Hashable


#: that all is as before, the requests included
_STILL = _Came(Outcome("none"), None)
#: how to come back to a state
_Way = Callable[[], None]
_Name = tuple[type[Command], str]


class _Walk:
    """One walk: the lockstep run that goes from state to state, and the states met so far."""

    def __init__(
        self, plan: Plan, config: Any, scope: Scope, groups: bool, searched: Searched
    ) -> None:
        self.plan, self.config, self.scope, self.searched = plan, config, scope, searched
        self.lock = self.start()
        usable = plan.usable(self.lock)
        self.kinds = [kind for kind in usable if groups or OPENS_GROUP not in kind.methods]
        #: snapshot → command and its call → what it came to
        self.known: dict[str, dict[_Name, _Came]] = {}
        #: snapshot → kind of command → how many of the pool alone there are, none of which leads on
        self.idle: dict[str, dict[type[Command], int]] = {}
        # equal ones are kept once
        self.names: dict[_Name, _Name] = {}
        self.shown: dict[Hashable, Hashable] = {}
        self.seen = {self.key(self.visible())}
        searched.states = 1
        self.saves = can_be_saved(self.lock)

    def start(self) -> Lockstep:
        plan = self.plan
        lock = plan.system.lockstep(plan.system, self.config, plan.factory.make, plan.judged()[0])
        lock.model.scope = self.scope
        lock.model.state = lock.states[0]  # as after a command: with what a snapshot hasn't
        lock.model.next_name = 1  # what request 0 writes is 0, as if it hadn't
        return lock

    def run(self, depth: int | None, more: More) -> None:
        """Level by level, so that the first violation is one of the fewest commands."""
        frontier = [self.way()]
        while frontier and (depth is None or self.searched.depth < depth):
            ahead: list[_Way] = []
            frontier.reverse()
            while frontier:
                if not more(self.searched):
                    return
                ahead += self.expand(frontier.pop())
                self.limit()
            frontier = ahead
            self.searched.depth += bool(frontier)
        self.searched.closed = not frontier

    def limit(self) -> None:
        """Raises Endless where nobody would wait for the end."""
        for what, count, most in (
            ("states", self.searched.states, MOST_STATES),
            ("edges", self.searched.edges, MOST_EDGES),
        ):
            if count > most:
                raise Endless(f"{self.plan.system.name} in {self.scope}: over {most:,} {what}")

    # ---- states ----

    def way(self) -> _Way:
        """How to come back to where the run is now."""
        if self.saves:
            return Memento(self.lock).restore
        commands = tuple(self.lock.commands)

        def again() -> None:
            self.lock.close()
            self.lock = self.start()
            for command in commands:
                self.lock.step(command)

        return again

    def visible(self) -> Hashable:
        """What is shown in this state, of both sides where they differ."""
        lock, model = self.lock, self.lock.model
        shown = model.shown_key(model.state)
        if not lock.exact:
            shown = shown, model.shown_key(lock.states[1])
        return self.shown.setdefault(shown, shown)

    def key(self, shown: Hashable) -> Hashable:
        """The key of this state, in which this is shown."""
        lock, model = self.lock, self.lock.model
        order = model.in_order(model.side)
        ours = model.requests_key(model.side, order)
        if lock.exact:
            return shown, ours
        return shown, ours, model.requests_key(lock.theirs, order)

    # ---- edges ----

    def expand(self, back: _Way) -> Iterator[_Way]:
        """Tries all commands of a state; gives the ways to the states that are new."""
        back()
        snapshot = repr(self.lock.model.state)
        known, idle = self.known.setdefault(snapshot, {}), self.idle.setdefault(snapshot, {})
        self.searched.edges += sum(idle.values())
        commands = self.commands(idle)
        for name, command in commands.items():
            self.searched.edges += 1
            came = known.get(name) if self.lock.exact else None
            if came is not None:
                if came is _STILL:
                    continue
                is_new = self.leads_on(command, came)
                back()
                if not is_new:
                    continue
            came, is_new = self.step(command)
            if came is not None:
                known[self.names.setdefault(name, name)] = came
            if is_new:
                yield self.way()
            back()
        if self.lock.exact:
            self.rest(idle, Counter(kind for kind, _ in commands if kind.of_pool), known)

    def rest(
        self, idle: dict[type[Command], int], counts: dict[type[Command], int],
        known: dict[_Name, _Came],
    ) -> None:  # fmt: skip
        """Notes the kinds that needn't be looked at again where this snapshot is shown."""
        moving = {kind for (kind, _), came in known.items() if came is not _STILL}
        idle.update({kind: count for kind, count in counts.items() if kind not in moving})

    def commands(self, idle: Container[type[Command]]) -> dict[_Name, Command]:
        """All commands of the state, idle ones aside; of those of one call the first of a kind."""
        model = self.lock.model
        found: dict[_Name, Command] = {}
        for kind in self.kinds:
            if kind in idle:
                continue
            for command in every(kind, model):
                call = command.call(model, model.side) if self.lock.exact else command
                found.setdefault((kind, repr(call)), command)
        return found

    def step(self, command: Command) -> tuple[_Came | None, bool]:
        """Runs a command in lockstep; what it came to, and whether it led to a new state."""
        before = self.lock.model.state
        outcome = self.lock.step(command)
        if outcome is None:
            return None, False
        shown = self.visible()
        books = outcome.kind == "served" and type(command).settle is not Command.settle
        if not books and self.lock.model.state == before:
            return _STILL, self.is_new(shown)
        return _Came(outcome, shown), self.is_new(shown)

    def leads_on(self, command: Command, came: _Came) -> bool:
        """Whether a command, whose call is known, leads to a new state or to a violation."""
        model = self.lock.model
        if came.outcome.kind == "served" and command.settle(
            model, model.side, came.outcome.value
        ):  # fmt: skip
            return True
        return self.key(came.shown) not in self.seen

    def is_new(self, shown: Hashable) -> bool:
        key = self.key(shown)
        if key in self.seen:
            return False
        self.seen.add(key)
        self.searched.states += 1
        return True
