"""A recorded run: plain JSON that says which commands led to which broken invariant.

A trace holds the system, the subject, the level, the config, the commands, and the versions it was
made with; no outcomes, no seed. It survives edits: commands that no longer apply are skipped.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from properties.commands import Command, Outcome, UnusableTrace, from_json, shown
from properties.invariants import CATALOGUE, FATAL, Violation
from properties.lockstep import EXACT, RENAMED, MakeSubject
from properties.systems import TRACED, System

SCHEMA = 1
# A trace is data from anywhere: nothing larger is read into memory or run.
LARGEST_FILE_BYTES = 16 * 2**20
MOST_COMMANDS = 100_000
FINDINGS = Path(".kvledger") / "findings"
_FIELDS = {"schema", "system", "subject", "level", "config", "commands", "invariant", "versions"}


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Commands on a config of a system, and the invariant that they break (or None)."""

    system: System
    config: Any
    commands: tuple[Command, ...]
    subject: str = "impl"
    level: str = EXACT
    invariant: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The trace as a JSON object."""
        return {
            "schema": SCHEMA,
            "system": self.system.name,
            "subject": self.subject,
            "level": self.level,
            "config": self.system.config_to_json(self.config),
            "commands": [command.to_json() for command in self.commands],
            "invariant": self.invariant,
            "versions": self.versions,
        }

    def dumps(self) -> str:
        """JSON with one command a line, so that traces read and diff well."""
        whole = self.to_json()
        commands = whole.pop("commands")
        lines = ",\n".join("    " + json.dumps(command) for command in commands)
        head = json.dumps(whole, indent=2)[:-2]
        return f'{head},\n  "commands": [\n{lines}\n  ]\n}}\n'

    def with_commands(self, commands: Sequence[Command]) -> Trace:
        """The same trace with other commands."""
        return replace(self, commands=tuple(commands))


def versions() -> dict[str, str]:
    """What a trace was made with; for the reader, never needed to replay it."""
    return dict(_installed())


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    found = [("python", platform.python_version())]
    for name in ("torch", "triton", "hypothesis", "sglang"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def save(trace: Trace, directory: Path = FINDINGS) -> Path:
    """Writes a trace under a name made from its content; the file is complete or absent."""
    directory.mkdir(parents=True, exist_ok=True)
    return save_text(trace.dumps(), directory)


def save_text(text: str, directory: Path) -> Path:
    """Writes what `Trace.dumps` gave, as `save` does, into a directory that exists."""
    head = json.loads(text)
    name = (
        f"{head['system']}-{head['invariant'] or 'clean'}-{sha256(text.encode()).hexdigest()[:12]}"
    )
    path = directory / f"{name}.json"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return path


def load(path: Path) -> Trace:
    """Reads a trace; raises UnusableTrace with what was found and what is allowed."""
    try:
        if path.exists() and not path.is_file():
            raise UnusableTrace(f"{path}: not a file; a trace is a JSON file")
        size = path.stat().st_size
        if size > LARGEST_FILE_BYTES:
            raise UnusableTrace(f"{path}: {size} bytes, at most {LARGEST_FILE_BYTES} are read")
        text = path.read_text(encoding="utf-8")
        first, _, rest = text.partition("\n")
        if first.startswith('{"recording"'):
            return parse(_recording(json.loads(first), rest, str(path)), str(path))
        data = json.loads(text)
    except UnusableTrace:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UnusableTrace(f"{path}: not a readable JSON file: {error}") from error
    return parse(data, str(path))


def _recording(head: Any, rest: str, where: str) -> dict[str, Any]:
    """A recording as a trace: a head, then a command a line, then what was broken.

    One that was cut off is read as far as it goes; a line says so.
    """
    if not isinstance(head, dict) or head.pop("recording", None) != 1:
        raise UnusableTrace(f"{where}: not a recording that is known here; 1 is")
    commands: list[Any] = []
    *lines, torn = rest.split("\n")
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise UnusableTrace(f"{where}: line {len(commands) + 2}: {error}") from error
        if isinstance(found, dict) and set(found) == {"invariant"}:
            return {**head, **found, "commands": commands}
        commands.append(found)
    cut = f", and {len(torn)} characters of another" if torn else ""
    print(f"{where}: cut off: {len(commands)} commands are read{cut}", file=sys.stderr)
    return {**head, "invariant": None, "commands": commands}


def parse(data: Any, where: str = "trace") -> Trace:
    """Checks a JSON value field by field and builds the trace from it; raises UnusableTrace."""
    if not isinstance(data, dict) or type(data.get("schema")) is not int:
        raise UnusableTrace(f"{where}: not a trace: an object with an integer 'schema' is expected")
    if data["schema"] > SCHEMA or data["schema"] < 1:
        raise UnusableTrace(
            f"{where}: schema {data['schema']} is not known here; this version reads 1..{SCHEMA}"
        )
    if set(data) != _FIELDS:
        found = shown(sorted(map(str, data)))
        raise UnusableTrace(f"{where}: has fields {found}, expected {sorted(_FIELDS)}")
    _check_words(data, where)
    system = TRACED[data["system"]]
    config = system.config_from_json(data["config"], f"{where}: config")
    commands = data["commands"]
    if not isinstance(commands, list) or len(commands) > MOST_COMMANDS:
        raise UnusableTrace(f"{where}: 'commands' is a list of at most {MOST_COMMANDS}")
    known = system.by_name
    return Trace(
        system=system,
        config=config,
        commands=tuple(
            from_json(item, known, f"{where}: command {i}") for i, item in enumerate(commands)
        ),
        subject=data["subject"],
        level=data["level"],
        invariant=data["invariant"],
        versions=data["versions"],
    )


def _check_words(data: dict[str, Any], where: str) -> None:
    allowed = {
        "system": tuple(TRACED),
        "level": (EXACT, RENAMED),
        "invariant": (None, *CATALOGUE, *FATAL),
    }
    for name, values in allowed.items():
        value = data[name]
        if not isinstance(value, str | None) or value not in values:
            words = ", ".join(map(str, values))
            raise UnusableTrace(f"{where}: {name} is {str(value)[:60]!r}; allowed: {words}")
    if not isinstance(data["subject"], str) or len(data["subject"]) > 200:
        raise UnusableTrace(f"{where}: 'subject' is a word of at most 200 characters")
    found = data["versions"]
    if not isinstance(found, dict) or not all(
        isinstance(value, str) and len(value) < 100 for value in found.values()
    ):
        raise UnusableTrace(f"{where}: 'versions' is an object of words")


@dataclass(frozen=True)
class Step:
    """One executed command of a replay and what it came to on the subject."""

    command: Command
    outcome: Outcome | None
    before: dict[str, Any]
    after: dict[str, Any] | None


class Replay:
    """A trace run again: iterate over its steps, then look at `violation`."""

    def __init__(
        self, trace: Trace, make: MakeSubject, announce: Callable[[int], None] = lambda index: None
    ) -> None:
        self.trace = trace
        #: told the index of each command before it runs: it may not come back
        self.announce = announce
        self.violation: Violation | None = None
        self.executed: list[Command] = []
        self._make = make

    def steps(self) -> Iterator[Step]:
        """Runs the trace; ends at the first violation."""
        try:
            lock = self.trace.system.lockstep(
                self.trace.system, self.trace.config, self._make, self.trace.level
            )
        except Violation as violation:
            self.violation = violation
            return
        for index, command in enumerate(self.trace.commands):
            if not command.supported(lock.subject.calls) or not command.applies(lock.model):
                continue
            before = lock.states[1]
            self.announce(index)
            try:
                lock.step(command)
            except Violation as violation:
                self.violation = violation
                self.executed = lock.commands
                outcome = lock.outcomes[-1] if len(lock.outcomes) == len(lock.commands) else None
                yield Step(command, outcome, before, lock.look())
                return
            if len(lock.commands) > len(self.executed):
                self.executed = list(lock.commands)
                yield Step(command, lock.outcomes[-1], before, lock.states[1])
        lock.close()

    def run(self) -> Violation | None:
        """Runs the trace to its end; the violation, or None."""
        for _ in self.steps():
            pass
        return self.violation
