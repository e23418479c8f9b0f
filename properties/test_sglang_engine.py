"""The small engine on SGLang 0.5.23's own rows, allocator and pools: what is read was written."""

from __future__ import annotations

import pytest

from properties.seeded import Plan, run_steps
from properties.subjects import Factory
from properties.systems import SYSTEMS

pytestmark = pytest.mark.of_subject("sglang")


def test_nothing_is_found(sglang: Factory) -> None:
    """Under legal use rows, slots and content are the reference's, and what was meant."""
    plan = Plan(system=SYSTEMS["engine"], factory=sglang, seed=2)
    tally, finding = run_steps(plan, 3000)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= 3000
