"""SGLang 0.5.23's own pools of KV: what they hold is what ours hold, byte for byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.commands import Command
from properties.minimize import minimize
from properties.probe import Prober
from properties.seeded import Plan, run_steps
from properties.subjects import Factory
from properties.subjects import sglang as adapter
from properties.subjects.sglang_kv import FAMILIES, FOUND, MISUSE
from properties.systems import SYSTEMS
from properties.systems.kv_pools import KINDS

pytestmark = pytest.mark.of_subject("sglang")

KV_POOLS = SYSTEMS["kv_pools"]
#: as many as make a request with windows for some of its slots, and move them
MOST_COMMANDS = 6
STEPS = 1500


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: KINDS[family])
def test_nothing_is_found(sglang: Factory, family: int) -> None:
    """Writes, moves and round trips agree for values in range, outside of the first page."""
    limits = {**sglang.limits["kv_pools"], "family": (family,)}
    plan = Plan(system=KV_POOLS, factory=sglang, seed=2, misuse=False, limits=limits)
    tally, finding = run_steps(plan, STEPS)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= STEPS


@pytest.mark.parametrize("method", FOUND)
def test_what_the_table_says_is_found(sglang: Factory, method: str) -> None:
    """Where nothing is mended, legal use breaks the invariant of each entry in a few commands."""
    number, kind, _ = FOUND[method]
    exposed = replace(sglang, make=lambda s, c: adapter.make(s, c, exposed=method))
    small = {"pages": (2, 3), "page_size": (1,), "layers": (1,), "dim": (1,), "v_dim": (1,)}
    limits = {**sglang.limits["kv_pools"], **small, "family": (KINDS.index(kind),)}
    plan = Plan(system=KV_POOLS, factory=exposed, seed=2, misuse=False, limits=limits)
    _, finding = run_steps(plan, 4000)
    assert finding is not None
    assert finding.violation.number == number
    minimal = minimize(finding.trace, exposed)
    assert len(minimal.commands) <= MOST_COMMANDS, minimal.dumps()
    assert method in minimal.commands[-1].methods


MISUSED = [command for command in KV_POOLS.commands if command.misuse]
#: misuse of what SGLang's pools on a CPU haven't got: index keys
OURS_ONLY = frozenset({"no_index_keys"})


@pytest.fixture(scope="module")
def prober(sglang: Factory) -> Prober:
    """One that keeps its states."""
    factory = replace(sglang, known=frozenset())
    return Prober(Plan(system=KV_POOLS, factory=factory, seed=1, misuse=True))


@pytest.mark.misuse
@pytest.mark.parametrize("command", MISUSED, ids=[command.name() for command in MISUSED])
def test_misuse_is_met_as_the_table_says(prober: Prober, command: type[Command]) -> None:
    """Each misuse breaks the invariant of its entry at once, or is refused with no byte changed."""
    assert bool(prober.ways(command)) == (command.name() not in OURS_ONLY)
    finding = prober.probe(command)
    found = finding.violation.number if finding else None
    assert found == MISUSE.get(command.name())
    if finding is not None:
        assert len(finding.trace.commands) == 1


def test_the_table_names_commands_that_exist() -> None:
    """Every entry is about a misuse that is searched for."""
    assert set(MISUSE) <= {command.name() for command in MISUSED} - OURS_ONLY
