"""Files that are no usable traces: each is UnusableTrace, one line that names the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from properties import trace as traces
from properties.commands import LARGEST_INT, LONGEST_LIST, UnusableTrace
from properties.systems import SYSTEMS
from properties.systems.growth import Extend
from properties.systems.paged import PagedConfig
from properties.systems.releases import Free
from properties.systems.slots import Alloc
from properties.trace import Trace, load, parse

Edit = Callable[[dict[str, Any]], Any]
TRACE = Trace(
    system=SYSTEMS["paged"],
    config=PagedConfig(page_size=4, num_pages=2, spare=1, need_sort=True),
    commands=(Alloc(0, 1), Extend(((0, 3), (1, 2)), True, False), Free(((0, 0),), "all")),
    invariant="I2",
    versions={"python": "3.11"},
)


def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TRACE.dumps())
    return found


def put(*path: Any) -> Edit:
    """An edit that sets the value at a path; the last item is the value."""
    *keys, last, value = path

    def edit(whole: dict[str, Any]) -> None:
        at: Any = whole
        for key in keys:
            at = at[key]
        at[last] = value

    return edit


def drop(*path: Any) -> Edit:
    *keys, last = path

    def edit(whole: dict[str, Any]) -> None:
        at: Any = whole
        for key in keys:
            at = at[key]
        del at[last]

    return edit


DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]

EDITS: dict[str, tuple[Edit, list[str]]] = {
    "newer schema": (put("schema", 2), ["schema 2", "1..1"]),
    "far newer schema": (put("schema", 10**30), ["schema", "1..1"]),
    "schema 0": (put("schema", 0), ["schema 0", "1..1"]),
    "schema a word": (put("schema", "1"), ["integer 'schema'"]),
    "schema a bool": (put("schema", True), ["integer 'schema'"]),
    "no schema": (drop("schema"), ["integer 'schema'"]),
    "no commands": (drop("commands"), ["commands"]),
    "unknown field": (put("outcomes", []), ["outcomes"]),
    "unknown system": (put("system", "unified"), ["system", "unified", "rows, token, paged"]),
    "system a list": (put("system", ["paged"]), ["system"]),
    "system null": (put("system", None), ["system"]),
    "another system": (put("system", "token"), ["config", "size"]),
    "unknown level": (put("level", "loose"), ["level", "loose", "exact, renamed"]),
    "unknown invariant": (put("invariant", "I72"), ["invariant", "I72", "I71"]),
    "invariant a number": (put("invariant", 2), ["invariant"]),
    "subject a number": (put("subject", 5), ["subject"]),
    "subject too long": (put("subject", "x" * 201), ["subject", "200"]),
    "versions a list": (put("versions", []), ["versions"]),
    "version a number": (put("versions", "python", 3), ["versions"]),
    "config a list": (put("config", [4, 2]), ["config", "page_size"]),
    "config short": (drop("config", "spare"), ["config", "spare"]),
    "config long": (put("config", "stride", 1), ["config", "stride"]),
    "config a float": (put("config", "page_size", 4.0), ["config.page_size", "int"]),
    "config a bool": (put("config", "num_pages", True), ["config.num_pages", "int"]),
    "config an int": (put("config", "need_sort", 1), ["config.need_sort", "bool"]),
    "config NaN": (put("config", "spare", float("nan")), ["config.spare", "nan"]),
    "page size 0": (put("config", "page_size", 0), ["config", "page_size", "0"]),
    "page size huge": (put("config", "page_size", 2**13), ["config", "page_size", str(2**12)]),
    "pages negative": (put("config", "num_pages", -1), ["config", "num_pages", "-1"]),
    "pool huge": (put("config", "num_pages", 2**30), ["config", "num_pages", str(2**16)]),
    "spare too large": (put("config", "spare", 4), ["config", "spare", "4"]),
    "commands an object": (put("commands", {}), ["commands", "list"]),
    "command a word": (put("commands", 1, "alloc"), ["command 1", "object", "str"]),
    "command null": (put("commands", 2, None), ["command 2", "object", "NoneType"]),
    "unknown command": (put("commands", 1, "command", "alloc_all"), ["command 1", "alloc_all"]),
    "command a list": (put("commands", 1, "command", ["alloc"]), ["command 1", "alloc"]),
    "unnamed command": (drop("commands", 0, "command"), ["command 0", "known: "]),
    "command of rows": (
        put("commands", 0, {"command": "take_rows", "requests": []}),
        ["take_rows"],
    ),
    "argument missing": (drop("commands", 0, "pages"), ["command 0", "alloc", "pages"]),
    "argument too many": (put("commands", 0, "size", 1), ["command 0", "alloc", "size"]),
    "argument a word": (put("commands", 0, "pages", "1"), ["command 0.pages", "int", "1"]),
    "argument a bool": (put("commands", 0, "pages", False), ["command 0.pages", "int"]),
    "argument a float": (put("commands", 0, "pages", 1e300), ["command 0.pages", "int"]),
    "argument null": (put("commands", 0, "pages", None), ["command 0.pages", "int", "None"]),
    "argument huge": (put("commands", 0, "pages", LARGEST_INT + 1), ["command 0.pages", "beyond"]),
    "argument very huge": (put("commands", 0, "pages", -(10**4000)), ["command 0.pages"]),
    "argument deep": (put("commands", 0, "pages", DEEP), ["command 0.pages", "int"]),
    "list an int": (put("commands", 1, "requests", 3), ["command 1.requests", "list"]),
    "list of ints": (put("commands", 1, "requests", [3]), ["command 1.requests[0]", "list"]),
    "a triple": (put("commands", 1, "requests", 1, [1, 2, 3]), ["requests[1]", "2 items", "3"]),
    "a pair of words": (put("commands", 1, "requests", 1, ["1", 2]), ["requests[1][0]", "int"]),
    "a long list": (put("commands", 1, "requests", [[0, 0]] * (LONGEST_LIST + 1)), ["requests"]),
    "a long word": (put("commands", 2, "naming", "x" * 65), ["command 2.naming", "64"]),
    "deep words": (put("level", DEEP), ["level"]),
    "deep command": (put("commands", 1, "command", DEEP), ["command 1"]),
}


@pytest.mark.parametrize("name", EDITS)
def test_unusable_data(name: str, tmp_path: Path) -> None:
    """One thing wrong in a trace is refused in a line that says where, what and what is allowed."""
    edit, words = EDITS[name]
    whole = data()
    edit(whole)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(UnusableTrace) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message


def test_usable_data() -> None:
    """The trace that the edits start from is usable, so each of them is what makes it unusable."""
    assert parse(data()) == TRACE
    for value in (LARGEST_INT, -LARGEST_INT):
        whole = data()
        put("commands", 0, "pages", value)(whole)
        assert parse(whole).commands[0] == Alloc(0, value)


FILES: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  \n",
    "no JSON": b"alloc(0, 1)\n",
    "cut off": TRACE.dumps().encode()[:-20],
    "two values": TRACE.dumps().encode() * 2,
    "binary": bytes(range(256)) * 4,
    "not UTF-8": TRACE.dumps().encode("utf-16"),
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "huge int": b'{"schema": ' + b"9" * 100_000 + b"}",
    "deep list": b"[" * 100_000,
    "deep object": b'{"schema":' * 100_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("name", FILES)
def test_unusable_file(name: str, tmp_path: Path) -> None:
    """A file that holds no trace is refused in one line that names the file."""
    path = tmp_path / "trace.json"
    path.write_bytes(FILES[name])
    with pytest.raises(UnusableTrace) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 1000


def test_any_depth_is_refused(tmp_path: Path) -> None:
    """Nesting of any depth ends in UnusableTrace, close to what the parser can take too."""
    path = tmp_path / "trace.json"
    text = TRACE.dumps().replace('"I2"', "NEST")
    for depth in range(1, 1100, 3):
        path.write_text(text.replace("NEST", "[" * depth + "]" * depth))
        with pytest.raises(UnusableTrace):
            load(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    """A path without a file, and a folder, are refused like any unreadable file."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UnusableTrace, match="JSON file") as caught:
            load(path)
        assert str(path) in str(caught.value)


def test_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the bound is refused by its size alone; one at the bound is read."""
    path = tmp_path / "trace.json"
    path.write_text(TRACE.dumps())
    monkeypatch.setattr(traces, "LARGEST_FILE_BYTES", path.stat().st_size)
    assert load(path) == TRACE
    monkeypatch.setattr(traces, "LARGEST_FILE_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr(Path, "read_text", None)
    with pytest.raises(UnusableTrace, match=f"{path.stat().st_size} bytes"):
        load(path)


def test_number_of_commands_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of more commands than the bound is refused; one at the bound is read."""
    monkeypatch.setattr(traces, "MOST_COMMANDS", 3)
    assert parse(data()) == TRACE
    monkeypatch.setattr(traces, "MOST_COMMANDS", 2)
    with pytest.raises(UnusableTrace, match="at most 2"):
        parse(data())


@pytest.mark.parametrize("where", [(), ("config",), ("commands", 0), ("versions",)])
def test_messages_stay_short(where: tuple[Any, ...]) -> None:
    """A field with a megabyte for a name doesn't end up whole in the message."""
    whole = data()
    put(*where, "x" * 2**20, 1)(whole)
    with pytest.raises(UnusableTrace) as caught:
        parse(whole)
    assert len(str(caught.value)) < 5000
