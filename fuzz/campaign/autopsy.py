"""What becomes of a finding in a worker: made short; and of a round that killed its worker.

The commands of such a round are told again with the reference in the subject's place, then run in
a child of the worker, which says how far it came. The worker must not have touched a GPU by then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz import sandbox
from fuzz.campaign.rounds import opened
from fuzz.campaign.store import written
from fuzz.campaign.task import Task
from fuzz.findings import breaks
from properties.commands import Command
from properties.invariants import FATAL
from properties.lockstep import Lockstep
from properties.minimize import minimize
from properties.report import describe
from properties.seeded import Plan, Tally, drive
from properties.subjects import standin
from properties.trace import Trace, load, versions


def shortened(task: Task, plan: Plan) -> dict[str, Any]:
    """The minimal trace of a finding, its text and its story; or why there is none."""
    trace, factory = load(Path(task.bases[0])), plan.factory
    if trace.invariant in FATAL:
        short = sandbox.shortened(trace, factory, task.seconds)
        if short is None:
            return {"whole": f"{trace.invariant} doesn't come again on replay"}
        story = sandbox.told(short, sandbox.fate(short, factory, task.seconds))
        return {"text": short.dumps(), "story": story, "key": key(short)}
    if not breaks(trace, factory):
        return {"whole": f"{trace.invariant} doesn't come again on replay"}
    short = minimize(trace, factory)
    if not breaks(short, factory):
        return {"whole": f"{trace.invariant} comes and goes on replay"}
    return {"text": short.dumps(), "story": describe(short, factory.make), "key": key(short)}


def key(trace: Trace) -> list[str]:
    """What makes two findings one: invariant, command, subject, kinds of the minimal commands."""
    kinds = [command.name() for command in trace.commands]
    last = kinds[-1] if kinds else "__init__"
    return [trace.invariant or "", last, trace.subject, trace.system.name, *kinds]


def autopsy(task: Task, traces: Callable[[str], Trace]) -> dict[str, Any]:
    """Runs the round of a dead worker again, in a child: whether it was the subject's doing."""
    dead = Task.loads(json.dumps(task.of["task"]))
    plan = dead.lane.plan()
    config, commands = retold(dead, plan, tuple(task.of["calls"]), traces)
    trace = Trace(
        system=plan.system,
        config=config,
        commands=tuple(commands),
        subject=plan.factory.name,
        level=plan.judged()[0],
        versions=versions(),
    )
    found = sandbox.fate(trace, plan.factory, min(task.limit / 2, dead.limit))
    if found.number is None:
        return {"innocent": True}
    trace = replace(trace, commands=tuple(commands[: found.last + 1]), invariant=found.number)
    path = written(Path(task.as_found), trace.dumps())
    report: dict[str, Any] = {
        "number": found.number,
        "command": trace.commands[-1].name() if trace.commands else "__init__",
        "message": f"{found.number}: {found.message}",
    }
    if path is None:
        return {**report, "unsaved": [["found", trace.dumps()]]}
    return {**report, "found": str(path)}


def retold(
    dead: Task, plan: Plan, calls: tuple[str, ...], traces: Callable[[str], Trace]
) -> tuple[Any, list[Command]]:
    """Config and commands of a round, from its task alone."""
    bases = [traces(path) for path in dead.bases]
    round_ = opened(plan, dead.kind, dead.seed, bases)
    stand_in = replace(plan, factory=replace(plan.factory, make=standin.maker(calls)))
    runs: list[Lockstep] = []

    def commands(lock: Lockstep) -> Iterator[Command]:
        runs.append(lock)
        yield from round_.commands(lock)

    drive(stand_in, round_.config, commands, Tally(looks=False), lambda: True)
    return round_.config, runs[0].commands if runs else []
