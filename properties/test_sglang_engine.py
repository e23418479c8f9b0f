"""The small engine on SGLang 0.5.23's own rows, allocator and pools: what is read was written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.commands import Command
from properties.probe import Prober
from properties.seeded import Plan, run_steps
from properties.subjects import Factory
from properties.subjects.sglang_engine import MISUSE, OF_HOSTS
from properties.systems import SYSTEMS

pytestmark = pytest.mark.of_subject("sglang")

ENGINE = SYSTEMS["engine"]
CARELESS = [
    command
    for command in ENGINE.commands
    if command.misuse and not OF_HOSTS.intersection(command.methods)
]


def test_nothing_is_found(sglang: Factory) -> None:
    """Under legal use rows, slots and content are the reference's, and what was meant."""
    plan = Plan(system=ENGINE, factory=sglang, seed=2)
    tally, finding = run_steps(plan, 3000)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= 3000


@pytest.fixture(scope="module")
def prober(sglang: Factory) -> Prober:
    """One that keeps its states."""
    open_factory = replace(sglang, known=frozenset())
    small = {"page_size": (2,), "pages": (2, 4), "layers": (1,), "width": (4,)}
    return Prober(Plan(system=ENGINE, factory=open_factory, seed=1, misuse=True, limits=small))


@pytest.mark.misuse
@pytest.mark.parametrize("command", CARELESS, ids=lambda command: command.name())
def test_misuse_is_met_as_the_table_says(prober: Prober, command: type[Command]) -> None:
    """A misuse breaks the invariant of its entry, or is refused with nothing changed."""
    ways = prober.ways(command)
    assert ways, "no way to commit this misuse was drawn"
    for method in ways:
        finding = prober.probe(command, method)
        assert (finding.violation.number if finding else None) == MISUSE.get(command.name())


def test_the_table_names_commands_that_exist() -> None:
    """Every entry of the table is about a command that the search goes through."""
    assert set(MISUSE) <= {command.name() for command in CARELESS}
