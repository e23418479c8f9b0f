"""A trace run again to be looked at: both sides after every command, and where they part.

The run is that of `fuzz replay`. A trace that ends its process, or never ends, runs in the sandbox,
which tells how far it came; then the reference's side alone is shown.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from typing import Any, ClassVar

from fuzz import sandbox
from fuzz.traces import LONGEST_SECONDS
from fuzz.viewer.difference import difference
from fuzz.viewer.film import NO_VIEW, Film
from fuzz.viewer.frames import MOST_PAGES, View, clipped, view
from properties.commands import Command, Outcome
from properties.invariants import CATALOGUE, FATAL, Violation
from properties.lockstep import Lockstep
from properties.subjects import Factory, standin
from properties.trace import Replay, Trace

Outcomes = tuple[Outcome | None, Outcome | None]


class _Filmed(Lockstep):
    """A lockstep that tells what each step led to; mixed into that of the trace's system."""

    camera: ClassVar[Camera]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.camera.begin(self)

    def step(self, command: Command) -> Outcome | None:
        expected = super().step(command)
        if expected is not None:
            self.camera.shoot(command, (expected, self.outcomes[-1]))
        return expected


class Camera:
    """Makes the film of one run."""

    def __init__(self, both: bool) -> None:
        self.film = Film(both)
        self.lock: Lockstep | None = None
        self._states: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self._subject: View | None = None

    def begin(self, lock: Lockstep) -> None:
        self.lock = lock
        self.shoot(None, (None, None))

    def shoot(self, command: Command | None, outcomes: Outcomes) -> None:
        """The frame behind a step that went well.

        A subject whose faults come late is seen where it has settled: looking would settle it.
        """
        lock = self.lock
        assert lock is not None
        reference = view(lock.reference.observe(), lock.model.side)
        if lock.states is not self._states:
            self._states = lock.states
            wanted, found = lock.states
            same = lock.exact and found == wanted and lock.settles
            self._subject = reference if same else view(found, lock.theirs)
        self.film.add(command, outcomes, reference, self._subject)


def story(trace: Trace, factory: Factory) -> dict[str, Any]:
    """Everything that the viewer shows of a trace on this subject."""
    if trace.invariant in FATAL:
        return _fatal(trace, factory)
    return _head(trace) | _run(trace, factory, both=True)


def alone(trace: Trace, note: str) -> dict[str, Any]:
    """The trace on the reference, with a line that says why the subject isn't shown."""
    return _head(trace) | _run(trace, standin.factory(), both=False) | {"note": note}


def _fatal(trace: Trace, factory: Factory) -> dict[str, Any]:
    found = sandbox.fate(trace, factory, LONGEST_SECONDS)
    told = alone(
        trace.with_commands(trace.commands[: found.last + 1]),
        f"The trace was recorded as {trace.invariant}, so the subject ran in a process of its own."
        " This is the reference, as far as the subject came.",
    )
    if found.number is not None:
        broken = {**FATAL, **CATALOGUE}[found.number](found.message)
        told["violation"] = _told(broken, len(told["commands"]) - 1)
    return told


def _head(trace: Trace) -> dict[str, Any]:
    """What is known of a trace before it runs."""
    config = trace.config
    count = config.size // getattr(config, "page_size", 1)
    hidden = f"The pool has {count:,} pages; the first {MOST_PAGES:,} are drawn."
    unit = "page" if hasattr(config, "num_pages") else "slot"
    return {
        "system": trace.system.name,
        "unit": unit if hasattr(config, "page_size") else "row",
        "page_size": getattr(config, "page_size", 1),
        "config": trace.system.config_to_json(config),
        "subject": trace.subject,
        "level": trace.level,
        "recorded": trace.invariant,
        "versions": trace.versions,
        "note": hidden if count > MOST_PAGES else "",
    }


def _run(trace: Trace, factory: Factory, both: bool) -> dict[str, Any]:
    """The film of a run, and how it ended."""
    camera, system = Camera(both), trace.system
    kind = type("Filmed", (_Filmed, system.lockstep), {"camera": camera})
    filmed = replace(trace, system=replace(system, lockstep=kind))
    replay = Replay(filmed, factory.make)
    broken, parts = replay.run(), None
    if camera.lock is None:
        _unbuilt(trace, camera.film)
    elif broken is not None and len(camera.film) <= len(camera.lock.commands):
        parts = _ending(trace, camera.lock, camera.film)
    step = len(camera.film) - 1
    return {
        **camera.film.to_json(),
        "violation": None if broken is None else _told(broken, step),
        "difference": None if parts is None else {"step": step, **parts},
    }


def _told(broken: Violation, step: int) -> dict[str, Any]:
    return {
        "number": broken.number,
        "title": broken.title,
        "statement": broken.statement,
        "message": clipped(broken.message),
        "step": step,
    }


def _unbuilt(trace: Trace, film: Film) -> None:
    """The only frame of a run that ended when the subject was made."""
    reference = trace.system.reference(trace.config)
    model = trace.system.model(trace.config, reference.target)
    film.add(None, (None, None), view(reference.observe(), model.side), NO_VIEW)


def _ending(trace: Trace, lock: Lockstep, film: Film) -> dict[str, Any]:
    """Films the step that broke something; where the sides part."""
    command = lock.commands[-1]
    whole = len(lock.outcomes) == len(lock.commands)
    actual = lock.outcomes[-1] if whole else None
    found = lock.look()
    expected, wanted, side, theirs = _last(trace, lock, actual)
    views = view(wanted, side), view(found, theirs)
    film.add(command, (expected, actual), *views)
    cells = views[0].cells, views[1].cells
    return difference(lock.exact, (expected, actual), (wanted, found), cells)


def _last(
    trace: Trace, lock: Lockstep, actual: Outcome | None
) -> tuple[Outcome | None, dict[str, Any], Any, Any]:
    """What was due of the last command, the reference's state, and the sides behind it.

    The run broke off before the sides were told what came. So the reference runs once more, alone,
    and the subject's side is told on a copy. Where faults come late this can't be told apart.
    """
    if not lock.settles:
        return None, lock.reference.observe(), lock.model.side, lock.theirs
    make = standin.maker(lock.subject.calls)
    twin = trace.system.lockstep(trace.system, trace.config, make, trace.level)
    *before, last = lock.commands
    for command in before:
        twin.step(command)
    model = copy.deepcopy(twin.model)
    expected: Outcome | None
    try:
        expected = twin.step(last)
    except Violation:  # a caller's own bug, which the reference shows as well
        expected = twin.outcomes[-1]
    theirs = model.side if lock.exact else lock.theirs
    if lock.exact and actual is not None and actual.kind == "served":
        with contextlib.suppress(Exception):  # a wrong answer may be none that can be booked
            last.settle(model, theirs, actual.value)
    return expected, twin.reference.observe(), twin.model.side, theirs
