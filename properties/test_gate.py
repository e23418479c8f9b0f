"""The gate: every public method of every system is exercised by a command."""

from __future__ import annotations

import pytest

from properties.plugin import UnderTest
from properties.systems import SYSTEMS, System

# Not calls: what a snapshot is read from, the constructor's own facts, and the context manager,
# whose begin and end are commands (test_impl.py has its own tests of it).
READ_BY_THE_HARNESS = frozenset(
    {"available_size", "size_full", "snapshot", "audit", "free_group", "get_kvcache"}
)


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=lambda system: system.name)
def test_every_public_method_has_a_command(system: System) -> None:
    """A public method that no command calls would be a method that nothing verifies."""
    public = {name for name in dir(system.interface) if not name.startswith("_")}
    exercised = {method for command in system.commands for method in command.methods}
    assert public - exercised - READ_BY_THE_HARNESS == set()
    assert exercised <= public, "a command calls what the interface doesn't have"


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=lambda system: system.name)
def test_commands_have_names_of_their_own(system: System) -> None:
    """Two commands of one name would be one command to a trace."""
    assert len(system.by_name) == len(system.commands)
    assert all(command.__doc__ for command in system.commands)


def test_what_the_subject_leaves_out_is_listed(
    subject: UnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    """A subject may lack methods; which ones is printed, and ours lacks none."""
    for system in SYSTEMS.values():
        if not subject.factory.has(system.name):
            continue
        left_out = subject.left_out(system.name)
        with capsys.disabled():
            if left_out:
                print(f"\n{subject.factory.name}/{system.name} leaves out: {', '.join(left_out)}")
        assert not left_out or subject.factory.name != "impl"
