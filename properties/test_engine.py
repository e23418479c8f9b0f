"""The small engine: a subject in lockstep with the reference, and judged from outside."""

from __future__ import annotations

import pytest

from properties.checks import check_seeded
from properties.machine import run_machine
from properties.planted import Bug
from properties.planted.engine import BUGS
from properties.plugin import UnderTest
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.subjects.engine_content import codes, numbers, poison
from properties.subjects.engine_parts import Token
from properties.systems import SYSTEMS
from properties.systems.engine import EngineConfig
from properties.systems.kv_pools import DTYPES
from reference.storage.floats import decode

# A step of everything together takes twice as long as one of a part.
STEPS = 10_000
#: bugs of the engine itself, which is the reference's too
SHARED = [bug for bug in BUGS if "engine:Engine" in bug.place]


@pytest.mark.system("engine")
def test_hypothesis(subject: UnderTest) -> None:
    """No sequence of commands that Hypothesis draws tells the subject from the reference."""
    run_machine(subject.plan("engine"))


@pytest.mark.system("engine")
def test_seeded(subject: UnderTest) -> None:
    """10,000 seeded steps show no difference, and reach every situation that they claim to."""
    check_seeded(subject.plan("engine"), STEPS)


@pytest.mark.parametrize("bug", SHARED, ids=str)
def test_an_engine_is_judged_from_outside(bug: Bug) -> None:
    """A bug that both sides have is found as well: all is held against what was meant."""
    factory = load("impl:torch")
    plan = Plan(system=SYSTEMS["engine"], factory=factory, seed=0, limits=bug.limits)
    with bug.planted():
        finding = run_steps(plan, 5_000)[1]
    assert finding is not None
    assert finding.violation.number in (bug.invariant, *bug.also)


@pytest.mark.parametrize("dtype", DTYPES)
def test_content_says_whose_it_is(dtype: str) -> None:
    """Numbers are exact in each type, positive, never poison, and others for other tokens."""
    config = EngineConfig(
        family=0, stored=DTYPES.index(dtype), page_size=1, pages=1, rows=1, width=1, layers=1,
        heads=2, dim=3, chunk=1, host_pages=0, need_sort=False, captured=False, by_rows=False,
    )  # fmt: skip
    places = [
        (Token(name, at), layer, part)
        for name in range(9) for at in range(9) for layer in (0, 1) for part in (0, 1)
    ]  # fmt: skip
    seen = set()
    for token, layer, part in places:
        row = codes(token, layer, part, config.row_width, dtype)
        values = numbers(token, layer, part, config.row_width)
        assert tuple(decode(code, dtype) for code in row) == values
        assert min(values) > 0
        assert not set(row).intersection(poison(config))
        seen.add(tuple(row))
    assert len(seen) == len(places)
