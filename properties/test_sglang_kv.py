"""SGLang 0.5.23's own pools of KV: what they hold is what ours hold, byte for byte."""

from __future__ import annotations

import pytest

from properties.seeded import Plan, run_steps
from properties.subjects import Factory
from properties.systems import SYSTEMS

pytestmark = pytest.mark.of_subject("sglang")

KV_POOLS = SYSTEMS["kv_pools"]


@pytest.mark.parametrize("family", [0, 2], ids=["heads", "latents"])
def test_nothing_is_found(sglang: Factory, family: int) -> None:
    """Writes, moves and round trips agree for values in range, outside of the first page."""
    limits = {**sglang.limits["kv_pools"], "family": (family,)}
    plan = Plan(system=KV_POOLS, factory=sglang, seed=2, misuse=False, limits=limits)
    tally, finding = run_steps(plan, 4000)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= 4000
