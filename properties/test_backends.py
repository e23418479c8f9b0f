"""Both backends of ours in lockstep, whichever is the default here."""

from __future__ import annotations

import pytest

from properties.machine import fail
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS

# An interpreted call takes some milliseconds; compiled ones are the default on a GPU, and get the
# long runs of each system's own test there.
STEPS = {"impl:torch": 3_000, "impl:triton": 500}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("system", ["token", "paged", "paged_rows"])
def test_backend(name: str, system: str) -> None:
    """No seeded sequence of commands tells a backend from the reference."""
    factory = load(name)
    if not factory.has(system):
        pytest.skip("backend triton needs triton: pip install triton")
    plan = Plan(system=SYSTEMS[system], factory=factory, seed=1)
    _, finding = run_steps(plan, STEPS[name])
    if finding is not None:
        fail(finding, plan)
