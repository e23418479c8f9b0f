"""Walks of `fuzz exhaust`, in this process or shared by several.

They don't know of each other: each process takes the next one, and says how far it is.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuzz import options, process
from properties import exhaust
from properties.choices import TooManyChoices
from properties.exhaust import Endless, Searched
from properties.invariants import Violation, violation
from properties.scope import Scope
from properties.seeded import Finding, Plan
from properties.subjects import Factory, UnusableSubject
from properties.systems import SYSTEMS
from properties.trace import parse

# A person reads no faster, and a walk of a second is told of too.
SECONDS_BETWEEN_EVENTS = 0.2


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One walk, as it is told to a process."""

    system: str
    subject: str
    config: Any
    scope: Scope
    groups: bool
    depth: int | None

    def __str__(self) -> str:
        words = ", ".join(f"{key}={value}" for key, value in vars(self.config).items())
        return f"{words}, {'with' if self.groups else 'without'} groups"


@dataclass(frozen=True)
class Event:
    """How far the walk at this place is, or that it has ended."""

    at: int
    searched: Searched
    done: bool = False


def plan_of(one: Walk, factory: Factory) -> Plan:
    """The plan of a walk, judged as the subject is usually."""
    return Plan(system=SYSTEMS[one.system], factory=factory, seed=0)


def probe(one: Walk, factory: Factory) -> None:
    """Raises TooManyChoices where a walk can't even begin."""
    with contextlib.suppress(Violation):  # the walk tells of it
        exhaust.probe(plan_of(one, factory), one.config, one.scope)


def here(
    walks: Sequence[Walk], factory: Factory, heard: Callable[[Event], None],
    stopped: Callable[[], bool],
) -> None:  # fmt: skip
    """All walks in this process, one after another; `heard` gets what becomes of them."""
    for at, each in enumerate(walks):
        due = time.monotonic() + SECONDS_BETWEEN_EVENTS

        def more(searched: Searched, at: int = at) -> bool:
            nonlocal due
            if (now := time.monotonic()) >= due:
                due = now + SECONDS_BETWEEN_EVENTS
                heard(Event(at, searched))
            return not stopped()

        searched = exhaust.walk(
            plan_of(each, factory), each.config, each.scope,
            groups=each.groups, depth=each.depth, more=more,
        )  # fmt: skip
        heard(Event(at, searched, done=True))
        if stopped():
            return


def apart(walks: Sequence[Walk], workers: int, stopped: Callable[[], bool]) -> Iterator[Event]:
    """The same by several processes: what becomes of the walks, as they say it."""
    context = multiprocessing.get_context("spawn")
    tasks, said = context.Queue(), context.Queue()
    # the last ones have groups and are the longest
    for at in reversed(range(len(walks))):
        tasks.put((at, walks[at]))
    crew = [context.Process(target=_work, args=(tasks, said), daemon=True) for _ in range(workers)]
    for one in crew:
        one.start()
    left = len(walks)
    try:
        while left and not stopped():
            try:
                word, content = said.get(timeout=SECONDS_BETWEEN_EVENTS)
            except queue.Empty:
                if lost := [one.exitcode for one in crew if one.exitcode]:
                    raise UnusableSubject(
                        f"a search ended its process (exit code {lost[0]}); a campaign goes on"
                        " behind such a subject: fuzz run"
                    ) from None
                continue
            if word == "unusable":
                raise options.Unusable(content)
            event = _unpacked(content)
            left -= event.done
            yield event
    finally:
        for one in crew:
            one.terminate()
            one.join()


def _work(tasks: Any, said: Any) -> None:
    """A process of `apart`: takes walks until none is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    process.settle()
    while True:
        try:
            at, one = tasks.get(timeout=SECONDS_BETWEEN_EVENTS)
        except queue.Empty:
            return

        def heard(event: Event, at: int = at) -> None:
            said.put(("event", _packed(replace(event, at=at))))

        try:
            here([one], options.subject(one.subject), heard, lambda: False)
        except (Endless, TooManyChoices) as error:
            said.put(("unusable", f"the search would not end: {error}"))
        except (UnusableSubject, options.Unusable) as error:
            said.put(("unusable", str(error)))


def _packed(event: Event) -> tuple[Event, tuple[str, str, str] | None]:
    """An event as it is sent: a finding in words, since its system is no plain data."""
    found = event.searched.finding
    if found is None:
        return event, None
    words = (found.violation.number, found.violation.message, found.trace.dumps())
    return replace(event, searched=replace(event.searched, finding=None)), words


def _unpacked(content: tuple[Event, tuple[str, str, str] | None]) -> Event:
    event, words = content
    if words is None:
        return event
    number, message, trace = words
    finding = Finding(violation(number, message), parse(json.loads(trace)))
    return replace(event, searched=replace(event.searched, finding=finding))
