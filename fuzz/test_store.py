"""The files of a campaign: complete or absent, whatever happens to the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.campaign import store as module
from fuzz.campaign.store import Store
from fuzz.options import Unusable
from properties.systems import SYSTEMS
from properties.trace import Trace, load, save

TOKEN = SYSTEMS["token"]
TEXT = Trace(system=TOKEN, config=TOKEN.config(size=2, need_sort=False), commands=()).dumps()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> Store:
    made = Store(tmp_path / "corpus", said.append)
    made.open()
    return made


def full(text: str, directory: Path) -> Path:
    raise OSError(28, "No space left on device")


def test_a_full_disk_loses_nothing(
    store: Store, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be written is kept in memory, said once, and written when there is room."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_text", full)
        assert store.keep(store.findings, TEXT) is None
        assert store.keep(store.as_found, TEXT) is None
        store.retry()
        assert len(store.unsaved) == 2
        assert len(said) == 1
    store.retry()
    assert not store.unsaved
    for folder in (store.findings, store.as_found):
        (path,) = folder.iterdir()
        assert path.read_text() == TEXT
    assert "saved now" in said[-1]


def test_a_torn_write_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that breaks off half way leaves neither a file nor a part of one."""

    def torn(self: Path, text: str, encoding: str) -> int:
        self.write_bytes(text.encode()[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", torn)
    with pytest.raises(OSError, match="No space"):
        save(Trace(system=TOKEN, config=TOKEN.config(size=2, need_sort=False), commands=()),
             store.findings)  # fmt: skip
    assert not list(store.findings.iterdir())


def test_what_a_dead_process_left(store: Store) -> None:
    """Parts of files and findings of a self-test are gone at the next start; traces stay."""
    path = store.keep(store.traces, TEXT)
    assert path is not None
    part = store.traces / "token-clean-1.77.partial"
    part.write_text(TEXT[:20])
    store.self_test.mkdir()
    (store.self_test / path.name).write_text(TEXT)
    store.open()
    assert not part.exists()
    assert not store.self_test.exists()
    assert load(path).system is TOKEN


def test_foreign_files_are_left_alone(store: Store, said: list[str]) -> None:
    """Files whose names aren't ours are told and not touched; others are the corpus."""
    path = store.keep(store.traces, TEXT)
    for name in ("notes.txt", "tree-clean-1.json"):
        (store.traces / name).write_text("mine")
    assert store.entries() == {"token": [path]}
    assert len(said) == 2
    assert (store.traces / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("place", ["", "traces", "findings"])
def test_unusable_directories(tmp_path: Path, place: str) -> None:
    """A file where a directory is wanted is refused in one line that names it."""
    wrong = tmp_path / "corpus" / place
    wrong.parent.mkdir(exist_ok=True)
    wrong.write_text("in the way")
    with pytest.raises(Unusable, match="corpus") as refused:
        Store(tmp_path / "corpus", print).open()
    assert "\n" not in str(refused.value)


def test_no_space_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has no room for a finding is refused before anything runs."""

    def fsync(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(Unusable, match="No space left"):
        Store(tmp_path, print).open()
    assert not list(tmp_path.glob("*.partial"))


def test_suspects(store: Store, said: list[str]) -> None:
    """A task whose worker died is read back; what isn't one is told and left alone."""
    told = {"task": {"lane": {"system": "token", "subject": "impl"}}, "calls": [], "status": -11}
    path = store.suspect(7, told)
    (store.suspects / "other.json").write_text('{"task": 1}')
    assert list(store.suspected()) == [(path, told)]
    assert len(said) == 1


def test_the_log(store: Store, said: list[str]) -> None:
    """Every event is a line of JSON; a log that can't be written is told once."""
    store.log("one", count=1)
    store.log("two")
    lines = [json.loads(line) for line in store.log_path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["one", "two"]
    store.log_path.unlink()
    store.log_path.mkdir()
    store.log("three")
    store.log("four")
    assert len(said) == 1
