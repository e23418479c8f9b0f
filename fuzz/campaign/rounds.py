"""One round of a campaign: which pool, which commands, all of it decided by the task.

Nothing here depends on what the subject does, so that the commands of a task can be told without
it: those of a round that killed its process, for example.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuzz.campaign.changes import changed, fitted
from properties.choices import Choices, Seeded
from properties.commands import Command
from properties.lockstep import Lockstep
from properties.seeded import Picker, Plan, Source, drawn
from properties.trace import Trace

# Short rounds visit many pools, long ones come deep: alike many of each magnitude.
SHORTEST_ROUND, LONGEST_ROUND = 10, 2000
# Of eight commands a round leaves out so many on average.
LEFT_OUT_OF_EIGHT = (0, 1, 2, 3, 4)
# A command comes up to four times as often as its class weighs, or as seldom.
STRONGEST = 2
_MAGNITUDES = math.log(LONGEST_ROUND / SHORTEST_ROUND)
FRESH, CHANGED, REPLAYED = "fresh", "changed", "replayed"


@dataclass(frozen=True)
class Round:
    """A config and what drives the subject through it."""

    config: Any
    commands: Source


def opened(plan: Plan, kind: str, seed: str, bases: Sequence[Trace] = ()) -> Round:
    """The round of a task: `fresh`, a trace `changed` (two are given), or one `replayed`."""
    choices = Seeded(seed)
    if kind == REPLAYED:
        return Round(allowed(plan, bases[0].config, choices), _recorded(plan, bases[0].commands))
    if kind == FRESH or not bases:
        config = plan.system.config.draw(choices, plan.judged()[2])
        return Round(config, _going_on(plan, (), choices, log_uniform(choices)))
    base, other = bases[0], bases[-1]
    config = allowed(plan, _other_config(plan, base.config, choices), choices)
    commands = changed(base.commands, other.commands, choices, config)
    # Half of the changed traces go on from where they lead to.
    tail = log_uniform(choices) // 4 if choices.boolean() else 0
    return Round(config, _going_on(plan, commands, choices, tail))


def log_uniform(choices: Choices) -> int:
    """A length between the shortest and the longest, every magnitude alike often."""
    share = choices.integer(0, 1000) / 1000
    return round(math.exp(math.log(SHORTEST_ROUND) + share * _MAGNITUDES))


def swarm(choices: Choices, commands: Sequence[type[Command]]) -> Picker:
    """A picker that knows some of the commands only, with weights of its own."""
    share = choices.pick(LEFT_OUT_OF_EIGHT)
    kept = [command for command in commands if choices.integer(0, 7) >= share] or list(commands)
    weights = {
        command: math.ceil(command.weight * 2.0 ** choices.integer(-STRONGEST, STRONGEST))
        for command in kept
    }
    return Picker(kept, weights=weights)


def fair(plan: Plan, lock: Lockstep, command: Command) -> bool:
    """Whether the subject can be judged by the command.

    A changed number can make misuse of a command that isn't. Where misuse isn't judged, or some
    kinds are known to be accepted, such a command says nothing new.
    """
    if plan.judged()[1] and not plan.factory.known:
        return True
    return command.misuse or not lock.refuses(command)


def allowed(plan: Plan, config: Any, choices: Choices) -> Any:
    """The config, with another value of each field that the plan doesn't allow."""
    limits = plan.judged()[2]
    wrong = {
        name: choices.pick(values)
        for name, values in limits.items()
        if getattr(config, name) not in values
    }
    found = replace(config, **wrong)
    return plan.system.config.draw(choices, limits) if found.problem() else found


def _other_config(plan: Plan, config: Any, choices: Choices) -> Any:
    """Every fourth time one field of the config is drawn anew, as often all of them."""
    form = choices.integer(0, 7)
    if form > 3:
        return config
    drawn_anew = plan.system.config.draw(choices, plan.judged()[2])
    if form < 2:
        return drawn_anew
    name = choices.pick(sorted(vars(config)))
    found = replace(config, **{name: getattr(drawn_anew, name)})
    return config if found.problem() else found


def _recorded(plan: Plan, recorded: Sequence[Command]) -> Source:
    """The commands as they were, those left out that don't apply."""

    def commands(lock: Lockstep) -> Iterator[Command]:
        usable = frozenset(plan.usable(lock))
        for command in recorded:
            if (
                type(command) in usable
                and command.applies(lock.model)
                and fair(plan, lock, command)
            ):
                yield command

    return commands


def _going_on(plan: Plan, given: Sequence[Command], choices: Choices, length: int) -> Source:
    """The given commands where they can be made to apply, then so many drawn ones."""

    def commands(lock: Lockstep) -> Iterator[Command]:
        usable = plan.usable(lock)
        known = frozenset(usable)
        for command in given:
            if type(command) not in known:
                continue
            applying = fitted(command, lock.model, choices)
            if applying is not None and fair(plan, lock, applying):
                yield applying
        if length:
            yield from drawn(swarm(choices, usable), choices, lock, length)

    return commands
