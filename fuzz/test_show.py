"""The viewer: owners, places, where the sides part; foreign text; bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import properties
from fuzz.cli import main
from fuzz.viewer.frames import EXISTS, FREE, MOST_PAGES, OWNED, PARKED, STAGED, shown
from fuzz.viewer.page import embedded, page
from fuzz.viewer.story import story
from properties.commands import Command
from properties.lockstep import RENAMED
from properties.museum import Exhibit, exhibits
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.systems.growth import Extend
from properties.systems.releases import Free
from properties.systems.row_commands import TakeRows
from properties.systems.slots import Alloc, GroupBegin, GroupEnd, Merge, Resize
from properties.trace import Trace, save
from properties.trace import load as load_trace

Captured = pytest.CaptureFixture[str]
PAGED, TOKEN, ROWS = (SYSTEMS[name] for name in ("paged", "token", "rows"))
MARKUP = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
# A bug that shows at once: the second page of an extend comes from the wrong place.
WRONG_PAGE = "the-last-page-of-an-extend-is-written-from-the-wrong-free-page"


def paged(*commands: Command, need_sort: bool = False, **changes: Any) -> Trace:
    """Commands on three pages of two slots."""
    config = PAGED.config(page_size=2, num_pages=3, spare=0, need_sort=need_sort)
    return Trace(system=PAGED, config=config, commands=commands, **changes)


def told(trace: Trace) -> dict[str, Any]:
    """The story as a page has it."""
    data: dict[str, Any] = json.loads(json.dumps(story(trace, load(trace.subject))))
    return data


def pages(data: dict[str, Any], step: int, side: int = 0) -> dict[int, tuple[int, str, int]]:
    """Page → places, owner and used slots after a step, as the viewer reads them."""
    found: dict[int, tuple[int, str, int]] = {}
    for beside, change in list(
        zip(data["sides"][0]["changes"], data["sides"][side]["changes"], strict=True)
    )[: step + 1]:
        whole = beside if change == 0 else change
        for number, places, owner, used in zip(*(whole[i::4] for i in range(4)), strict=True):
            found[number] = (places, data["owners"][owner] if owner >= 0 else "", used)
            if not places:
                del found[number]
    return found


def fact(data: dict[str, Any], key: str, step: int, side: int = 0) -> str:
    """What a side shows under a name after a step."""
    text: str = [text for at, text in data["sides"][side]["facts"][key] if at <= step][-1]
    return text


FREE_PAGE = (EXISTS | FREE, "", 0)


def test_owners_and_places() -> None:
    """Each page is told with its place, its owner, and how many of its slots are used."""
    trace = paged(
        Extend(((0, 3), (1, 1)), False, False), GroupBegin(), Free(((0, 0),), "all"), GroupEnd(),
        Merge(), need_sort=True,
    )  # fmt: skip
    data = told(trace)
    assert data["violation"] is data["difference"] is None
    assert data["commands"][1] == str(trace.commands[0])
    assert data["expected"] == ["", "[2, 3, 4, 6]", "ok", "ok", "ok", "ok"]
    assert data["actual"] == {}
    assert pages(data, 0) == {1: FREE_PAGE, 2: FREE_PAGE, 3: FREE_PAGE}
    owned = EXISTS | OWNED
    third = (owned, "1", 1)
    for side in (0, 1):
        assert pages(data, 1, side) == {1: (owned, "0", 2), 2: (owned, "0", 1), 3: third}
        parked, staged = (EXISTS | PARKED, "", 0), (EXISTS | STAGED, "", 0)
        assert pages(data, 3, side) == {1: parked, 2: parked, 3: third}
        assert pages(data, 4, side) == {1: staged, 2: staged, 3: third}
        assert pages(data, 5, side) == {1: FREE_PAGE, 2: FREE_PAGE, 3: third}
        assert fact(data, "staged", 4, side) == "[1, 2]"
        assert fact(data, "free", 5, side) == "[1, 2]"
    labels = [[data["owners"][owner] for owner in step] for step in data["touched"]]
    assert labels == [[], ["0", "1"], [], ["0"], [], []]


def test_a_pool_that_shrinks() -> None:
    """Pages that a resize takes away are there no more."""
    data = told(paged(Resize(2), Alloc(0, 1)))
    assert list(pages(data, 0)) == [1, 2, 3]
    assert list(pages(data, 2)) == [1]


def test_large_pools_and_long_lists() -> None:
    """Of a large pool the first pages are drawn, of a long list the first items are told."""
    config = PAGED.config(page_size=1, num_pages=MOST_PAGES + 904, spare=0, need_sort=False)
    data = told(Trace(system=PAGED, config=config, commands=(Alloc(0, 1),)))
    assert max(pages(data, 1)) == MOST_PAGES
    assert f"{MOST_PAGES + 904:,} pages" in data["note"]
    assert fact(data, "free", 1).startswith("[2, 3, 4, ")
    assert fact(data, "free", 1).endswith(f", … {MOST_PAGES + 903} in all]")
    assert shown({1: ([2], "a"), 3: None}) == "{1: ([2], a), 3: None}"


def test_rows_and_slots() -> None:
    """A row is a page of one slot, and so is a slot of the token pool."""
    config = ROWS.config(size=2, width=1)
    data = told(Trace(system=ROWS, config=config, commands=(TakeRows((7,)),)))
    assert (data["unit"], data["page_size"]) == ("row", 1)
    assert pages(data, 1, 1) == {1: FREE_PAGE, 2: (EXISTS | OWNED, "7", 1)}
    config = TOKEN.config(size=1, need_sort=False)
    data = told(Trace(system=TOKEN, config=config, commands=(Alloc(0, 1),)))
    assert (data["unit"], pages(data, 1)) == ("slot", {1: (EXISTS | OWNED, "0", 1)})


@pytest.mark.parametrize("exhibit", exhibits(), ids=lambda exhibit: exhibit.bug)
def test_the_museum_is_told(exhibit: Exhibit) -> None:
    """Every exhibit ends in a frame of both sides, at the command that breaks its invariant."""
    trace = load_trace(exhibit.path)
    data = told(trace)
    assert data["violation"]["number"] == trace.invariant
    last = data["violation"]["step"]
    assert last == len(data["commands"]) - 1 == len(trace.commands)
    assert data["difference"]["step"] == last
    assert {len(side["changes"]) for side in data["sides"]} == {last + 1}


def test_the_first_difference() -> None:
    """Where the sides part is told entry by entry and page by page, with the owners of each."""
    trace = load_trace(next(each.path for each in exhibits() if each.bug == WRONG_PAGE))
    data = told(trace)
    assert data["difference"] == {"step": 1, "lines": [["outcome[0]", "1", "2"]], "pages": [1, 2]}
    assert (data["expected"][1], data["actual"]) == ("[1]", {"1": "[2]"})
    owned = EXISTS | OWNED
    assert pages(data, 1) == {1: (owned, "0", 1), 2: FREE_PAGE}
    assert pages(data, 1, 1)[1] == (owned, "", 0), "taken from the list, and given to nobody"
    assert pages(data, 1, 1)[2] == (EXISTS | FREE, "0", 1), "given, and still in the list"


def test_other_page_numbers_are_no_difference() -> None:
    """On the renamed level both sides are followed, each with its own pages."""
    trace = paged(Extend(((0, 3),), False, False), Free(((0, 0),), "all"), level=RENAMED)
    data = told(trace)
    assert data["violation"] is data["difference"] is None
    assert pages(data, 1, 1)[2] == (EXISTS | OWNED, "0", 1)
    wrong = told(replace(trace, subject=f"planted:{WRONG_PAGE}"))
    assert wrong["violation"]["step"] == wrong["difference"]["step"]


def test_faults_that_come_late() -> None:
    """A system whose faults come late has a film as well."""
    system = SYSTEMS["token_deferred"]
    config = system.config(size=2, need_sort=False, lag=2, delay=0)
    commands = (Alloc(0, 1), Alloc(1, 1), Free(((0, 0),), "all"))
    data = told(Trace(system=system, config=config, commands=commands, subject="reference"))
    assert data["violation"] is None
    assert pages(data, 3)[2] == (EXISTS | OWNED, "1", 1)


def test_a_recording(tmp_path: Path) -> None:
    """What a recorder wrote is shown, each owner a number."""
    config = PAGED.config(page_size=2, num_pages=3, spare=0, need_sort=False)
    made: Any = load("impl:torch").make("paged", config)
    with properties.record(made.target, tmp_path / "recording.jsonl"):
        made.target.free(made.target.alloc(4))
        kept = made.target.alloc(2)
    assert isinstance(kept, torch.Tensor)
    data = told(load_trace(tmp_path / "recording.jsonl"))
    assert len(data["commands"]) == 4
    assert pages(data, 3) == pages(data, 3, 1)
    assert [places & OWNED for places, _, _ in pages(data, 3).values()].count(OWNED) == 1


def test_a_trace_that_ends_its_process(tmp_path: Path, capsys: Captured) -> None:
    """It is shown on the reference as far as it came, with how it ended."""
    config = TOKEN.config(size=4, need_sort=False)
    commands = (Alloc(0, 1), GroupBegin(), GroupEnd(), GroupBegin(), Merge())
    name = "fuzz.deadly:killed"
    trace = Trace(system=TOKEN, config=config, commands=commands, subject=name, invariant="died")
    data = story(trace, load(name))
    assert [side["name"] for side in data["sides"]] == ["reference"]
    assert (data["violation"]["number"], data["violation"]["step"]) == ("died", 4)
    assert "SIGSEGV" in data["violation"]["message"]
    assert "reference" in data["note"]
    path = save(trace, tmp_path)
    assert main(["show", str(path), "--subject", name]) == 0
    assert "4 commands, died (process died)" in capsys.readouterr().out


def test_foreign_text_ends_nothing() -> None:
    """No text in the data can end its element, and all of it comes back out of the JSON."""
    data = {"text": f"{MARKUP} &amp; \u2028 \u2029 \ud800", MARKUP: [MARKUP]}
    text = embedded(data)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == data
    whole = page("trace", f"{MARKUP} \ud800", data)
    assert whole.count("<script") == 2
    assert "<img" not in whole
    assert whole.encode()


def refused(captured: Captured, *arguments: str) -> str:
    """Runs an unusable command line; its one line."""
    assert main(arguments) == 2
    out, err = captured.readouterr()
    assert out == ""
    assert err.startswith("fuzz: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("name", "content", "more", "words"),
    [
        ("absent.json", None, (), ("absent.json", "readable")),
        ("a.json", "{}", (), ("not a trace", "schema")),
        ("a.json", "\x7fELF", (), ("JSON",)),
        ("a.json", {"subject": MARKUP}, (), ("can't choose code to run", "--subject")),
        ("a.json", {}, ("--subject", "nobody"), ("'nobody'", "impl")),
        ("a.html", {}, (), ("is the trace", "-o")),
        ("a.json", {}, ("-o", "no/such/folder.html"), ("no/such/folder.html", "written")),
        (".", None, (), ("not a file",)),
    ],
    ids=["absent", "object", "binary", "code", "subject", "itself", "folder", "directory"],
)
def test_unusable_input(
    name: str, content: Any, more: tuple[str, ...], words: tuple[str, ...],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured,
) -> None:  # fmt: skip
    """What is no trace, or can't be shown, is one line and status 2; nothing is written."""
    monkeypatch.chdir(tmp_path)
    if isinstance(content, dict):
        content = json.dumps({**paged(Alloc(0, 1)).to_json(), **content})
    if content is not None:
        Path(name).write_text(content, encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    line = refused(capsys, "show", name, *more)
    for word in words:
        assert word in line
    assert sorted(tmp_path.iterdir()) == before
