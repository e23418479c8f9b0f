"""The museum and the frozen traces: files written once, replayed for ever."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import properties
from properties.commands import UnusableTrace
from properties.museum import INDEX, REAL, Exhibit, exhibit_of, exhibits
from properties.planted import BY_SLUG, ENTRIES, WAITING
from properties.subjects import load
from properties.trace import Replay
from properties.trace import load as load_trace

EXHIBITS = exhibits()
HOUSE = Path(properties.__file__).parent
FROZEN = HOUSE / "frozen"
# The systems that there were when they were written.
FIRST = ("rows", "token", "paged", "paged_rows", "token_deferred", "paged_deferred")
# More could be said more shortly; none of the real bugs needs as many.
LONGEST_TRACE = 15


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.bug)
def test_exhibit(exhibit: Exhibit) -> None:
    """Sound code passes an exhibit; with the planted bug it fails, naming the invariant."""
    trace = exhibit.trace()
    assert (trace.system.name,) == exhibit.systems
    assert trace.subject == f"planted:{exhibit.bug}"
    assert trace.invariant == exhibit.invariant
    assert 1 <= len(trace.commands) <= LONGEST_TRACE
    for sound in ("impl", "reference"):
        replay = Replay(trace, load(sound).make)
        assert replay.run() is None, sound
    replay = Replay(trace, load(trace.subject).make)
    violation = replay.run()
    assert violation is not None
    assert violation.number == exhibit.invariant
    assert replay.executed == list(trace.commands)


def test_every_real_bug_is_shown() -> None:
    """Each entry of the bug list that doesn't wait hangs here, said as the registry says it."""
    assert {exhibit.entry for exhibit in EXHIBITS} == set(ENTRIES) - set(WAITING)
    assert {exhibit.bug for exhibit in EXHIBITS} == {bug.slug for bug in REAL}
    for exhibit in EXHIBITS:
        assert exhibit == exhibit_of(BY_SLUG[exhibit.bug])


def test_no_file_is_unlisted() -> None:
    """What lies in the museum is the index and the exhibits that it lists."""
    files = {path for path in INDEX.parent.iterdir() if path.suffix == ".json"}
    assert files == {INDEX, *(exhibit.path for exhibit in EXHIBITS)}


@pytest.mark.parametrize("name", [name for name in FIRST if load("impl").has(name)])
def test_a_frozen_trace_replays(name: str) -> None:
    """A file of the first schema is read, each of its commands still applies, and ours pass it."""
    trace = load_trace(FROZEN / f"{name}.json")
    assert trace.system.name == name
    replay = Replay(trace, load("impl").make)
    assert replay.run() is None
    assert replay.executed == list(trace.commands)


def test_frozen_traces_are_of_all_systems() -> None:
    """Each system that was there then has a file, and each is read whether or not it runs here."""
    files = sorted(FROZEN.glob("*.json"))
    assert [path.stem for path in files] == sorted(FIRST)
    for path in files:
        trace = load_trace(path)
        assert trace.to_json()["schema"] >= 1
        assert len(trace.commands) >= 40
        assert trace.invariant is None


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """What a later version writes is refused by name: it may mean something else."""
    text = (FROZEN / "token.json").read_text(encoding="utf-8")
    assert '"schema": 1,' in text
    path = tmp_path / "newer.json"
    path.write_text(text.replace('"schema": 1,', '"schema": 1000,'))
    with pytest.raises(UnusableTrace, match="schema 1000"):
        load_trace(path)


def test_data_is_installed() -> None:
    """Whatever isn't Python in this house is named as package data: an installed copy has it."""
    project = HOUSE.parent / "pyproject.toml"
    if not project.exists():
        assert EXHIBITS  # an installed copy: the files are here, or nothing would be read
        return
    patterns = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]
    for path in HOUSE.rglob("*"):
        if path.is_dir() or path.suffix in (".py", ".pyc") or path.name.startswith("."):
            continue
        inside = path.relative_to(HOUSE.parent)
        assert any(
            fnmatch(str(inside), f"{package.replace('.', '/')}/{pattern}")
            for package, globs in patterns.items()
            for pattern in globs
        ), inside
