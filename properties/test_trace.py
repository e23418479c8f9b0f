"""Traces as data: they survive JSON, disk and edits, and break the same invariant when replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from properties import trace as traces
from properties.choices import Seeded
from properties.commands import Command
from properties.lockstep import Lockstep
from properties.minimize import minimize
from properties.seeded import Picker
from properties.subjects import impl
from properties.systems import PROMPT, SYSTEMS
from properties.systems.releases import Free
from properties.systems.slots import Alloc
from properties.test_minimize import found, lossy, nesting, of, resetting, timid
from properties.trace import Replay, Trace, load, parse, save, versions

NAMES = pytest.mark.parametrize("name", PROMPT)


# Few states allow these; their fields are those of others.
RARE = {
    "free_parked", "continue_twice_in_rows", "half_page_gone", "half_page_of_another",
    "begin_undrained", "transfer_to_busy_device",
    "several_wrong_entries", "segment_gone", "segment_of_another", "unbound_segment", "free_named",
}  # fmt: skip


def random_trace(name: str, seed: int, length: int = 60) -> Trace:
    """A run of commands that our own allocators pass: by turns by weight, and all kinds alike."""
    system, choices = SYSTEMS[name], Seeded(f"traces/{name}/{seed}")
    lock = Lockstep(system, system.config.draw(choices, {}), impl.build)
    by_weight = Picker(system.commands)
    alike = Picker(system.commands, weights=dict.fromkeys(system.commands, 1))
    for number in range(length):
        command = (alike if number % 2 else by_weight).draw(choices, lock.model)
        assert command is not None
        lock.step(command)
    words = {"level": choices.pick(("exact", "renamed")), "subject": choices.pick(("impl", "é:x"))}
    return Trace(
        system=system, config=lock.config, commands=tuple(lock.commands),
        invariant=choices.pick((None, "I1", "I71")), versions=versions(), **words,
    )  # fmt: skip


# ---- JSON --------------------


@NAMES
def test_round_trip(name: str, tmp_path: Path) -> None:
    """A trace is the same after JSON and after disk, whatever commands it holds."""
    kinds: set[type[Command]] = set()
    for seed in range(40):
        trace = random_trace(name, seed)
        assert parse(json.loads(trace.dumps())) == trace
        assert load(save(trace, tmp_path)) == trace
        kinds |= {type(command) for command in trace.commands}
    missing = {kind.name() for kind in set(SYSTEMS[name].commands) - kinds}
    assert missing <= RARE, f"not a round trip of all commands: {missing}"


@NAMES
def test_traces_read_and_diff_well(name: str) -> None:
    """Each command has a line of its own, and an edited line changes that command alone."""
    trace = random_trace(name, 0)
    lines = trace.dumps().splitlines()
    assert sum('"command":' in line for line in lines) == len(trace.commands)
    first = next(i for i, line in enumerate(lines) if '"command":' in line)
    edited = parse(json.loads("\n".join(lines[:first] + lines[first + 1 :])))
    assert edited == trace.with_commands(trace.commands[1:])


def test_empty_trace(tmp_path: Path) -> None:
    """A trace without commands is a trace: what broke at construction has none."""
    trace = replace(random_trace("token", 0), commands=())
    assert load(save(trace, tmp_path)) == trace
    assert Replay(trace, impl.build).run() is None


def test_older_schema_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of an earlier schema is still read when the schema has moved on."""
    trace = random_trace("rows", 1)
    data = json.loads(trace.dumps())
    assert data["schema"] == traces.SCHEMA
    monkeypatch.setattr(traces, "SCHEMA", traces.SCHEMA + 2)
    assert parse(data) == trace


# ---- disk --------------------


def test_saving_is_content_named(tmp_path: Path) -> None:
    """Equal traces have one file, others have another; names say the system and the invariant."""
    first, second = random_trace("token", 0), random_trace("token", 1)
    paths = [save(trace, tmp_path) for trace in (first, second, first)]
    assert paths[0] == paths[2] != paths[1]
    assert sorted(tmp_path.iterdir()) == sorted(set(paths))
    broken = save(replace(first, invariant="I34"), tmp_path)
    assert broken.name.startswith("token-I34-")
    assert broken.suffix == ".json"


def test_saving_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that dies before its end leaves no trace file, and an older one as it was."""
    trace = random_trace("token", 2)
    path = save(trace, tmp_path)
    before = path.read_text()

    def dies(self: Path, target: Any) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", dies)
    for again in (trace, random_trace("token", 3)):
        with pytest.raises(OSError, match="no space"):
            save(again, tmp_path)
    assert list(tmp_path.glob("*.json")) == [path]
    assert path.read_text() == before


def test_saving_makes_its_folder(tmp_path: Path) -> None:
    """Findings go to a folder that need not exist yet."""
    path = save(random_trace("token", 0), tmp_path / "a" / "b")
    assert path.parent == tmp_path / "a" / "b"
    assert path.exists()


# ---- replay --------------------


@NAMES
def test_any_subsequence_replays(name: str) -> None:
    """Any part of a trace is a trace: what no longer applies is skipped, the rest passes."""
    for seed in range(8):
        trace, choices = random_trace(name, seed), Seeded(f"parts/{seed}")
        commands = list(trace.commands)
        whole = Replay(replace(trace, level="exact"), impl.build)
        assert whole.run() is None
        assert whole.executed == commands
        for level in ("exact", "renamed"):
            part = choices.subset(commands, 0, len(commands))
            replay = Replay(replace(trace, level=level).with_commands(part), impl.build)
            assert replay.run() is None, [str(command) for command in part]
            assert is_subsequence(replay.executed, part)


@NAMES
def test_any_order_and_any_config_replays(name: str) -> None:
    """Commands shuffled, doubled, and run on another config still replay without an error."""
    for seed in range(8):
        trace, choices = random_trace(name, seed), Seeded(f"orders/{seed}")
        config = SYSTEMS[name].config.draw(choices, {})
        commands = [choices.pick(trace.commands) for _ in trace.commands]
        replay = Replay(
            replace(trace, level="exact", config=config).with_commands(commands), impl.build
        )
        assert replay.run() is None, [str(command) for command in commands]


def is_subsequence(part: list[Command], whole: list[Command]) -> bool:
    left = iter(whole)
    return all(any(each == other for other in left) for each in part)


def test_steps_tell_every_command() -> None:
    """Iterating over a replay gives each executed command with its outcome and both states."""
    trace = random_trace("paged", 3)
    steps = list(Replay(replace(trace, level="exact"), impl.build).steps())
    assert [step.command for step in steps] == list(trace.commands)
    assert {step.outcome.kind for step in steps if step.outcome} >= {"served", "refused"}
    for earlier, later in pairwise(steps):
        assert earlier.after == later.before


PLANTED = [("token", lossy), ("paged", timid), ("token", nesting), ("rows", resetting)]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_saved_finding_replays(name: str, plant: Any, tmp_path: Path) -> None:
    """A finding, and its minimal trace, break the same invariant after a trip over the disk."""
    factory = of(plant, misuse=plant is nesting)
    trace = found(name, factory)
    for each in (trace, minimize(trace, factory)):
        violation = Replay(load(save(each, tmp_path)), factory.make).run()
        assert violation is not None
        assert violation.number == trace.invariant
        assert Replay(each, impl.build).run() is None


def test_construction_that_breaks_is_a_violation() -> None:
    """What is wrong from the start ends a replay before its first command."""

    def wrong(system: str, config: Any) -> Any:
        subject = impl.make(system, config)
        subject.target.alloc(1)
        return subject

    trace = Trace(
        system=SYSTEMS["token"], config=SYSTEMS["token"].config(size=3, need_sort=False),
        commands=(),
    )  # fmt: skip
    replay = Replay(trace, wrong)
    assert replay.run() is not None
    assert replay.executed == []


def test_replay_judges_at_the_level_of_its_trace() -> None:
    """A pool in another order breaks I71 in an exact trace and nothing in a renamed one."""

    class Shy(impl.ImplSubject):
        """Doesn't show what was issued: that was before the run."""

        def observe(self) -> dict[str, Any]:
            return {key: value for key, value in super().observe().items() if key != "issued"}

    def backwards(system: str, config: Any) -> Any:
        target = impl.make(system, config, device="cpu").target
        target.free(target.alloc(config.size).flip(0))
        return Shy(target, "cpu")

    trace = Trace(
        system=SYSTEMS["token"],
        config=SYSTEMS["token"].config(size=3, need_sort=False),
        commands=(Alloc(0, 2), Free(((0, 0),), "reversed"), Alloc(1, 3)),
    )
    violation = Replay(trace, backwards).run()
    assert violation is not None
    assert violation.number == "I71"
    assert Replay(replace(trace, level="renamed"), backwards).run() is None
