"""`fuzz coverage`: what a corpus reaches, and what it doesn't."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from fuzz.cli import main
from properties.systems import SYSTEMS
from properties.systems.slots import Alloc, Merge
from properties.trace import Trace, save

TOKEN = SYSTEMS["token"]


def missing(said: str, file: str) -> set[int]:
    """The lines of a file that the report calls missing."""
    line = next(line for line in said.splitlines() if line.startswith(file))
    words = re.findall(r"(?<![\d>-])(\d+)(?:-(\d+))?(?![\d>-])", line.partition("%")[2])
    return {n for low, high in words for n in range(int(low), int(high or low) + 1)}


def line_of(text: str) -> int:
    found = importlib.util.find_spec("impl.allocators.token")
    assert found is not None
    assert found.origin is not None
    lines = Path(found.origin).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_what_no_trace_reaches_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Lines of calls in the corpus are reached, those of others missing; a torn file is named."""
    config = TOKEN.config(size=4, need_sort=True)
    trace = Trace(system=TOKEN, config=config, commands=(Alloc(0, 2), Merge()), subject="impl")
    corpus, page = tmp_path / "corpus", tmp_path / "html"
    save(trace, corpus / "traces")
    (corpus / "traces" / "torn.json").write_text("{")
    assert main(["coverage", str(corpus), "-o", str(page)]) == 0
    out, err = capfd.readouterr()
    lines = missing(out, "impl/allocators/token.py")
    assert line_of("alloc_extend: this allocator has no pages") in lines
    assert line_of("def alloc(") not in lines
    assert line_of("def alloc(") + 1 not in lines
    assert out.splitlines()[-1] == "traces: 1 replayed, 1 not readable"
    assert "torn.json" in err
    assert (page / "index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), ("nowhere", "no traces")),
        (("full", "--subject", "json:nothing"), ("json:nothing",)),
        (("full", "-o", "full/a.json"), ("full/a.json", "no folder")),
    ],
)
def test_unusable_input(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One line, before anything is replayed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.json").write_text("{}")
    assert main(["coverage", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for word in words:
        assert word in err
