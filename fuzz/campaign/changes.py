"""How a trace of the corpus becomes another one: small changes that keep most of what it reached.

Commands speak of requests by name and of lengths, so any mixture of commands is a trace; where one
no longer applies, `fitted` tries it with other names before it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from properties.choices import Choices
from properties.commands import Command
from properties.minimize import named, renamed

# More changes than this at once leave little of what the trace was kept for.
MOST_CHANGES = 4
# A chunk that is repeated or dropped: long enough for a group or a life of a request.
LONGEST_CHUNK = 12
# A trace that is spliced and repeated again and again must not grow for ever.
MOST_COMMANDS = 2000
# Tries to make a command apply under other names: most have one name, and few are alive.
TRIES = 3

Commands = list[Command]
Change = Callable[[Commands, Sequence[Command], Choices, Any], Commands]


def splice(base: Commands, other: Sequence[Command], choices: Choices, config: Any) -> Commands:
    """The beginning of one trace, then the end of another."""
    cut = choices.integer(0, len(base))
    return base[:cut] + list(other[choices.integer(0, len(other)) :])


def repeat(base: Commands, other: Sequence[Command], choices: Choices, config: Any) -> Commands:
    """A chunk once more, right behind itself."""
    low, high = _chunk(base, choices)
    return base[:high] + base[low:high] + base[high:]


def drop(base: Commands, other: Sequence[Command], choices: Choices, config: Any) -> Commands:
    """A chunk less."""
    low, high = _chunk(base, choices)
    return base[:low] + base[high:]


def boundary(base: Commands, other: Sequence[Command], choices: Choices, config: Any) -> Commands:
    """One number of one command becomes a boundary value."""
    if not base:
        return base
    at = choices.integer(0, len(base) - 1)
    command = base[at]
    places = list(_numbers(command))
    if not places:
        return base
    name, index = choices.pick(places)
    value: Any = choices.pick(edges(config))
    old = getattr(command, name)
    if index is not None:
        item = old[index]
        new = (*item[:-1], value) if isinstance(item, tuple) else value
        value = (*old[:index], new, *old[index + 1 :])
    other_command = replace(command, **{name: value})  # type: ignore[type-var]
    return [*base[:at], other_command, *base[at + 1 :]]


CHANGES: tuple[Change, ...] = (splice, repeat, drop, boundary)


def changed(base: Sequence[Command], other: Sequence[Command], choices: Choices, config: Any) -> (
    Commands
):  # fmt: skip
    """The commands of `base` after one to four changes."""
    commands = list(base)
    for _ in range(choices.integer(1, MOST_CHANGES)):
        commands = choices.pick(CHANGES)(commands, other, choices, config)
    return commands[:MOST_COMMANDS]


def edges(config: Any) -> list[int]:
    """Boundary values of a config: around nothing, a page, and the whole pool."""
    values = [value for value in vars(config).values() if type(value) is int]
    page, size = getattr(config, "page_size", 1), getattr(config, "size", max(values, default=1))
    around = {base + step for base in (0, page, 2 * page, size, *values) for step in (-1, 0, 1)}
    return sorted(around)


def fitted(command: Command, model: Any, choices: Choices) -> Command | None:
    """The command if it applies, else with other names if it applies then, else None."""
    if command.applies(model):
        return command
    names = list(dict.fromkeys(named(command)))
    if not names:
        return None
    candidates = [*model.names, model.next_name, model.next_name + 1]
    for _ in range(TRIES):
        order = {name: choices.pick(candidates) for name in names}
        other = renamed(command, order)
        if other.applies(model):
            return other
    return None


def _chunk(base: Commands, choices: Choices) -> tuple[int, int]:
    low = choices.integer(0, len(base))
    return low, min(len(base), low + choices.integer(1, LONGEST_CHUNK))


def _numbers(command: Command) -> list[tuple[str, int | None]]:
    """Where a command has numbers that name no request: field, and index in a list of pairs."""
    found: list[tuple[str, int | None]] = []
    for f in fields(command):  # type: ignore[arg-type]
        value = getattr(command, f.name)
        if type(value) is int and f.name != "request":
            found.append((f.name, None))
        elif isinstance(value, tuple):
            found += [
                (f.name, i)
                for i, item in enumerate(value)
                if (isinstance(item, tuple) and item and type(item[-1]) is int)
                or (type(item) is int and f.name != "requests")
            ]
    return found
