"""Makes a failing trace short: fewer commands, smaller arguments, a smaller pool, to a fixed point.

Every candidate is a trace run from scratch; it counts when it breaks the same invariant (and, where
asked, with the same command). Commands that a change makes meaningless are skipped by the replay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from properties.commands import Command
from properties.subjects import Factory
from properties.trace import Replay, Trace

# Enough for any trace that the drivers make; a subject that is slow or random can't hold us longer.
MOST_REPLAYS = 20_000
LONGEST_SECONDS = 60.0
# Pairs of changes are many: they are tried only on a trace that is short already.
LONGEST_FOR_JOINT = 12


#: what a trace breaks on the subject, and the commands that were run until then
Judge = Callable[[Trace], tuple[str | None, Sequence[Command]]]


class _Minimizer:
    def __init__(self, trace: Trace, factory: Factory, same_command: bool, judge: Judge) -> None:
        self.factory = factory
        self.judge = judge
        self.best = trace
        self.invariant = trace.invariant
        self.last = trace.commands[-1].name() if same_command and trace.commands else None
        self.replays = 0
        self.first = True  # the trace as found may end before its last command
        self.deadline = time.monotonic() + LONGEST_SECONDS

    def exhausted(self) -> bool:
        return self.replays >= MOST_REPLAYS or time.monotonic() > self.deadline

    def attempt(self, trace: Trace) -> bool:
        """Takes the trace when it still fails in the same way and is simpler."""
        if self.exhausted():
            return False
        self.replays += 1
        number, done = self.judge(trace)
        if number is None or number != self.invariant:
            return False
        if self.last is not None and (not done or done[-1].name() != self.last):
            return False
        candidate = trace.with_commands(done)
        if weight(candidate) >= weight(self.best) and not self.first:
            return False
        self.first = False
        self.best = candidate
        return True

    def run(self) -> Trace:
        if not self.attempt(self.best):
            return self.best
        self.keep_end()
        while True:
            before = self.best
            self.drop_chunks()
            self.drop_pairs()
            self.join_pairs()
            self.shrink_commands()
            self.absorb_first()
            self.shrink_config()
            self.shrink_jointly()
            self.rename()
            if self.best == before or self.exhausted():
                return self.best

    def keep_end(self) -> None:
        """Often the last few commands do; to try them costs less than to drop what is before."""
        count = 1
        while count < len(self.best.commands):
            if self.attempt(self.best.with_commands(self.best.commands[-count:])):
                return
            count *= 2

    def drop_chunks(self) -> None:
        size = max(1, len(self.best.commands) // 2)
        while True:
            at = 0
            while at < len(self.best.commands):
                commands = self.best.commands
                if not self.attempt(self.best.with_commands(commands[:at] + commands[at + size :])):
                    at += size
            if size == 1:
                return
            size //= 2

    def drop_pairs(self) -> None:
        """Two commands that make sense only together, such as begin and end of a group."""
        first = 0
        while first < len(self.best.commands) - 1:
            dropped = False
            for second in range(first + 1, len(self.best.commands)):
                kept = [c for i, c in enumerate(self.best.commands) if i not in (first, second)]
                if self.attempt(self.best.with_commands(kept)):
                    dropped = True
                    break
            if not dropped:
                first += 1

    def join_pairs(self) -> None:
        """Two commands of one kind that name requests become one that names them all."""
        first = 0
        while first < len(self.best.commands) - 1:
            commands = self.best.commands
            for second in range(first + 1, len(commands)):
                joined = _joined(commands[first], commands[second])
                kept = [c for i, c in enumerate(commands) if i != second]
                if joined is None:
                    continue
                kept[first] = joined
                if self.attempt(self.best.with_commands(kept)):
                    break
            else:
                first += 1

    def shrink_commands(self) -> None:
        at = 0
        while at < len(self.best.commands):
            for variant in variants(self.best.commands[at], self.best.commands[:at]):
                commands = list(self.best.commands)
                commands[at] = variant
                if self.attempt(self.best.with_commands(commands)):
                    break
            else:
                at += 1

    def shrink_config(self) -> None:
        for config in self.best.config.smaller():
            if self.builds(config) and self.attempt(replace(self.best, config=config)):
                return self.shrink_config()
        return None

    def absorb_first(self) -> None:
        """A leading resize becomes the config."""
        while self.best.commands:
            config = self.best.commands[0].absorbed(self.best.config)
            if config is None or not self.builds(config):
                return
            rest = replace(self.best, config=config, commands=self.best.commands[1:])
            if not self.attempt(rest):
                return

    def shrink_jointly(self) -> None:
        """A smaller pool and a smaller trace at once: a pool that must run full needs both."""
        commands = self.best.commands
        if len(commands) > LONGEST_FOR_JOINT:
            return None
        fewer = [[*commands[:i], *commands[i + 1 :]] for i in range(len(commands))]
        smaller = [
            [*commands[:i], variant, *commands[i + 1 :]]
            for i, command in enumerate(commands)
            for variant in variants(command, commands[:i])
        ]
        for config in self.best.config.smaller():
            for kept in (*fewer, *smaller):
                candidate = replace(self.best, config=config, commands=tuple(kept))
                if self.builds(config) and self.attempt(candidate):
                    return self.shrink_jointly()
        return None

    def builds(self, config: Any) -> bool:
        """Whether a config is one that the subject claims to have."""
        limits = self.factory.limits.get(self.best.system.made, {})
        return config.problem() is None and all(
            getattr(config, name) in values for name, values in limits.items()
        )

    def rename(self) -> None:
        """Requests numbered 0, 1, 2, … in order of appearance, where the trace allows it."""
        names = [name for command in self.best.commands for name in named(command)]
        order = {name: i for i, name in enumerate(dict.fromkeys(names))}
        if any(old != new for old, new in order.items()):
            self.attempt(self.best.with_commands([renamed(c, order) for c in self.best.commands]))


def minimize(
    trace: Trace, factory: Factory, *, same_command: bool = False, judge: Judge | None = None
) -> Trace:
    """A minimal trace that breaks `trace.invariant` (by the same last command, if asked).

    `judge` runs candidates elsewhere than in this process, which some would end.
    """
    return _Minimizer(trace, factory, same_command, judge or _here(factory)).run()


def _here(factory: Factory) -> Judge:
    def judge(trace: Trace) -> tuple[str | None, Sequence[Command]]:
        replay = Replay(trace, factory.make)
        violation = replay.run()
        return violation.number if violation else None, replay.executed

    return judge


def weight(trace: Trace) -> tuple[int, int, int, int]:
    """What minimising lowers, in this order: commands, the pool, arguments, request numbers."""
    config = sum(int(value) for value in trace.system.config_to_json(trace.config).values())
    arguments = names = 0
    for command in trace.commands:
        names += sum(named(command))
        for f in fields(command):  # type: ignore[arg-type]
            if f.name not in _NAMES:
                arguments += _size(getattr(command, f.name), f.name in _LISTS)
    return len(trace.commands), config, arguments, names


def _size(value: Any, of_names: bool = False) -> int:
    """A number that shrinking lowers: magnitudes, items, words that aren't the plain one."""
    if isinstance(value, tuple):
        if of_names:
            return sum(1 + (_size(item[1]) if isinstance(item, tuple) else 0) for item in value)
        return sum(1 + _size(item) for item in value)
    if isinstance(value, str):
        return int(value != "all")
    return 2 * abs(int(value)) + (int(value) < 0)


def variants(command: Command, earlier: Sequence[Command] = ()) -> Iterator[Command]:
    """Simpler forms of one command: shorter lists, smaller numbers, False, the first word."""
    own = command.simpler(earlier)
    if own is not None:
        yield from own
        return
    for f in fields(command):  # type: ignore[arg-type]
        value = getattr(command, f.name)
        for simpler in _simpler(value, f.name):
            yield replace(command, **{f.name: simpler})  # type: ignore[type-var]


def _simpler(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        if name not in _NAMES:
            yield from _smaller(value)
    elif isinstance(value, str):
        if name == "naming" and value != "all":
            yield "all"
    elif isinstance(value, tuple):
        for i in range(len(value)):
            yield value[:i] + value[i + 1 :]
        for i, item in enumerate(value):
            if isinstance(item, tuple):
                for number in _smaller(item[1]):
                    yield (*value[:i], (item[0], number), *value[i + 1 :])


def _smaller(value: int) -> Iterator[int]:
    """Candidates nearer to 0, nearest first."""
    if value == 0:
        return
    sign, size = (1, value) if value > 0 else (-1, -value)
    for candidate in sorted({0, 1, 2, size // 2, size - 1}):
        if candidate < size:
            yield sign * candidate
    if value < 0:
        yield size


_NAMES = ("request", "node", "like")
_LISTS = ("requests", "nodes", "parts")


def _joined(first: Command, second: Command) -> Command | None:
    if type(first) is not type(second):
        return None
    for f in fields(first):  # type: ignore[arg-type]
        if f.name in _LISTS:
            both = getattr(first, f.name) + getattr(second, f.name)
            return replace(first, **{f.name: both})  # type: ignore[type-var]
    return None


def named(command: Command) -> Sequence[int]:
    """The requests and nodes that a command names, in order."""
    found: list[int] = []
    for f in fields(command):  # type: ignore[arg-type]
        value = getattr(command, f.name)
        if f.name in _NAMES:
            found.append(value)
        elif f.name in _LISTS:
            found += [item[0] if isinstance(item, tuple) else item for item in value]
    return found


def renamed(command: Command, order: dict[int, int]) -> Command:
    """The command about other requests; `order` says for each name which."""
    changed: dict[str, Any] = {}
    for f in fields(command):  # type: ignore[arg-type]
        value = getattr(command, f.name)
        if f.name in _NAMES:
            changed[f.name] = order[value]
        elif f.name in _LISTS:
            changed[f.name] = tuple(
                (order[item[0]], *item[1:]) if isinstance(item, tuple) else order[item]
                for item in value
            )
    return replace(command, **changed)  # type: ignore[type-var]
