"""Runs a trace in a child process, which it may kill or never give back.

The child is forked, so a candidate costs milliseconds; the parent must not have touched a GPU.
Before each command the child says which, so that the one that ended it is known.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from properties.commands import Command
from properties.minimize import Judge, minimize
from properties.report import replay_line
from properties.subjects import Factory
from properties.trace import Replay, Trace

# What a candidate that hangs gets at least, and how much slower than before a child may be.
LEAST_SECONDS, SLOWER = 0.25, 4


@dataclass(frozen=True)
class Fate:
    """What became of a trace: the invariant it broke or None, and how far it came."""

    number: str | None
    #: index of the last command that was begun; -1 when it ended before the first
    last: int
    message: str = ""
    #: seconds until the last command was begun
    reached: float = 0.0


def fate(trace: Trace, factory: Factory, seconds: float) -> Fate:
    """Replays the trace in a child that gets so many seconds."""
    reading, writing = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _replay(trace, factory, writing)
    os.close(writing)
    try:
        text, in_time, heard = _read(reading, seconds)
    finally:
        os.close(reading)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = text.split("\n")
    begun = [int(line) for line in lines if line.isdecimal()]
    last = begun[-1] if begun else -1
    if not in_time:
        return Fate("hung", last, f"no end within {seconds:g} s", heard - started)
    if lines and lines[-1].startswith("{"):
        told: dict[str, Any] = json.loads(lines[-1])
        return Fate(told["number"], last, told["message"])
    return Fate("died", last, _how(status))


def told(trace: Trace, found: Fate, path: Path | None = None) -> str:
    """The commands of a trace as far as it came, and how it ended."""
    lines = [f"  {i}. {command}" for i, command in enumerate(trace.commands[: found.last + 1], 1)]
    ending = f"{found.number}: {found.message}, behind" if found.number else "it ends, behind"
    if path is not None:
        lines.append(replay_line(path, trace.subject))
    return "\n".join([ending, *lines])


def shortened(trace: Trace, factory: Factory, seconds: float) -> Trace | None:
    """The minimal trace that ends as this one does; None if this one doesn't any more.

    A trace that hangs costs all the time that it gets: candidates get what the trace took until
    its last command, several times over.
    """
    found = fate(trace, factory, seconds)
    if found.number != trace.invariant:
        return None
    if found.number == "hung":
        seconds = min(seconds, LEAST_SECONDS + SLOWER * found.reached)
    return minimize(trace, factory, judge=judge(factory, seconds))


def judge(factory: Factory, seconds: float) -> Judge:
    """Judges candidates of a minimiser in children."""

    def judged(trace: Trace) -> tuple[str | None, Sequence[Command]]:
        found = fate(trace, factory, seconds)
        return found.number, trace.commands[: found.last + 1]

    return judged


def _replay(trace: Trace, factory: Factory, writing: int) -> None:
    """The child: never returns."""
    code = 1
    faulthandler.disable()  # the parent tells how it ended
    try:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(each, signal.SIG_DFL)
        replay = Replay(trace, factory.make, lambda index: _say(writing, f"{index}\n"))
        violation = replay.run()
        number, message = (violation.number, str(violation)) if violation else (None, "")
        _say(writing, json.dumps({"number": number, "message": message}))
        code = 0
    finally:
        os._exit(code)


def _say(writing: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(writing, data) :]


def _read(reading: int, seconds: float) -> tuple[str, bool, float]:
    """All that the child says, whether it ended in time, and when it was last heard."""
    parts: list[bytes] = []
    heard = time.monotonic()
    deadline = heard + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return b"".join(parts).decode(), False, heard
        part = os.read(reading, 65536)
        if not part:
            return b"".join(parts).decode(), True, heard
        parts.append(part)
        heard = time.monotonic()


def _how(status: int) -> str:
    if status < 0:
        return f"the process ended by {signal.Signals(-status).name}"
    return f"the process ended with status {status}"
