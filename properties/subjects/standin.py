"""The reference as a subject of its own: what a subject without bugs and without tensors does.

Stands in where a run is told without its subject, which may be slow, gone or dangerous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from properties.commands import Call
from properties.subjects import Factory
from properties.subjects.protocol import Subject
from properties.systems import SYSTEMS
from reference import Refused

NAME = "reference"


class StandIn:
    """A system's reference, with the methods that it is said to have."""

    names_kinds: ClassVar[bool] = True

    def __init__(self, system: str, config: Any, calls: frozenset[str]) -> None:
        self._reference = SYSTEMS[system].reference(config)
        self.calls = calls

    def call(self, call: Call) -> Any:
        if call.distortion is not None:
            raise Refused(call.distortion.kind)
        return self._reference.call(call)

    def kind_of(self, error: Exception) -> str | None:
        return error.kind if isinstance(error, Refused) else None

    def observe(self) -> dict[str, Any]:
        state: dict[str, Any] = self._reference.observe()
        return state

    def overwrite(self) -> bool:
        return False

    def shares(self) -> str:
        return ""

    def audit(self) -> list[str]:
        return []

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


def maker(calls: Iterable[str] = ()) -> Callable[[str, Any], Subject]:
    """Makes stand-ins with these methods, or with all that the system's commands call."""
    given = frozenset(calls)

    def make(system: str, config: Any) -> Subject:
        commands = SYSTEMS[system].commands
        every = frozenset(method for command in commands for method in command.methods)
        return StandIn(system, config, given or every)

    return make


def factory() -> Factory:
    """Has every system, and every method that a command calls."""
    return Factory(name=NAME, make=maker(), systems=frozenset(SYSTEMS), level="exact", misuse=True)
