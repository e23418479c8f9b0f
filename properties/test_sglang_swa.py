"""SGLang 0.5.23's own sliding-window pair: the harness finds what the tables say by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.minimize import minimize
from properties.probe import Prober
from properties.seeded import Plan, run_steps
from properties.subjects import Factory
from properties.subjects.sglang_swa import LEGAL, MISUSE
from properties.systems import SYSTEMS

pytestmark = pytest.mark.of_subject("sglang")

SWA = SYSTEMS["swa"]
#: legal use that it does right
SOUND = replace(SWA, commands=tuple(c for c in SWA.commands if c.name() not in dict(LEGAL)))
#: the most commands that a minimal trace may need
MOST_COMMANDS = 4


@pytest.mark.parametrize(("name", "invariants"), LEGAL, ids=[name for name, _ in LEGAL])
def test_legal_use_that_goes_wrong(sglang: Factory, name: str, invariants: tuple[str, ...]) -> None:
    """A seeded run names an invariant of the table, and a few commands show it."""
    others = {other for other, _ in LEGAL} - {name}
    system = replace(SWA, commands=tuple(c for c in SWA.commands if c.name() not in others))
    factory = replace(sglang, known=frozenset())
    plan = Plan(system=system, factory=factory, seed=0, misuse=False)
    _, finding = run_steps(plan, 6000)
    assert finding is not None
    assert finding.violation.number in invariants
    minimal = minimize(finding.trace, factory)
    assert len(minimal.commands) <= MOST_COMMANDS
    assert name in [command.name() for command in minimal.commands]


@pytest.fixture(scope="module")
def prober(sglang: Factory) -> Prober:
    """One that keeps its states, whose preludes go right."""
    factory = replace(sglang, known=frozenset())
    return Prober(Plan(system=SOUND, factory=factory, seed=1, misuse=True))


@pytest.mark.misuse
@pytest.mark.parametrize(("name", "how", "invariant"), MISUSE)
def test_misuse_of_windows_is_met_as_the_table_says(
    prober: Prober, name: str, how: str, invariant: str
) -> None:
    """What only a pair can be misused for is accepted, and breaks the invariant of its entry."""
    finding = prober.probe(SWA.by_name[name], how)
    assert finding is not None
    assert finding.violation.number == invariant
    assert len(finding.trace.commands) <= MOST_COMMANDS


def test_nothing_else_is_found(sglang: Factory) -> None:
    """All other legal use: the same slots, lists and maps as the reference."""
    plan = Plan(system=SOUND, factory=sglang, seed=2, misuse=False)
    tally, finding = run_steps(plan, 5000)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= 5000
