"""SGLang 0.5.23's own allocators: the harness finds what the table says, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.commands import Command
from properties.minimize import minimize
from properties.probe import Prober
from properties.seeded import Plan, run_steps
from properties.subjects import Factory, load
from properties.subjects import sglang as adapter
from properties.subjects.sglang_known import BROKEN, KNOWN, SHARED_STORAGE, Broken, Shared
from properties.systems import SYSTEMS

pytestmark = pytest.mark.of_subject("sglang")

#: the systems of its allocators
NAMES = ("token", "paged", "state_slots")
#: misuse of calls that only ours has
OURS_ONLY = frozenset({"token_row_call"})
MISUSE = [
    (name, command)
    for name in NAMES
    for command in SYSTEMS[name].commands
    if command.misuse and command.name() not in OURS_ONLY
]
#: the most commands that a minimal trace of the table may need: to copy what a group has parked
#: a page is taken, the group opened, and the page freed
MOST_COMMANDS = 4


@pytest.fixture(scope="module")
def probers(sglang: Factory) -> dict[str, Prober]:
    """For each system one that keeps its states."""
    return {
        name: Prober(Plan(system=SYSTEMS[name], factory=sglang, seed=1, misuse=True))
        for name in NAMES
    }


@pytest.mark.misuse
@pytest.mark.parametrize(("name", "command"), MISUSE, ids=[f"{n}-{c.name()}" for n, c in MISUSE])
def test_misuse_is_met_as_the_table_says(
    probers: dict[str, Prober], name: str, command: type[Command]
) -> None:
    """Every way to commit a misuse breaks the invariant of its entry, or is refused cleanly."""
    prober = probers[name]
    entries = [e for e in KNOWN if e.command == command.name() and name in e.systems]
    methods = prober.ways(command)
    assert methods, "no way to commit this misuse was drawn"
    for method in methods:
        finding = prober.probe(command, method)
        expected = entries[0].expected(name, method) if entries else None
        assert (finding.violation.number if finding else None) == expected, method
        if finding is not None:
            assert len(finding.trace.commands) <= MOST_COMMANDS, finding.trace.dumps()


def test_the_table_names_commands_that_exist() -> None:
    """Every entry of the table is about a command that the search goes through."""
    searched = {(name, command.name()) for name, command in MISUSE}
    listed = [(system, entry.command) for entry in KNOWN for system in entry.systems]
    assert set(listed) <= searched
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("entry", SHARED_STORAGE, ids=lambda e: f"{e.system}-{e.method}")
def test_shared_storage_is_found(sglang: Factory, entry: Shared) -> None:
    """Legal use without a shield breaks I54 by each call of the table, in at most 3 commands."""
    open_factory = replace(sglang, make=lambda s, c: adapter.make(s, c, exposed=entry.method))
    plan = Plan(system=SYSTEMS[entry.system], factory=open_factory, seed=1)
    _, finding = run_steps(plan, 5000)
    assert finding is not None
    assert finding.violation.number == "I54"
    minimal = minimize(finding.trace, open_factory)
    assert len(minimal.commands) <= MOST_COMMANDS
    assert entry.method in minimal.commands[-1].methods


@pytest.mark.parametrize("entry", BROKEN, ids=lambda e: f"{e.system}-{e.method}")
def test_legal_use_breaks_what_the_table_says(sglang: Factory, entry: Broken) -> None:
    """Without a shield, legal use alone comes to each call of the table, in a few commands."""
    open_factory = replace(sglang, make=lambda s, c: adapter.make(s, c, exposed=entry.method))
    _, finding = run_steps(Plan(system=SYSTEMS[entry.system], factory=open_factory, seed=1), 5000)
    assert finding is not None
    assert finding.violation.number == entry.invariant
    minimal = minimize(finding.trace, open_factory)
    assert len(minimal.commands) <= MOST_COMMANDS
    assert entry.method in minimal.commands[-1].methods


@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_is_found(sglang: Factory, name: str) -> None:
    """Legal use and the misuse that SGLang refuses: the same slots and lists as the reference."""
    plan = Plan(system=SYSTEMS[name], factory=sglang, seed=2, misuse=True)
    tally, finding = run_steps(plan, 10_000)
    assert finding is None, str(finding and finding.violation)
    assert tally.steps >= 10_000


def test_slots_and_lists_equal_ours(sglang: Factory) -> None:
    """On SGLang's configs the same seeded run, equal to the reference throughout, is ours too."""
    tallies = []
    for factory in (sglang, load("impl")):
        for name in NAMES:
            plan = Plan(
                system=SYSTEMS[name],
                factory=factory,
                seed=3,
                level="exact",
                misuse=False,
                limits=sglang.limits.get(name, {}),
            )
            tally, finding = run_steps(plan, 5000)
            assert finding is None, str(finding and finding.violation)
            tallies.append(tally.outcomes)
    assert tallies[: len(NAMES)] == tallies[len(NAMES) :]
