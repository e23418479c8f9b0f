"""`fuzz exhaust`: exit statuses, what it prints and saves, one line for unusable input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuzz.cli import main
from properties import exhaust
from properties.invariants import Violation
from properties.subjects import load as subject
from properties.trace import FINDINGS, Replay, load

Captured = pytest.CaptureFixture[str]
TOKEN = ("exhaust", "token", "--pages", "1", "--requests", "1")
BUG = "planted:staged-slots-are-ignored-by-alloc"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(captured: Captured) -> list[str]:
    return captured.readouterr().out.splitlines()


def test_a_clean_search_is_closed(capsys: Captured) -> None:
    """Each walk says its states, edges and depth, and that its space is closed; exit status 0."""
    assert main([*TOKEN, "--workers", "1"]) == 0
    first, *walks, verdict = lines(capsys)
    assert first == "token of impl: 1 pages of 1, 1 requests"
    assert len(walks) == 4
    for words in ("need_sort=False, without", "need_sort=False, with", "need_sort=True, with"):
        assert any(words in line for line in walks)
    for line in walks:
        assert re.search(r" groups: \d+ states, \d+ edges, depth \d+, closed$", line)
    assert verdict.startswith("clean, closed: 31 states, ")


def test_a_bounded_search_says_so(capsys: Captured) -> None:
    """With a depth it is legitimate that states are left; that is said, and the status is 0."""
    assert main([*TOKEN, "--depth", "1", "--workers", "1"]) == 0
    *walks, verdict = lines(capsys)[1:]
    assert all(line.endswith("depth 1, not closed") for line in walks)
    assert verdict.startswith("clean, not closed: ")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_finding_is_told_and_saved(workers: str, capsys: Captured) -> None:
    """A bug ends in status 1; its shortest trace is told once, and saved so that it fails again."""
    assert main([*TOKEN, "--subject", BUG, "--workers", workers]) == 1
    out, err = capsys.readouterr()
    assert "I11 after 3 commands" in out
    assert out.count("(completeness)") == 1
    assert out.splitlines()[-1].startswith("FINDINGS: 2 of 1 kinds: I11 token.alloc x2; ")
    assert "minimised" in err
    path = re.search(r"replay: python -m fuzz replay (\S+)", out)
    assert path is not None
    trace = load(Path(path[1]))
    assert len(trace.commands) == 3
    violation: Violation | None = Replay(trace, subject(BUG).make).run()
    assert violation is not None
    assert violation.number == "I11"
    assert {found.suffix for found in FINDINGS.iterdir()} == {".json"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pages",), ("'pages'", "token")),
        (("all",), ("'all'", "one")),
        (("paged",), ("--page-size is missing",)),
        (("token", "--page-size", "2"), ("--page-size is 2", "token has no pages")),
        (("rows", "--pages", "0"), ("--pages is 0", "1 to 64")),
        (("rows", "--requests", "65"), ("--requests is 65", "1 to 64")),
        (("rows", "--requests", "few"), ("'few'",)),
        (("rows", "--depth", "0"), ("--depth is 0", "at least 1")),
        (("rows", "--workers", "-1"), ("--workers is -1", "at least 1")),
        (("rows", "--subject", "nobody"), ("'nobody'",)),
        (("paged_rows", "--page-size", "1"), ("paged_rows", "allowed: rows, token, paged")),
        (
            ("token_deferred", "--page-size", "1"),
            ("token_deferred", "snapshot", "allowed: rows, token, paged"),
        ),
        (("paged", "--page-size", "2", "--pages", "40"), ("would not end", "extend", "82")),
        (("paged", "--page-size", "1", "--subject", "sglang"), ("sglang", "page_size 2")),
    ],
)
def test_unusable_input_is_one_line(
    arguments: tuple[str, ...], words: tuple[str, ...], capsys: Captured
) -> None:
    """What can't be searched is refused in one line, with exit status 2, before anything runs."""
    usual = {"--pages": "2", "--requests": "2"}
    given = [word for pair in usual.items() if pair[0] not in arguments for word in pair]
    assert main(["exhaust", *arguments, *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fuzz: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err


def test_a_search_that_grows_too_large_ends(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A space of more states than any search ends with: status 2, and why."""
    monkeypatch.setattr(exhaust, "MOST_STATES", 3)
    assert main([*TOKEN, "--workers", "1"]) == 2
    assert (
        "would not end: token in 1 pages of 1, 1 requests: over 3 states" in capsys.readouterr().err
    )
