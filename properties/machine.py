"""Turns a system's commands into a Hypothesis state machine, and a failure into a short trace.

One named subclass for each system and subject (closures would share a database key), one rule for
each command of legal use, named after it and taking one drawn command, so that a step prints as the
command. All misuse shares one rule: as many rules as there are kinds of it would be most of the
steps, and choosing among fifty rules costs Hypothesis more than the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from properties.choices import FromHypothesis
from properties.commands import Command
from properties.invariants import Violation
from properties.lockstep import Lockstep
from properties.minimize import minimize
from properties.report import story
from properties.seeded import Finding, Plan, trace_of, usable
from properties.trace import Replay, Trace, save


class Machine(RuleBasedStateMachine):
    """Base of the generated machines: `plan` says what runs, `failure` is the last violation's."""

    plan: ClassVar[Plan]
    failure: ClassVar[Trace | None] = None
    lock: Lockstep

    def start(self, config: Any) -> None:
        plan = type(self).plan
        level, misuse, _ = plan.judged()
        self.lock = Lockstep(plan.system, config, plan.factory.make, level)
        calls = self.lock.subject.calls
        self.usable = frozenset(usable(plan.system, calls, misuse, plan.factory.known))

    def open(self, commands: tuple[type[Command], ...]) -> list[type[Command]]:
        """Those of the commands that can be drawn now."""
        model = self.lock.model
        return [c for c in commands if c in self.usable and c.enabled(model)]

    def step(self, command: Command) -> None:
        if not command.applies(self.lock.model):
            return
        try:
            self.lock.step(command)
        except Violation as violation:
            self.remember(violation)
            raise

    def remember(self, violation: Violation) -> None:
        type(self).failure = trace_of(type(self).plan, self.lock, violation)

    def teardown(self) -> None:
        if hasattr(self, "lock"):
            self.lock.close()


def machine(plan: Plan) -> type[Machine]:
    """The state machine of a plan."""
    subject = "".join(c if c.isalnum() else "_" for c in plan.factory.name)
    name = f"{plan.system.name.capitalize()}Of{subject.capitalize()}"
    body: dict[str, Any] = {"plan": plan, "begin": _initializer(plan)}
    for command in plan.system.commands:
        if not command.misuse:
            body[command.name()] = _rule(command.name(), (command,))
    misuse = tuple(command for command in plan.system.commands if command.misuse)
    body["misuse"] = _rule("misuse", misuse)
    return type(name, (Machine,), body)


def _initializer(plan: Plan) -> Any:
    _, _, limits = plan.judged()

    @st.composite
    def configs(draw: Callable[[Any], Any]) -> Any:
        return plan.system.config.draw(FromHypothesis(draw), limits)

    def begin(self: Machine, config: Any) -> None:
        self.start(config)

    return initialize(config=configs())(begin)


def _rule(name: str, commands: tuple[type[Command], ...]) -> Any:
    """A rule that draws one of these commands; its precondition is that one is enabled."""

    @st.composite
    def drawn(draw: Callable[[Any], Any]) -> Command:
        runner: Machine = draw(_RUNNER)
        choices = FromHypothesis(draw)
        return choices.pick(runner.open(commands)).draw(choices, runner.lock.model)

    def step(self: Machine, cmd: Command) -> None:
        self.step(cmd)

    def enabled(self: Machine) -> bool:
        model = self.lock.model
        return any(c in self.usable and c.enabled(model) for c in commands)

    step.__name__ = name
    return precondition(enabled)(rule(cmd=drawn())(step))


_RUNNER = st.runner()


def run_machine(plan: Plan) -> None:
    """Runs the machine of a plan; a violation is raised with its minimal trace in words."""
    made = machine(plan)
    try:
        run_state_machine_as_test(made)
    except Violation as violation:
        if made.failure is None:
            raise
        finding = Finding(violation, made.failure)
    else:
        return
    fail(finding, plan)


def fail(finding: Finding, plan: Plan) -> None:
    """Saves a finding, minimises it, and raises it as the user is to see it."""
    save(finding.trace)
    minimal = minimize(finding.trace, plan.factory)
    path = save(minimal)
    replay = Replay(minimal, plan.factory.make)
    steps = list(replay.steps())
    shown = replay.violation or finding.violation
    text = story(minimal, steps, path)
    raise type(shown)(f"{shown.message}\n  ({shown.statement})\n{text}") from None
