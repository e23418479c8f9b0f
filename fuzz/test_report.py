"""The report of a campaign: its runs, marks, findings and notes; cut-off logs; bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fuzz.cli import main
from fuzz.report import NAME
from fuzz.test_show import MARKUP, TOKEN, WRONG_PAGE, paged, refused
from fuzz.viewer import log
from fuzz.viewer.reached import NEVER, reached
from properties.marks import ANY
from properties.systems.growth import Extend
from properties.systems.slots import Alloc, GroupBegin, Merge
from properties.trace import Trace, save

Captured = pytest.CaptureFixture[str]
FOUND = {"seconds": 0.5, "invariant": "I6", "commands": 2}
MUTANTS = [
    {"bug": WRONG_PAGE, "upstream": ["x #1"], "invariant": "I6", "found": {"tests": FOUND}},
    {"bug": MARKUP, "upstream": "", "invariant": "I6", "found": {"tests": None, "fuzz run": FOUND}},
]


def interval(seconds: float, steps: int, features: int, new: int) -> dict[str, Any]:
    """A reading of a campaign of the token system."""
    return {
        "time": 1_800_000_000 + seconds,
        "event": "interval",
        "seconds": seconds,
        "steps": steps,
        "features": {"token": features},
        "entries": {"token": 1},
        "lanes": {"token of impl": {"steps": steps, "seconds": seconds, "new": new}},
    }


EVENTS = (
    interval(10, 1000, 50, 50),
    interval(20, 3000, 70, 70),
    {"event": "error", "error": "Traceback\nValueError: no"},
    {"event": "end", "verdict": "clean: 3,000 steps"},
    interval(10, 500, 40, 5),
)


def left_behind(root: Path) -> Path:
    """What a campaign leaves behind, some of it torn."""
    config = TOKEN.config(size=2, need_sort=False)
    clean = Trace(system=TOKEN, config=config, commands=(Alloc(0, 1), GroupBegin(), Merge()))
    save(clean, root / "traces")
    found = paged(Extend(((0, 3),), False, False), subject=f"planted:{WRONG_PAGE}", invariant="I6")
    save(found, root / "findings")
    save(paged(Alloc(0, 1), subject=MARKUP, invariant="I2"), root / "as-found")
    (root / "findings" / "torn.json").write_text('{"schema": 1, ', encoding="utf-8")
    lines = [json.dumps(event) for event in EVENTS]
    lines += ['{"event": "interval", "secon', "[1]", '{"event": "interval", "seconds": "x"}']
    (root / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (root / "mutants.json").write_text(json.dumps(MUTANTS), encoding="utf-8")
    return root


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A directory of one."""
    return left_behind(tmp_path / "campaign")


def data_of(path: Path) -> dict[str, Any]:
    """The data in a page."""
    text = path.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*)</script>', text)
    data: dict[str, Any] = json.loads(found)
    return data


def test_the_log_is_read(campaign: Path) -> None:
    """Runs go on where the one before ended; lines that can't be read are counted."""
    told = log.read(campaign / "log.jsonl")
    assert [point["at"] for point in told.points] == [10, 20, 30]
    assert [point["rate"] for point in told.points] == [100, 200, 50]
    assert [point["features"] for point in told.points] == [{"token": n} for n in (50, 70, 40)]
    assert told.breaks == [20]
    assert told.lanes == {"token of impl": {"steps": 3500, "seconds": 30, "new": 75}}
    assert (told.steps, told.seconds, told.verdict) == (3500, 30, ""), "the last run has no end"
    assert told.troubles == {"error: ValueError: no": 1}
    assert told.unread == 2


def test_a_long_log_is_thinned() -> None:
    """Of a long night every so-manieth reading stays, the last one among them."""
    whole = log.Log(points=[{"at": at} for at in range(10 * log.MOST_POINTS + 1)])
    kept = whole.to_json()["points"]
    assert log.MOST_POINTS / 2 < len(kept) <= log.MOST_POINTS
    assert kept[-1] == whole.points[-1]
    assert log.numbers({"a": 1e300, "b": float("nan"), "c": 10**400, "d": "x", "e": 2}) == {
        "a": 0, "b": 0, "c": 0, "d": 0, "e": 2,
    }  # fmt: skip


def test_marks_are_counted(campaign: Path) -> None:
    """Each command with its outcomes is counted in each situation; what can't be is no gap."""
    notes: list[str] = []
    (torn := campaign / "traces" / "token-clean-0.json").write_text("{")
    paths = sorted((campaign / "traces").iterdir())
    (marks,), traces = reached(paths, lambda line: None, notes.append)
    assert len(traces) == marks["traces"] == 1
    assert str(torn) in notes[0]
    assert marks["situations"][0] == ANY
    rows = {(name, outcome): counts for name, outcome, *counts in marks["rows"]}
    assert rows["alloc", "served"][0] == 1
    assert rows["alloc", "short"][0] == 0
    assert rows["alloc", "served"][marks["situations"].index("one short")] == NEVER
    assert rows["merge", "served"][marks["situations"].index("inside a group")] == 1
    counted = [count for counts in rows.values() for count in counts if count != NEVER]
    assert (marks["required"], marks["reached"]) == (len(counted), sum(map(bool, counted)))
    assert reached(paths, lambda line: None, notes.append, -1.0) == ([], [])
    assert notes[-1].startswith("0 of 2 traces")


def test_the_page_of_a_campaign(campaign: Path, capsys: Captured) -> None:
    """It holds all that the directory does, and each finding leads to a page of its own."""
    assert main(["report", str(campaign)]) == 0
    assert "3,500 steps, 2 findings, 2 notes" in capsys.readouterr().out
    data = data_of(campaign / NAME)
    first, second = data["findings"]
    assert (first["invariant"], first["minimised"], first["count"]) == ("I6", True, 1)
    assert (second["subject"], second["minimised"]) == (MARKUP, False)
    shown, alone = (data_of(campaign / each["link"]) for each in (first, second))
    assert shown["violation"]["number"] == "I6"
    assert "code of your own" in alone["note"], "it is never run because a file names it"
    assert data["corpus"] == {"token": 1}
    assert data["mutants"]["ways"] == ["tests", "fuzz run"]
    assert data["mutants"]["rows"][1]["found"]["tests"] is None
    assert any("torn.json" in note for note in data["notes"])
    assert any(note.startswith("2 lines") for note in data["notes"])
    assert dict(data["versions"])["python"]


def test_links_lead_from_where_the_page_is(campaign: Path, tmp_path: Path) -> None:
    """With -o the page lies elsewhere, and its links lead to the findings all the same."""
    out = tmp_path / "a folder" / "out.html"
    out.parent.mkdir()
    assert main(["report", str(campaign), "-o", str(out)]) == 0
    for finding in data_of(out)["findings"]:
        assert finding["link"].startswith("./../campaign/")
        assert (out.parent / finding["link"]).is_file()


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"bug": 1, "found": {"a": 1}}]'])
def test_other_files_are_left_out(text: str, campaign: Path) -> None:
    """What calls itself a table of planted bugs and is none is told, and the page is written."""
    (campaign / "mutants.json").write_text(text)
    (campaign / "log.jsonl").unlink()
    assert main(["report", str(campaign)]) == 0
    data = data_of(campaign / NAME)
    assert not data["mutants"] or data["mutants"]["rows"] == []
    assert text == "{}" or any("mutants.json" in note for note in data["notes"])
    assert data["log"]["points"] == []


@pytest.mark.parametrize("name", ["absent", "file", "empty"])
def test_no_campaign(name: str, tmp_path: Path, capsys: Captured) -> None:
    """A directory without a campaign is one line and status 2."""
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert "no campaign" in refused(capsys, "report", str(tmp_path / name))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "file"]


def test_a_page_that_cant_be_written(campaign: Path, capsys: Captured) -> None:
    """So is one that can't be written where it should be."""
    line = refused(capsys, "report", str(campaign), "-o", str(campaign / "no" / "a.html"))
    assert "can't be written" in line
