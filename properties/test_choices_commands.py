"""Every command, drawn by seed and by enumeration: it applies, survives JSON, and passes."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from properties.choices import Every, Seeded
from properties.commands import Command, from_json
from properties.lockstep import Lockstep
from properties.seeded import Picker
from properties.subjects import impl
from properties.subjects.swa import LIFE
from properties.systems import PROMPT, SYSTEMS
from properties.systems.engine import EngineConfig
from properties.systems.engine_commands import Admit as AdmitRequest
from properties.systems.engine_host import BeginResume, RetractToHost
from properties.systems.growth import Extend
from properties.systems.host_tier import HostTierConfig
from properties.systems.host_tier_commands import Alloc as AllocHost
from properties.systems.host_tier_transfers import Save
from properties.systems.hybrid_rows import HybridRowsConfig
from properties.systems.hybrid_rows_commands import Admit as AdmitHybrid
from properties.systems.hybrid_rows_commands import FirstExtend, Reserve
from properties.systems.kv_pools import KINDS, PACKED, KVPoolsConfig
from properties.systems.kv_pools_commands import Write
from properties.systems.paged import PagedConfig
from properties.systems.paged_rows import Extend as ExtendBeside
from properties.systems.paged_rows import PagedRowsConfig
from properties.systems.paged_rows_growth import ExtendRows
from properties.systems.paged_rows_lines import Admit
from properties.systems.rows import RowsConfig
from properties.systems.state_pools import StatePoolsConfig
from properties.systems.state_pools_commands import Admit as AdmitState
from properties.systems.state_slots import StateSlotsConfig
from properties.systems.swa import SWAConfig
from properties.systems.swa_growth import Extend as ExtendPair
from properties.systems.token import TokenConfig

OFTEN = 200
ENOUGH_STATES = 25
# Few states that legal commands alone lead to allow these: a few draws are enough. The last one
# takes more commands than are run here; the marks of a long run see to it.
SELDOM = {
    "half_page_of_another": 8,
    "segment_of_another": 8,
    "unbound_segment": 8,
    "abort": 8,
    "use_lost": 8,
    "continue_twice_in_rows": 0,
    "load_of_written": 8,
    "transfer_to_busy_device": 8,
    "begin_undrained": 0,
    "drain": 8,
}


def often(kind: type[Command]) -> int:
    """How often a command must have been drawn."""
    return SELDOM.get(kind.name(), OFTEN)


@pytest.mark.parametrize("name", PROMPT)
def test_every_command_can_be_drawn(name: str) -> None:
    """Each command drawn 200 times applies in its state, survives JSON, and makes a call."""
    system, known = SYSTEMS[name], SYSTEMS[name].by_name
    drawn: Counter[type[Command]] = Counter()
    for seed in range(1000):
        choices = Seeded(f"draws/{name}/{seed}")
        lock = Lockstep(system, system.config.draw(choices, {}), impl.build)
        picker = Picker([kind for kind in system.commands if not kind.misuse])
        for _ in range(choices.integer(0, 20)):
            if (step := picker.draw(choices, lock.model)) is not None:
                lock.step(step)
        for kind in system.commands:
            if drawn[kind] < OFTEN and kind.enabled(lock.model):
                for _ in range(OFTEN // ENOUGH_STATES):
                    command = kind.draw(choices, lock.model)
                    assert command.applies(lock.model), str(command)
                    data = json.loads(json.dumps(command.to_json()))
                    assert from_json(data, known, "here") == command
                    call = command.call(lock.model, lock.model.side)
                    # what takes several calls is one to the adapters
                    assert call.method in {*kind.methods, *LIFE}, str(command)
                    drawn[kind] += 1
        if all(drawn[kind] >= often(kind) for kind in system.commands):
            return
    rare = [kind.name() for kind in system.commands if drawn[kind] < often(kind)]
    pytest.fail(f"never enabled often enough: {rare}")


# An extend of up to four requests has millions of paths, though none of its choices is large.
WIDE: frozenset[type[Command]] = frozenset({Extend, ExtendBeside, ExtendPair, ExtendRows})
# No other command has as many paths on a pool of two pages.
LARGEST_WALK = 1000
SOME = 20
# So many steps of a kind are run, first ones and second ones, evenly over all there are.
MOST_FIRSTS, MOST_SECONDS = 8, 2
# These need more commands before them: something taken and given back, or copied.
THIRD = frozenset(
    {
        "free_parked", "free_again", "stale_write", "half_page_gone", "half_page_of_another",
        "continue_twice_in_rows", "segment_gone", "segment_of_another", "abort", "adopt",
        "free_named", "layer_twice", "use_over", "begin_undrained", "next_turn", "close_session",
    }
)  # fmt: skip
# What a walk begins behind, where nothing can be done without it.
OPENING: dict[str, Callable[[Any], tuple[Command, ...]]] = {
    "paged_rows": lambda config: (Admit(tuple(range(config.rows))),),
    "overlap": lambda config: (Admit(tuple(range(config.rows))),),
    "state_pools": lambda config: (AdmitState((0,), 0),),
    "kv_pools": lambda config: (Write(0, 2, 0, 0, 0, 0, False),),
    "host_tier": lambda config: (AllocHost(0, 1), AllocHost(1, 1), Save(0, 0)),
    "hybrid_rows": lambda config: (AdmitHybrid((0,)), FirstExtend((0,)), Reserve(1)),
    "engine": lambda config: (
        AdmitRequest(0, 1),
        RetractToHost(0),
        BeginResume(0),
        AdmitRequest(1, 1),
    ),
}
# What decides what can follow, and neither side shows: held by actors, sessions, or on the host.
APART = (
    "taken",
    "copied",
    "parked",
    "saved",
    "sessions",
    "host",
    "transfers",
    "over",
    "prompts",
    "kept",
)
TINY: dict[str, list[Any]] = {
    "rows": [RowsConfig(size=1, width=1), RowsConfig(size=2, width=1)],
    "token": [TokenConfig(size=n, need_sort=sort) for n in (1, 2) for sort in (False, True)],
    "paged": [
        PagedConfig(page_size=size, num_pages=pages, spare=0, need_sort=sort)
        for size, pages, sort in ((1, 2, False), (2, 1, True), (2, 2, False))
    ],
    "paged_rows": [
        PagedRowsConfig(
            page_size=size, num_pages=pages, spare=0, need_sort=sort, rows=rows, width=3
        )
        for size, pages, sort, rows in ((1, 1, True, 1), (2, 2, False, 2))
    ],
}
TINY["swa"] = [
    SWAConfig(page_size=size, num_pages=pages, num_windows=windows, spare=0, need_sort=sort, ring=0)
    for size, pages, windows, sort in ((1, 2, 1, False), (2, 2, 2, True))
]
TINY["overlap"] = TINY["paged_rows"]
TINY["state_pools"] = [
    StatePoolsConfig(
        size=size, layers=1, convs=1, window=2, channels=1, order=0, temporal=1, draft=draft,
        rows=1, tree=False, short_conv=short_conv, ngram=ngram, narrow=False,
    )
    for size, draft, short_conv, ngram in ((2, 0, 0, 0), (1, 1, 1, 1))
]  # fmt: skip
TINY["kv_pools"] = [
    KVPoolsConfig(
        family=KINDS.index(kind), stored=stored, page_size=1, pages=2, start=0, heads=1,
        # the second layer of an index has no keys
        layers=2 if kind == "dsa" else 1, dim=1, v_dim=1, marked=marked, tame=False,
    )
    for kind, stored, marked in (
        ("mha", 1, True), ("k_only", 0, False), ("mla", 2, False), ("dsa", 3, False),
        ("packed", PACKED, False), ("hybrid", 4, False), ("swa", 5, False),
    )
]  # fmt: skip
TINY["hybrid_rows"] = [
    HybridRowsConfig(
        size=size, mamba_size=slots, places=places, lazy=lazy, short_conv=False, ngram=False
    )
    for size, slots, places, lazy in (
        (1, 2, 0, False),
        (1, 3, 1, False),
        (2, 4, 2, False),
        (1, 4, 2, True),
    )
]
TINY["host_tier"] = [
    HostTierConfig(
        kind=kind, page_size=size, pages=2, device_pages=pages, layers=layers, stride=1,
        start=0, width=1, virtual=virtual,
    )
    for kind, size, pages, layers, virtual in ((0, 2, 2, 1, False), (1, 1, 2, 2, True))
]  # fmt: skip
TINY["engine"] = [
    EngineConfig(
        family=family, stored=1, page_size=size, pages=3, rows=3, width=2, layers=1, heads=1, dim=2,
        chunk=1, host_pages=2, need_sort=False, captured=family == 0, by_rows=family == 1,
    )
    for family, size in ((0, 1), (1, 2))
]  # fmt: skip
TINY["state_slots"] = [StateSlotsConfig(size=n) for n in (1, 2, 3)]


def every(kind: type[Command], lock: Lockstep) -> list[Command]:
    """All that the command's own draw can make in this state; of a wide one some, by a seed."""
    if not kind.enabled(lock.model):
        return []
    if kind in WIDE:
        choices = Seeded(f"wide/{len(lock.commands)}")
        return [kind.draw(choices, lock.model) for _ in range(SOME)]
    paths = Every(kind.name()).walk(lambda choices: kind.draw(choices, lock.model))
    found = list(itertools.islice(paths, LARGEST_WALK + 1))
    assert len(found) <= LARGEST_WALK, f"{kind.name()}: wider than an enumeration can walk"
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("name", PROMPT)
def test_every_walk_of_two_steps(name: str) -> None:
    """On pools of one or two pages every command, then every command, passes in lockstep."""
    system = SYSTEMS[name]
    walked: set[type[Command]] = set()
    for config in TINY[name]:
        states: set[str] = set()
        opening = OPENING[name](config) if name in OPENING else ()
        start = replayed(system, config, *opening)
        firsts = [spread(every(kind, start), MOST_FIRSTS) for kind in system.commands]
        for first in itertools.chain.from_iterable(firsts):
            lock = replayed(system, config, *opening, first)
            side = lock.model.side
            held = [getattr(side, what, None) for what in APART]
            state = repr((lock.states, lock.model.names, held))
            if state in states:
                continue  # a refusal, or another way to the same state
            states.add(state)
            for kind in system.commands:
                seconds = every(kind, lock)
                assert all(command.applies(lock.model) for command in seconds)
                for second in spread(seconds, MOST_SECONDS):
                    replayed(system, config, *opening, first, second)
                    walked.add(kind)
    left = {kind.name() for kind in set(system.commands) - walked}
    assert left <= THIRD, f"not reached in two steps: {left}"


def spread(commands: list[Command], most: int) -> list[Command]:
    """At most so many of them, evenly over all there are."""
    return commands[:: -(-len(commands) // most) or 1][:most]


def replayed(system: Any, config: Any, *commands: Command) -> Lockstep:
    lock = Lockstep(system, config, impl.build)
    for command in commands:
        lock.step(command)
    return lock
