"""Faults that arrive late: the kernels' path in lockstep with a reference that freezes."""

from __future__ import annotations

import pytest
from hypothesis import settings

from properties.commands import Call, Outcome
from properties.deferred import DeferredLockstep
from properties.machine import fail, run_machine
from properties.plugin import UnderTest
from properties.seeded import run_steps
from properties.systems import SYSTEMS

# An interpreted call takes some milliseconds.
STEPS = 900
# Kinds of call that such a run must have seen void: frees that are at fault, and calls behind them.
LATE_METHODS = 2
EXAMPLES = settings(max_examples=8, stateful_step_count=40)
DEFERRED = [
    pytest.param(name, marks=pytest.mark.system(name))
    for name in SYSTEMS
    if name.endswith("_deferred")
]


@pytest.mark.parametrize("system", DEFERRED)
def test_hypothesis(subject: UnderTest, system: str) -> None:
    """What Hypothesis draws is refused as it should be, late or at once, and undone."""
    run_machine(subject.plan(system), EXAMPLES)


@pytest.mark.parametrize("system", DEFERRED)
def test_seeded(subject: UnderTest, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded runs too; among their calls are faults that arrive late, and void calls."""
    late: list[str] = []
    require_void = DeferredLockstep._require_void

    def noted(lock: DeferredLockstep, call: Call, actual: Outcome) -> None:
        late.append(call.method)
        require_void(lock, call, actual)

    monkeypatch.setattr(DeferredLockstep, "_require_void", noted)
    plan = subject.plan(system)
    _, finding = run_steps(plan, STEPS)
    if finding is not None:
        fail(finding, plan)
    assert len(set(late)) >= LATE_METHODS
