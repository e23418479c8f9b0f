"""The state machines: a rule for each command, our choice of it, Hypothesis's where it must."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleStrategy, run_state_machine_as_test

from properties.commands import Command
from properties.machine import MISUSE, Machine, machine
from properties.seeded import Plan
from properties.subjects import load
from properties.systems import PROMPT, SYSTEMS

FEW = settings(max_examples=15, stateful_step_count=100, database=None, derandomize=True)
#: of many kinds of pool those that have most commands: in so few runs each comes up
LIMITS: dict[str, dict[str, Any]] = {"kv_pools": {"family": (0, 3, 6)}}


def made(name: str, **limits: Any) -> type[Machine]:
    plan = Plan(system=SYSTEMS[name], factory=load("impl"), seed=0, limits=limits)
    return machine(plan)


def ran(kind: type[Machine], monkeypatch: pytest.MonkeyPatch) -> list[list[Command]]:
    """The commands of each run of the machine."""
    runs: list[list[Command]] = []

    def teardown(self: Machine) -> None:
        runs.append(list(self.lock.commands))

    monkeypatch.setattr(kind, "teardown", teardown)
    run_state_machine_as_test(kind, settings=FEW)
    return runs


@pytest.mark.parametrize("name", PROMPT)
def test_one_rule_for_each_legal_command(name: str) -> None:
    """The rules are the legal commands by name, and one for all misuse; each takes one command."""
    rules = RuleStrategy(made(name)()).rules
    legal = {command.name() for command in SYSTEMS[name].commands if not command.misuse}
    assert {rule.function.__name__ for rule in rules} == legal | {MISUSE}
    assert all(list(rule.arguments) == ["cmd"] for rule in rules)


@pytest.mark.parametrize("name", PROMPT)
def test_commands_come_by_their_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are of full length, reach all commands but the rarest, and heavy ones come often."""
    runs = ran(made(name, **LIMITS.get(name, {})), monkeypatch)
    assert sum(len(run) for run in runs) > 90 * FEW.max_examples
    counts = Counter(type(command) for run in runs for command in run)
    commands = SYSTEMS[name].commands
    assert len(counts) > 0.9 * len(commands)
    heaviest = max(commands, key=lambda command: command.weight)
    assert counts[heaviest] > 2 * sum(counts.values()) / len(commands)


def test_runs_leave_commands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some runs lack the most frequent command altogether, most do not."""
    runs = ran(made("paged"), monkeypatch)
    without = [run for run in runs if "extend" not in {command.name() for command in run}]
    assert 0 < len(without) < len(runs) / 2


@pytest.mark.parametrize("name", PROMPT)
def test_hypothesis_may_choose_the_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where our choice of rules can't take its place, Hypothesis's own runs the machine as well."""

    class Plain(made(name)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._rules_strategy = RuleStrategy(self)

    counts = Counter(type(command) for run in ran(Plain, monkeypatch) for command in run)
    assert sum(counts.values()) > 500
    assert len(counts) > len(SYSTEMS[name].commands) / 3
