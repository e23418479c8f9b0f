"""Traces that end their process, or don't end: run in a child, told, made short."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import sandbox
from fuzz.cli import main
from properties.minimize import minimize
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.systems.slots import Alloc, Clear, GroupBegin, GroupEnd, Merge
from properties.trace import Trace, save

TOKEN = SYSTEMS["token"]
COMMANDS = (Alloc(0, 1), GroupBegin(), GroupEnd(), Merge(), GroupBegin(), Clear())


def trace(invariant: str, subject: str) -> Trace:
    return Trace(
        system=TOKEN,
        config=TOKEN.config(size=4, need_sort=False),
        commands=COMMANDS,
        subject=subject,
        invariant=invariant,
    )


@pytest.mark.parametrize(
    ("subject", "number", "word"),
    [
        ("killed", "died", "SIGSEGV"),
        ("quits", "died", "status 3"),
        ("sleeps", "hung", "0.3 s"),
    ],
)
def test_fates(subject: str, number: str, word: str) -> None:
    """A child that ends or hangs is told with the command that did it, and made short."""
    factory = load(f"fuzz.deadly:{subject}")
    given = trace(number, factory.name)
    found = sandbox.fate(given, factory, 0.3)
    assert (found.number, found.last) == (number, 4)
    assert word in found.message
    short = minimize(given, factory, judge=sandbox.judge(factory, 0.3))
    assert [command.name() for command in short.commands] == [
        "group_begin",
        *(["group_end"] if len(short.commands) == 3 else ["clear"]),
        "group_begin",
    ]


def test_ordinary_fates() -> None:
    """A child that lives tells a violation, or that there is none."""
    assert sandbox.fate(trace("died", "impl"), load("impl"), 30).number is None
    canary = load("fuzz.campaign.selftest:canary")
    found = sandbox.fate(trace("died", canary.name), canary, 30)
    assert found.number == "I2"
    assert found.message.startswith("I2 (")


def test_replay_and_minimize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line runs such a trace without being ended by it."""
    path = save(trace("died", "fuzz.deadly:quits"), tmp_path)
    subject = ("--subject", "fuzz.deadly:quits")
    assert main(["replay", str(path), *subject]) == 1
    assert "status 3" in capsys.readouterr().out
    assert main(["minimize", str(path), *subject, "-o", str(tmp_path / "short.json")]) == 1
    assert "group_begin" in capsys.readouterr().out
    assert main(["replay", str(tmp_path / "short.json"), *subject]) == 1
    assert main(["replay", str(path), "--subject", "impl"]) == 0
    assert main(["minimize", str(path), "--subject", "impl"]) == 0
    assert "no longer fails" in capsys.readouterr().out
