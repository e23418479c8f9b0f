"""Turns a system's commands into a Hypothesis state machine, and a failure into a short trace.

One named subclass for each system and subject (closures would share a database key), one rule for
each command of legal use, named after it and taking one drawn command, so that a step prints as the
command. All misuse shares one rule.

Which rule is next, Hypothesis decides by a dozen draws, each as dear as a whole command: here the
seeded driver's way stands in, from Hypothesis's own bits. As Hypothesis does, each run leaves some
commands out, so that the others meet in states that all together seldom reach.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from properties.choices import Choices, FromHypothesis
from properties.commands import Command
from properties.invariants import Violation
from properties.lockstep import Lockstep
from properties.minimize import minimize
from properties.report import story
from properties.seeded import Finding, Picker, Plan, trace_of, usable
from properties.trace import Replay, Trace, save

Draw = Callable[[st.SearchStrategy[Any]], Any]
MISUSE = "misuse"
# Of eight commands a run leaves out so many on average: none in every third run, up to half.
LEFT_OUT_OF_EIGHT = (0, 0, 1, 2, 3, 4)


class Machine(RuleBasedStateMachine):
    """Base of the generated machines: `plan` says what runs, `failure` is the last violation's."""

    plan: ClassVar[Plan]
    failure: ClassVar[Trace | None] = None
    lock: Lockstep

    def __init__(self) -> None:
        super().__init__()
        # Not a documented name, though unchanged for years. Without it Hypothesis goes its own way
        # through the rules and their preconditions: slower, and to the same end.
        theirs = getattr(self, "_rules_strategy", None)
        if rules := {rule.function.__name__: rule for rule in getattr(theirs, "rules", ())}:
            self._rules_strategy: Any = _steps(self, rules, theirs)

    def start(self, config: Any, left_out: Collection[str] = ()) -> None:
        plan = type(self).plan
        level, misuse, _ = plan.judged()
        self.lock = plan.system.lockstep(plan.system, config, plan.factory.make, level)
        calls = self.lock.subject.calls
        found = usable(plan.system, calls, misuse, plan.factory.known)
        kept = [command for command in found if command.name() not in left_out]
        self.usable = frozenset(found)
        self.pickers = [Picker(commands) for commands in (kept, found) if commands]

    def open(self, commands: tuple[type[Command], ...]) -> list[type[Command]]:
        """Those of the commands that can be drawn now."""
        model = self.lock.model
        return [c for c in commands if c in self.usable and c.enabled(model)]

    def draw(self, choices: Choices) -> Command | None:
        """The next command: one that this run keeps, or any where none of those is enabled."""
        drawn = (picker.draw(choices, self.lock.model) for picker in self.pickers)
        return next((command for command in drawn if command is not None), None)

    def step(self, command: Command) -> None:
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


@st.composite
def _steps(draw: Draw, machine: Machine, rules: dict[str, Any], theirs: Any) -> Any:
    """The next step as Hypothesis wants it: a rule and its arguments."""
    command = machine.draw(FromHypothesis(draw, 1 + len(machine.lock.commands)))
    if command is None:
        return draw(theirs)
    return rules[MISUSE if command.misuse else command.name()], {"cmd": command}


def machine(plan: Plan) -> type[Machine]:
    """The state machine of a plan."""
    subject = "".join(c if c.isalnum() else "_" for c in plan.factory.name)
    name = f"{plan.system.name.capitalize()}Of{subject.capitalize()}"
    body: dict[str, Any] = {"plan": plan, "begin": _initializer(plan)}
    for command in plan.system.every:
        drawn = not command.breaks or command.name() in plan.factory.faulty
        if drawn and not command.misuse:
            body[command.name()] = _rule(command.name(), (command,))
    misuse = tuple(command for command in plan.system.commands if command.misuse)
    body[MISUSE] = _rule(MISUSE, misuse)
    return type(name, (Machine,), body)


def _initializer(plan: Plan) -> Any:
    _, _, limits = plan.judged()

    @st.composite
    def configs(draw: Draw) -> Any:
        return plan.system.config.draw(FromHypothesis(draw), limits)

    @st.composite
    def names(draw: Draw) -> tuple[str, ...]:
        choices = FromHypothesis(draw)
        if not (share := choices.pick(LEFT_OUT_OF_EIGHT)):
            return ()
        commands = plan.system.commands
        return tuple(c.name() for c in commands if choices.integer(0, 7) < share)

    def begin(self: Machine, config: Any, left_out: tuple[str, ...]) -> None:
        self.start(config, left_out)

    return initialize(config=configs(), left_out=names())(begin)


def _rule(name: str, commands: tuple[type[Command], ...]) -> Any:
    """A rule that draws one of these commands; its precondition is that one is enabled."""

    @st.composite
    def drawn(draw: Draw) -> Command:
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


def run_machine(plan: Plan, chosen: settings | None = None) -> None:
    """Runs the machine of a plan; a violation is raised with its minimal trace in words.

    `chosen` are Hypothesis settings where the profile's would take too long.
    """
    made = machine(plan)
    try:
        run_state_machine_as_test(made, settings=chosen)
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
