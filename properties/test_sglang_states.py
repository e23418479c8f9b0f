"""SGLang 0.5.23's own state pools: the harness finds what the table says, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.minimize import minimize
from properties.seeded import Plan, run_steps
from properties.subjects import Factory
from properties.subjects.sglang_states import FOUND
from properties.systems import SYSTEMS

pytestmark = pytest.mark.of_subject("sglang")

STATE_POOLS = SYSTEMS["state_pools"]
MOST_COMMANDS = 2


@pytest.mark.parametrize("command", FOUND)
def test_what_the_table_says_is_found(sglang: Factory, command: str) -> None:
    """Legal use breaks the invariant of each entry by its command, shown in two at most."""
    open_factory = replace(sglang, known=frozenset())
    _, finding = run_steps(Plan(system=STATE_POOLS, factory=open_factory, seed=1), 5000)
    assert finding is not None
    assert finding.violation.number == FOUND[command][0]
    minimal = minimize(finding.trace, open_factory)
    assert len(minimal.commands) <= MOST_COMMANDS
    assert minimal.commands[-1].name() == command


def test_nothing_else_is_found(sglang: Factory) -> None:
    """Other legal use: the same bytes as the reference, siblings and draft windows included."""
    tally, finding = run_steps(Plan(system=STATE_POOLS, factory=sglang, seed=2), 5000)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= 5000
