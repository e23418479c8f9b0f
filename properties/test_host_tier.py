"""The host tier: a subject in lockstep with the reference."""

from __future__ import annotations

import pytest

from properties.checks import check_seeded
from properties.machine import run_machine
from properties.plugin import UnderTest

pytestmark = pytest.mark.system("host_tier")


def test_hypothesis(subject: UnderTest) -> None:
    """No sequence of commands that Hypothesis draws tells the subject from the reference."""
    run_machine(subject.plan("host_tier"))


def test_seeded(subject: UnderTest) -> None:
    """20,000 seeded steps show no difference, and reach every situation that they claim to."""
    check_seeded(subject.plan("host_tier"))
