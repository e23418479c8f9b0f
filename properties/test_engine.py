"""The small engine: a subject in lockstep with the reference."""

from __future__ import annotations

import pytest

from properties.checks import check_seeded
from properties.machine import run_machine
from properties.plugin import UnderTest

# A step of everything together takes twice as long as one of a part.
STEPS = 10_000

pytestmark = pytest.mark.system("engine")


def test_hypothesis(subject: UnderTest) -> None:
    """No sequence of commands that Hypothesis draws tells the subject from the reference."""
    run_machine(subject.plan("engine"))


def test_seeded(subject: UnderTest) -> None:
    """10,000 seeded steps show no difference, and reach every situation that they claim to."""
    check_seeded(subject.plan("engine"), STEPS)
