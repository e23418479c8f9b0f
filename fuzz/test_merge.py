"""Merging corpora: every feature stays, by the shortest trace that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.campaign.rounds import FRESH, opened
from fuzz.cli import main
from fuzz.merge import entries, seen, shortest
from properties.commands import Command
from properties.lockstep import Lockstep
from properties.seeded import Plan, Tally, drive
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.systems.slots import Alloc, Merge
from properties.trace import Trace, save
from properties.trace import load as load_trace

TOKEN = SYSTEMS["token"]
CONFIG = TOKEN.config(size=3, need_sort=False)
Captured = pytest.CaptureFixture[str]


def trace(*commands: Command) -> Trace:
    return Trace(system=TOKEN, config=CONFIG, commands=commands)


def test_the_shortest_stays() -> None:
    """A trace that others cover goes, one that is longer than it need be is cut."""
    short, longer = trace(Alloc(0, 1), Merge()), trace(Alloc(0, 1), Alloc(1, 1), Merge())
    found = {Path("a"): seen(longer), Path("b"): seen(short)}
    kept = shortest(found)
    assert kept == [longer.with_commands(longer.commands), short]
    waits = trace(Alloc(0, 1), Merge(), Merge(), Alloc(1, 0), Alloc(2, 1))
    found = {Path("a"): seen(waits), Path("b"): seen(short)}
    (only,) = [one for one in shortest(found) if len(one.commands) > 2]
    assert only.commands == waits.commands


def test_commands_that_do_not_apply_are_left_out() -> None:
    """Places count commands that ran; a trace is kept without the others."""
    one = seen(trace(Alloc(0, 1), Alloc(0, 1), Merge()))
    assert one.trace.commands == (Alloc(0, 1), Merge())
    assert one.places["alloc > merge"] == 2


def test_merging(tmp_path: Path, capsys: Captured) -> None:
    """Two corpora become one with all their features and less; once more changes nothing."""
    for name in ("a", "b"):
        plan = Plan(system=TOKEN, factory=load("reference"), seed=ord(name))
        for i in range(15):
            save(_drawn(plan, i), tmp_path / name / "traces")
    (tmp_path / "a" / "traces" / "token-clean-torn.json").write_text("{")
    both = features_of(tmp_path / "a") | features_of(tmp_path / "b")
    commands = commands_of([*entries(tmp_path / "a"), *entries(tmp_path / "b")])
    assert main(["merge", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out, err = capsys.readouterr()
    assert "2 corpora" in out
    assert "torn.json" in err
    assert (tmp_path / "a" / "traces" / "token-clean-torn.json").exists()
    kept = entries(tmp_path / "a")
    assert features_of(tmp_path / "a") == both
    assert commands_of(kept) < commands
    assert main(["merge", str(tmp_path / "a")]) == 0
    assert entries(tmp_path / "a") == kept


def commands_of(paths: list[Path]) -> int:
    return sum(len(load_trace(path).commands) for path in paths if "torn" not in path.name)


def features_of(folder: Path) -> set[str]:
    found: set[str] = set()
    for path in entries(folder):
        if "torn" not in path.name:
            found |= set(seen(load_trace(path)).places)
    return found


def _drawn(plan: Plan, number: int) -> Trace:
    """A trace from a seeded round."""
    runs: list[Lockstep] = []
    round_ = opened(plan, FRESH, f"{plan.seed}/{number}")

    def commands(lock: Lockstep) -> Iterator[Command]:
        runs.append(lock)
        yield from round_.commands(lock)

    drive(plan, round_.config, commands, Tally(), lambda: True)
    return Trace(system=TOKEN, config=round_.config, commands=tuple(runs[0].commands))


def test_unusable_directories(tmp_path: Path, capsys: Captured) -> None:
    """A directory that has no corpus is refused in one line."""
    assert main(["merge", str(tmp_path / "none")]) == 2
    err = capsys.readouterr().err
    assert "no corpus" in err
    assert err.count("\n") == 1
