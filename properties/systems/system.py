"""What a system is to the harness: a frozen description that every driver reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, get_type_hints

from properties.choices import Choices
from properties.commands import Command, UnusableTrace, parse, shown
from properties.lockstep import Lockstep
from properties.scope import Scope

#: field of a config → the values that a subject or the user allows
Limits = Mapping[str, tuple[Any, ...]]


class Config(Protocol):
    """A frozen, keyword-only dataclass of plain values."""

    @classmethod
    def draw(cls, choices: Choices, limits: Limits) -> Config:
        """A config within the limits."""

    def problem(self) -> str | None:
        """Why the config can't be built, or None."""

    def smaller(self) -> list[Config]:
        """Simpler configs, the simplest first, for the minimiser."""


@dataclass(frozen=True, kw_only=True)
class System:
    """One part of the memory layer, with all that drives and judges it."""

    name: str
    config: type[Any]
    commands: tuple[type[Command], ...]
    situations: tuple[str, ...]
    #: config → the reference behind the Subject interface
    reference: Callable[[Any], Any]
    #: config, reference → the model that commands draw from
    model: Callable[[Any, Any], Any]
    #: the interface whose every public method a command must exercise, here or in a sister system
    interface: type[Any]
    #: further classes of the same kind: whole interfaces that the commands exercise too
    siblings: tuple[type[Any], ...] = ()
    #: other classes whose methods its commands call; systems of their own exercise them in full
    beside: tuple[type[Any], ...] = ()
    #: what compares a subject with the reference, a `Lockstep` or an heir of it
    lockstep: type[Lockstep] = Lockstep
    #: what callers do who have a bug; nobody else is driven with it
    faulty: tuple[type[Command], ...] = ()
    #: scope → the configs that are walked; None where states are too many, or not in snapshots
    small: Callable[[Scope], list[Any]] | None = None
    #: the system that subjects know it as, if it is another way to drive one
    made_as: str = ""

    @property
    def made(self) -> str:
        """What a subject is asked to make."""
        return self.made_as or self.name

    @property
    def every(self) -> tuple[type[Command], ...]:
        """All that a trace may hold."""
        return (*self.commands, *self.faulty)

    @property
    def by_name(self) -> dict[str, type[Command]]:
        """Command classes by their names in traces."""
        return {command.name(): command for command in self.every}

    def config_from_json(self, data: Any, where: str = "config") -> Any:
        """Parses a config; raises UnusableTrace."""
        hints = get_type_hints(self.config)
        if not isinstance(data, dict) or set(data) != set(hints):
            found = shown(sorted(data) if isinstance(data, dict) else type(data).__name__)
            raise UnusableTrace(f"{where}: {self.name} has {sorted(hints)}, found {found}")
        values = {key: parse(kind, data[key], f"{where}.{key}") for key, kind in hints.items()}
        config = self.config(**values)
        if problem := config.problem():
            raise UnusableTrace(f"{where}: {problem}")
        return config

    def config_to_json(self, config: Any) -> dict[str, Any]:
        """The config as a JSON object."""
        return asdict(config)


def allowed(limits: Limits, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The default values of a config field, or those that the limits name instead."""
    return tuple(limits.get(name, values))
