"""`fuzz mutants`: planted bugs looked for in every way, told in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fuzz import mutants, ways
from fuzz.cli import main
from fuzz.test_report import left_behind
from fuzz.viewer.campaign import state
from fuzz.ways import Found
from properties.museum import exhibits
from properties.planted import BY_SLUG, Bug
from properties.planted.scopes import SCOPES

Captured = pytest.CaptureFixture[str]
NESTED, AGAIN = "a-nested-group-is-accepted", "a-slot-may-be-freed-again"
FOUND = Found(invariant="I21", seconds=0.5, commands=3)


def finds(found: Found | None) -> Any:
    """A way that comes to this."""
    return lambda bug, budget_seconds: found


def test_a_bug_is_found_in_every_way(capsys: Captured) -> None:
    """A real bug is found by tests, campaign, museum and a walk, each in its time, and told so."""
    assert main(["mutants", "token", "--only", AGAIN, "--budget", "20"]) == 0
    out = capsys.readouterr().out
    heading, line, last = out.splitlines()
    assert heading.split() == [
        "bug", "upstream", "invariant", "tests", "fuzz", "run", "museum", "small", "scope",
        "commands",
    ]  # fmt: skip
    assert line.startswith(f"{AGAIN}  sglang #40305 +1  I4  ")
    assert line.count("I4 ") == 5
    assert line.split()[-1] == "2"
    assert last == "all 1 bugs found by tests and by fuzz run"


@pytest.mark.parametrize(
    ("tests", "run", "told"),
    [
        (FOUND, None, f"MISSED: 1 of 1: {NESTED} by fuzz run"),
        (None, FOUND, f"MISSED: 1 of 1: {NESTED} by tests"),
        (None, None, f"MISSED: 1 of 1: {NESTED} by tests and fuzz run"),
        (Found(invariant="I2", seconds=0, commands=1), FOUND, f"{NESTED} by tests"),
        (FOUND, Found(invariant="I21", seconds=0, commands=16), f"{NESTED} by fuzz run"),
    ],
    ids=["no run", "no tests", "neither", "wrong name", "too long"],
)
def test_a_missed_bug_is_named(
    tests: Found | None, run: Found | None, told: str, monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:  # fmt: skip
    """A bug that the tests or a campaign miss, or call by another name, ends in status 1."""
    monkeypatch.setattr(ways, "by_tests", finds(tests))
    monkeypatch.setattr(ways, "by_run", finds(run))
    assert main(["mutants", "--only", NESTED]) == 1
    assert told in capsys.readouterr().out.splitlines()[-1]


def test_the_table_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a campaign's log the table is what its report shows of the bugs."""
    campaign = left_behind(tmp_path / "campaign")
    monkeypatch.setattr(ways, "by_tests", finds(FOUND))
    monkeypatch.setattr(ways, "by_run", finds(None))
    out = campaign / "mutants.json"
    assert main(["mutants", "--only", f"{NESTED},{AGAIN}", "-o", str(out)]) == 1
    notes: list[str] = []
    table = state(campaign, [], {}, lambda line: None, notes)["mutants"]
    assert [row["bug"] for row in table["rows"]] == [NESTED, AGAIN]
    assert table["ways"][:2] == ["tests", "fuzz run"]
    found = table["rows"][0]["found"]
    assert found["tests"] == {"invariant": "I21", "seconds": 0.5, "commands": 3}
    assert found["fuzz run"] is None
    assert not any("mutants" in line for line in notes)


def test_an_interrupted_job_tells_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Ctrl-C ends with the table of the bugs so far."""

    def interrupted(bug: Bug, budget_seconds: float) -> Found | None:
        if bug.slug == AGAIN:
            raise KeyboardInterrupt
        return FOUND

    monkeypatch.setattr(ways, "by_tests", interrupted)
    monkeypatch.setattr(ways, "by_run", finds(FOUND))
    assert main(["mutants", "--only", f"{NESTED},{AGAIN}"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["bug", NESTED, "all"]
    assert "interrupted: 1 of 2" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pages",), ("'pages'", "rows, token, paged")),
        (("--only", "nested"), ("'nested'", "planted:a-nested-group")),
        (("rows", "--only", NESTED), ("none of these bugs", "rows")),
        (("--budget", "0"), ("--budget is 0.0", "above 0")),
        (("--budget", "nan"), ("--budget is nan", "finite")),
        (("-o", "no/such/folder.json"), ("no/such/folder.json", "written")),
    ],
    ids=str,
)
def test_unusable_arguments(
    arguments: tuple[str, ...], words: tuple[str, ...], capsys: Captured
) -> None:
    """What no job can be made of ends in status 2 and one line."""
    assert main(["mutants", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_bugs_are_chosen_by_system() -> None:
    """Systems and slugs narrow the bugs; without them it is all."""
    assert {bug.system for bug in mutants.chosen(["rows", "token"], "")} == {"rows", "token"}
    assert len(mutants.chosen([], "")) == len(BY_SLUG) == len(mutants.chosen(["all"], ""))


def test_an_exhibit_is_found_in_the_museum() -> None:
    """A trace of the museum, replayed, is its own way to find the bug."""
    exhibit = next(exhibit for exhibit in exhibits() if exhibit.bug == AGAIN)
    found = ways.in_museum(exhibit)
    assert found is not None
    assert found.invariant == exhibit.invariant
    assert found.commands == len(exhibit.trace().commands)


@pytest.mark.parametrize("slug", SCOPES)
def test_a_scope_shows_its_bug(slug: str) -> None:
    """All command sequences of the scope that a bug declares are met by the bug, by its name."""
    bug = BY_SLUG[slug]
    assert bug.scope is not None
    found = ways.in_scope(bug, bug.scope, budget_seconds=60)
    assert found is not None
    assert found.invariant in (bug.invariant, *bug.also)
