"""The pages in a browser: stepping, filter, themes, long traces, foreign text, the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.cli import main
from fuzz.report import NAME
from fuzz.test_report import left_behind
from fuzz.test_show import MARKUP, TOKEN, WRONG_PAGE, paged
from fuzz.viewer.browser import Browser, browser, missing
from fuzz.viewer.page import page
from fuzz.viewer.story import alone, story
from properties.choices import Seeded
from properties.commands import Command
from properties.lockstep import Lockstep
from properties.seeded import Picker, Plan, Tally, drawn, drive
from properties.subjects import load
from properties.systems.growth import Extend
from properties.systems.releases import Free
from properties.systems.slots import Alloc, Merge
from properties.trace import Trace


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """One browser for all tests of the module; each fails that leaves a complaint behind."""
    if reason := missing():
        pytest.skip(f"no browser: {reason}")
    with browser() as found:
        yield found


def opened(window: Browser, trace: Trace, folder: Path, **changes: Any) -> float:
    """Writes the page of a trace and opens it; seconds that it took to open."""
    path = folder / "trace.html"
    data = {**story(trace, load(trace.subject)), **changes}
    path.write_text(page("trace", trace.subject, data), encoding="utf-8")
    return window.open(path)


def long_trace(count: int) -> Trace:
    """So many drawn commands on the token pool's reference, which is quick."""
    plan = Plan(system=TOKEN, factory=load("reference"), seed=0)
    runs: list[Lockstep] = []

    def commands(lock: Lockstep) -> Iterator[Command]:
        runs.append(lock)
        yield from drawn(Picker(plan.usable(lock)), Seeded("long"), lock, count)

    config = TOKEN.config(size=24, need_sort=True)
    drive(plan, config, commands, Tally(looks=False), lambda: True)
    found = Trace(system=TOKEN, config=config, commands=tuple(runs[0].commands))
    assert len(found.commands) == count
    return replace(found, subject="reference")


def test_stepping(window: Browser, tmp_path: Path) -> None:
    """A page opens at the violation; keys, buttons and clicks go through the steps."""
    trace = paged(
        Alloc(0, 1), Free(((0, 0),), "all"), Extend(((1, 3),), False, False),
        subject=f"planted:{WRONG_PAGE}",
    )  # fmt: skip
    opened(window, trace, tmp_path)
    assert window.text("#step") == "Step 3 of 3"
    assert "I6 pages taken are pages given" in window.text("#verdict")
    assert window.text("#differences").startswith("First difference")
    assert [each.text for each in window.all("#told mark")] == ["6", "7"] or window.all(
        "#told mark"
    )
    assert len(window.all("#maps canvas")) == 2
    for key, step in (
        ("ARROW_UP", 2), ("ARROW_LEFT", 1), ("ARROW_DOWN", 2), ("HOME", 0), ("ARROW_UP", 0),
        ("END", 3), ("PAGE_UP", 0), ("PAGE_DOWN", 3),
    ):  # fmt: skip
        window.press(key)
        assert window.text("#step") == f"Step {step} of 3", key
    window.find("#step-1").click()
    assert window.text("#step") == "Step 1 of 3"
    assert window.find("#step-1").get_attribute("aria-selected") == "true"
    assert window.text("#differences") == ""
    label = window.find("#maps canvas").get_attribute("aria-label")
    assert label.startswith("reference. page 0: reserved; page 1: owned, request 0, 2 of 2 slots;")
    window.find("#on").click()
    assert window.text("#step") == "Step 2 of 3"
    window.find("#jump").click()
    assert window.text("#step") == "Step 3 of 3"
    assert window.complaints() == []


def test_filter_and_theme(window: Browser, tmp_path: Path) -> None:
    """A filter leaves the steps of one request; the switch changes light and dark."""
    trace = paged(Alloc(0, 1), Alloc(1, 1), Free(((0, 0),), "all"), Merge())
    opened(window, trace, tmp_path)
    rows = "return [...document.querySelectorAll('.row:not([hidden])')].map((r) => r.dataset.step)"
    assert sorted(window.run(rows)) == ["0", "1", "2", "3", "4"]
    window.find("#filter option[value='0']").click()
    assert sorted(window.run(rows)) == ["1", "3"]
    assert window.text("#step") == "Step 1 of 4"
    window.find("#last").click()
    assert window.text("#step") == "Step 3 of 4"
    window.find("#filter option[value='']").click()
    assert len(window.run(rows)) == 5
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = window.run(ground)
    window.find("#theme").click()
    assert window.run(ground) != before
    window.find("#theme").click()
    assert window.run(ground) == before
    assert window.complaints() == []


def test_markup_is_text(window: Browser, tmp_path: Path) -> None:
    """Markup in names is shown as it stands; none of it becomes part of the page."""
    trace = paged(Alloc(0, 1), versions={MARKUP: f"<b>{MARKUP}</b>"})
    opened(window, trace, tmp_path, subject=MARKUP, owners=[MARKUP], note=MARKUP)
    for place in ("#title", "#chips", "#verdict", "#filter"):
        assert MARKUP in window.text(place)
    assert window.run("return document.images.length + document.scripts.length") == 2
    assert window.run("return window.broken") is None
    assert window.complaints() == []


def test_one_side(window: Browser, tmp_path: Path) -> None:
    """The reference alone has one column, and says why."""
    path = tmp_path / "alone.html"
    path.write_text(page("trace", "", alone(paged(Alloc(0, 1)), "No subject.")), encoding="utf-8")
    window.open(path)
    assert len(window.all("#maps canvas")) == 1
    assert "No subject." in window.text("#verdict")
    assert window.complaints() == []


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_long_traces(count: int, window: Browser, tmp_path: Path) -> None:
    """A long trace opens, and can be stepped through and jumped about in."""
    seconds = opened(window, long_trace(count), tmp_path)
    print(f"{count:,} commands open in {seconds:.2f} s")
    assert window.run("return document.querySelectorAll('.row').length") < 100
    for keys, step in (
        (("END",), count), (("ARROW_UP", "ARROW_UP"), count - 2), (("HOME", "ARROW_DOWN"), 1),
    ):  # fmt: skip
        window.press(*keys)
        assert window.text("#step") == f"Step {step} of {count}"
        assert window.find(f"#step-{step}").is_displayed()
    window.run("list.scrollTop = arguments[0]", count * 26 // 2)
    middle = "return document.elementFromPoint(300, list.getBoundingClientRect().top + 99)"
    window.run("return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    window.run(middle).click()
    assert abs(int(window.text("#step").split()[1]) - count // 2) < 40
    assert window.complaints() == []


def test_the_report(window: Browser, tmp_path: Path) -> None:
    """Charts, tables and notes are there; a finding's link leads to its page; markup is text."""
    campaign = left_behind(tmp_path / "campaign")
    assert main(["report", str(campaign)]) == 0
    window.open(campaign / NAME)
    assert window.text("#verdict h2") == "No verdict"
    assert len(window.all(".chart polyline")) == 3
    for text in (MARKUP, WRONG_PAGE, "missed", "torn.json", "token of impl"):
        assert text in window.text("#sections")
    assert window.run("return document.images.length + document.scripts.length") == 2
    assert window.run("return window.broken") is None
    window.find("summary").click()
    assert "missing" in window.text(".marks")
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = window.run(ground)
    window.find("#theme").click()
    assert window.run(ground) != before
    window.follow("td a")
    assert "I6" in window.text("#verdict")
    assert window.complaints() == []
