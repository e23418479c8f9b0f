"""SGLang 0.5.23's own state pools and rows of hybrid models: the harness finds what the tables say,
and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.commands import Command
from properties.minimize import minimize
from properties.probe import Prober
from properties.seeded import Plan, run_steps
from properties.subjects import Factory, sglang_hybrid, sglang_states
from properties.subjects import sglang as adapter
from properties.subjects.sglang_states import FOUND
from properties.systems import SYSTEMS

pytestmark = pytest.mark.of_subject("sglang")

STATE_POOLS, HYBRID_ROWS = SYSTEMS["state_pools"], SYSTEMS["hybrid_rows"]
MOST_COMMANDS = 2
#: the most that a minimal trace of rows may need: a node with a state comes of a life before it
MOST_OF_ROWS = 6
#: misuse of what is theirs
MISUSE = [
    command
    for command in HYBRID_ROWS.commands
    if command.misuse and command.name() not in sglang_hybrid.OURS
]


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


# ---- rows of hybrid models --------------------


@pytest.mark.parametrize("what", sglang_hybrid.FOUND)
def test_legal_use_of_rows_that_goes_wrong(sglang: Factory, what: str) -> None:
    """Where the engine isn't kept off it, legal use breaks what the entry says, by its call."""
    entry = sglang_hybrid.FOUND[what]
    exposed = replace(sglang, make=lambda s, c: adapter.make(s, c, exposed=what))
    plan = Plan(system=HYBRID_ROWS, factory=exposed, seed=1, misuse=False)
    _, finding = run_steps(plan, 6000)
    assert finding is not None
    assert finding.violation.number == entry.invariant
    minimal = minimize(finding.trace, exposed)
    assert len(minimal.commands) <= MOST_OF_ROWS
    assert entry.method in minimal.commands[-1].methods


#: legal use of pools that goes right, and their misuse
SOUND_POOLS = replace(
    STATE_POOLS, commands=tuple(c for c in STATE_POOLS.commands if c.name() not in FOUND)
)
MISUSE_OF_POOLS = [command for command in SOUND_POOLS.commands if command.misuse]


@pytest.fixture(scope="module")
def pool_prober(sglang: Factory) -> Prober:
    """One that keeps its states."""
    factory = replace(sglang, known=frozenset())
    return Prober(Plan(system=SOUND_POOLS, factory=factory, seed=1, misuse=True))


@pytest.mark.misuse
@pytest.mark.parametrize("command", MISUSE_OF_POOLS, ids=[c.name() for c in MISUSE_OF_POOLS])
def test_misuse_of_pools_is_met_as_the_table_says(
    pool_prober: Prober, command: type[Command]
) -> None:
    """Each misuse breaks the invariant of its entry at once, or is refused with no byte changed."""
    finding = pool_prober.probe(command)
    found = finding.violation.number if finding else None
    assert found == sglang_states.MISUSE.get(command.name())
    if finding is not None:
        assert len(finding.trace.commands) == 1


def test_the_table_of_pools_names_commands_that_exist() -> None:
    """Every entry is about a misuse that is searched for."""
    assert set(sglang_states.MISUSE) <= {command.name() for command in MISUSE_OF_POOLS}


@pytest.fixture(scope="module")
def prober(sglang: Factory) -> Prober:
    """One that keeps its states."""
    return Prober(Plan(system=HYBRID_ROWS, factory=sglang, seed=1, misuse=True))


@pytest.mark.misuse
@pytest.mark.parametrize("command", MISUSE, ids=[command.name() for command in MISUSE])
def test_misuse_of_rows_is_met_as_the_table_says(prober: Prober, command: type[Command]) -> None:
    """Each misuse breaks the invariant of its entry, or is refused with nothing changed."""
    finding = prober.probe(command)
    found = finding.violation.number if finding else None
    assert found == sglang_hybrid.MISUSE.get(command.name())
    if finding is not None:
        assert len(finding.trace.commands) <= MOST_OF_ROWS


def test_the_table_of_rows_names_commands_that_exist() -> None:
    """Every entry is about a misuse that is searched for, or one of ours alone."""
    assert set(sglang_hybrid.MISUSE) <= {command.name() for command in MISUSE}
    assert all(name in HYBRID_ROWS.by_name for name in sglang_hybrid.OURS)


def test_nothing_else_is_found_of_rows(sglang: Factory) -> None:
    """Other use, misuse that it refuses included: rows, slots, records, maps and bytes agree."""
    plan = Plan(system=HYBRID_ROWS, factory=sglang, seed=2, misuse=True)
    tally, finding = run_steps(plan, 5000)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= 5000
