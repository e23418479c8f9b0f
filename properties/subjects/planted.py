"""`impl` with one of the planted bugs in it, as a subject: `planted:` and the bug's slug.

The bug is there only while the subject works: a sound one may live beside it in the process. A
caller's bug leaves `impl` alone; there the commands that the caller gets wrong are among the calls.
"""

from __future__ import annotations

import difflib
from typing import Any, ClassVar, get_type_hints

from properties.commands import Call
from properties.planted import BY_SLUG, Bug
from properties.subjects import PLANTED, Factory, Subject, UnusableSubject, load
from properties.systems import SYSTEMS

MOST_NAMED = 4


class PlantedSubject:
    """A subject of ours that has the bug while it is made, called or looked at."""

    names_kinds: ClassVar[bool] = True

    def __init__(self, bug: Bug, host: Factory, system: str, config: Any) -> None:
        self.bug = bug
        with bug.planted():
            self.inner = host.make(system, config)
        self.calls = self.inner.calls | {bug.faulty} - {""}

    def call(self, call: Call) -> Any:
        with self.bug.planted():
            return self.inner.call(call)

    def kind_of(self, error: Exception) -> str | None:
        return self.inner.kind_of(error)

    def observe(self) -> dict[str, Any]:
        with self.bug.planted():
            return self.inner.observe()

    def overwrite(self) -> bool:
        return self.inner.overwrite()

    def shares(self) -> str:
        return self.inner.shares()

    def audit(self) -> list[str]:
        with self.bug.planted():
            return self.inner.audit()

    def settle(self) -> None:
        with self.bug.planted():
            self.inner.settle()

    def close(self) -> None:
        with self.bug.planted():
            self.inner.close()


def factory(name: str) -> Factory:
    """The factory called `name`, which begins with `PLANTED`; raises UnusableSubject."""
    bug = _bug(name.removeprefix(PLANTED))
    host = load(bug.host)
    if not host.has(bug.system):
        raise UnusableSubject(f"subject {name}: {bug.host} has no {bug.system} here")
    if bug.edit is not None:
        try:
            bug.edit.prepared()
        except (LookupError, ImportError) as error:
            raise UnusableSubject(f"subject {name}: {error}") from error
    fields = get_type_hints(SYSTEMS[bug.system].config)
    commands = {command.name() for command in SYSTEMS[bug.system].commands}
    left_out = commands.difference(bug.commands) if bug.commands else set()

    def make(system: str, config: Any) -> Subject:
        return PlantedSubject(bug, host, system, config)

    return Factory(
        name=name,
        make=make,
        systems=frozenset({bug.system}),
        limits={bug.system: {name: v for name, v in bug.limits.items() if name in fields}},
        level="exact",
        misuse=True,
        known=frozenset((bug.system, command) for command in left_out),
        faulty=frozenset({bug.faulty} - {""}),
    )


def _bug(slug: str) -> Bug:
    if slug in BY_SLUG:
        return BY_SLUG[slug]
    close = [each for each in BY_SLUG if slug in each]
    close += difflib.get_close_matches(slug, BY_SLUG, MOST_NAMED, cutoff=0.4)
    names = ", ".join(f"{PLANTED}{each}" for each in dict.fromkeys([*close, *BY_SLUG][:MOST_NAMED]))
    raise UnusableSubject(f"no planted bug is called {slug[:60]!r}; some are {names}")
