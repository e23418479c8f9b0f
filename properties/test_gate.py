"""The gate: every public method of every system is exercised by a command."""

from __future__ import annotations

import pytest

from properties.plugin import UnderTest
from properties.systems import SYSTEMS, System

# Not calls: what a snapshot is read from, the constructor's own facts, and the context manager,
# whose begin and end are commands (test_impl.py has its own tests of it); and what settles deferred
# faults, of which there are none where every fault is raised at its call.
READ_BY_THE_HARNESS = frozenset(
    {
        "available_size", "size_full", "snapshot", "audit", "free_group", "get_kvcache", "check",
        "recover", "enabled", "mem_usage", "alloc_group",
        # what adapters do with the deferred work of a first extend, and what a model reads
        "run_deferred_mamba", "mamba2_layer_cache",
        "size", "size_swa", "full_available_size", "swa_available_size", "swa_req_ring",
        "swa_ring_cost_tokens",
        # attributes of KV pools
        "num_rows", "buffers", "cpu_copy_carries_mamba", "swa_uses_full_indices", "swa_kv_pool",
        "request_window", "swa_req_ring_size", "host_pool_decls",
    }
)  # fmt: skip


#: functions that callers use beside
FUNCTIONS = frozenset({"slots_needed"})


def public(*classes: type) -> set[str]:
    """The public methods of these classes."""
    return {name for cls in classes for name in dir(cls) if not name.startswith("_")}


def exercised(*systems: System) -> set[str]:
    """The methods that commands of these systems call."""
    return {m for system in systems for command in system.commands for m in command.methods}


INTERFACES = {
    interface: interface.__name__
    for system in SYSTEMS.values()
    for interface in (system.interface, *system.siblings)
}


@pytest.mark.parametrize("interface", INTERFACES, ids=INTERFACES.get)
def test_every_public_method_has_a_command(interface: type) -> None:
    """A public method that no command of any of its systems calls is one that nothing verifies."""
    systems = [
        system for system in SYSTEMS.values() if interface in (system.interface, *system.siblings)
    ]
    assert public(interface) - exercised(*systems) - READ_BY_THE_HARNESS == set()


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=lambda system: system.name)
def test_commands_call_what_there_is(system: System) -> None:
    """A command calls a method of its system's interface, or of a class that has its own system."""
    assert (
        exercised(system) <= public(system.interface, *system.siblings, *system.beside) | FUNCTIONS
    )
    assert set(system.beside) <= set(INTERFACES)


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=lambda system: system.name)
def test_commands_have_names_of_their_own(system: System) -> None:
    """Two commands of one name would be one command to a trace."""
    assert len(system.by_name) == len(system.every)
    assert all(command.__doc__ for command in system.every)


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
        assert not left_out or not subject.factory.is_ours
