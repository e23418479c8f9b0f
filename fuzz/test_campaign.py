"""Campaigns from outside: what they keep, what they say, what they survive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import job, selftest
from fuzz.campaign.selftest import Trial
from fuzz.campaign.task import Lane
from fuzz.cli import main
from properties.planted import BUGS
from properties.subjects import load as load_subject
from properties.systems import SYSTEMS
from properties.systems.protocol_misuse import NestedGroup
from properties.systems.slots import Alloc, GroupBegin, GroupEnd
from properties.trace import Replay, Trace, load, save

ROOT = Path(__file__).resolve().parent.parent
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def events(corpus: Path, kind: str) -> list[dict[str, Any]]:
    """The events of a kind in the log; a line that a kill has cut is no event."""
    lines = (corpus / "log.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [event for event in found if event["event"] == kind]


def traces(folder: Path) -> list[Trace]:
    return [load(path) for path in sorted(folder.glob("*.json"))]


def test_a_planted_bug_is_found(tmp_path: Path, capsys: Captured) -> None:
    """A campaign finds a bug, makes it short, tells each kind once; a second one goes on."""
    (bug,) = [bug for bug in BUGS if bug.title == "freed slots go to the front"]
    corpus = tmp_path / "corpus"
    command = ["run", "token", "--subject", f"planted:{bug.slug}", "--corpus", str(corpus)]
    assert main([*command, "--seconds", "2", "--workers", "2", "--seed", "7"]) == 1
    out = capsys.readouterr().out
    found = traces(corpus / "findings")
    assert found
    for trace in found:
        assert trace.invariant == "I71"
        assert len(trace.commands) <= 5
        violation = Replay(trace, load_subject(trace.subject).make).run()
        assert violation is not None
        assert violation.number == "I71"
    kinds = [[command.name() for command in trace.commands] for trace in found]
    assert len({tuple(names) for names in kinds}) == len(kinds)
    assert out.count("replay: ") == len(found)
    assert out.splitlines()[-1].startswith(
        f"FINDINGS: {events(corpus, 'interval')[-1]['findings']}"
    )
    assert "self-test: found canary" in out
    assert not (corpus / "self-test").exists()
    kept = [event["file"] for event in events(corpus, "entry")]
    assert kept
    assert all(load(corpus / "traces" / name).invariant is None for name in kept)
    (corpus / "traces" / "token-clean-torn.json").write_text("{")
    # what is known already isn't new, and a finding of the same kind isn't told again
    assert main([*command, "--until-found", "--seed", "7"]) == 1
    again = capsys.readouterr().out
    assert "token-clean-torn.json" in again
    assert (corpus / "traces" / "token-clean-torn.json").exists()
    assert len(events(corpus, "entry")) - len(kept) < len(kept) / 2
    assert again.count("replay: ") < len(found) or len(found) == 1


def test_deaths_are_findings(capsys: Captured) -> None:
    """A subject that kills its process is found with the commands that do it; others go on."""
    command = ["run", "--subject", "fuzz.deadly:killed", "--corpus", "c", "--seconds", "3"]
    assert main([*command, "--until-found"]) == 1
    out = capsys.readouterr().out
    assert "died: the process ended by SIGSEGV" in out
    (trace,) = traces(Path("c/findings"))
    # each of these asks for a group, and the second one asked is the end
    assert sum(type(command) in (GroupBegin, NestedGroup) for command in trace.commands) == 2
    assert len(trace.commands) <= 4
    assert not list(Path("c/suspects").iterdir())


def test_hangs_are_findings(capsys: Captured) -> None:
    """A subject that doesn't come back is found when its time is over."""
    command = ["run", "--subject", "fuzz.deadly:sleeps", "--corpus", "c", "--seconds", "3"]
    assert main([*command, "--limit", "1", "--until-found"]) == 1
    assert "hung: no end within" in capsys.readouterr().out
    (trace,) = traces(Path("c/findings"))
    assert trace.invariant == "hung"


def test_a_start_goes_on_with_what_was_left(tmp_path: Path) -> None:
    """What a killed campaign left is done: a finding made short, a death explained."""
    corpus, token = tmp_path / "corpus", SYSTEMS["token"]
    commands = (Alloc(0, 1), GroupBegin(), GroupEnd(), Alloc(1, 1), GroupBegin(), GroupEnd())
    trace = Trace(
        system=token,
        config=token.config(size=4, need_sort=False),
        commands=commands,
        subject="fuzz.deadly:quits",
    )
    entry = save(trace, corpus / "traces")
    save(replace(trace, invariant="died"), corpus / "as-found")
    lane: dict[str, Any] = {"system": "token", "subject": trace.subject, "level": "", "limits": {}}
    task = {"number": 1, "kind": "replayed", "lane": lane, "seed": "s", "bases": [str(entry)]}
    suspect = {"task": {**task, "limit": 2.0}, "status": 3, "calls": sorted(_calls())}
    (corpus / "suspects").mkdir()
    (corpus / "suspects" / "1-1.json").write_text(json.dumps(suspect))
    command = ["run", "--subject", trace.subject, "--corpus", str(corpus), "--until-found"]
    assert main(command) == 1
    assert [trace.invariant for trace in traces(corpus / "findings")] == ["died"]
    assert not list((corpus / "as-found").iterdir())
    assert not list((corpus / "suspects").iterdir())
    assert [event["invariant"] for event in events(corpus, "found")][:2] == ["died", "died"]


def _calls() -> frozenset[str]:
    token = SYSTEMS["token"]
    config = token.config(size=4, need_sort=False)
    return load_subject("impl").make("token", config).calls


def test_kills_lose_nothing(tmp_path: Path) -> None:
    """Workers and coordinator killed at any moment: what was reported is there, and it goes on."""
    corpus = tmp_path / "corpus"
    command = [
        *(sys.executable, "-m", "fuzz", "run", "token", "--hours", "1", "--workers", "2"),
        *("--subject", "planted:freed-slots-go-to-the-front", "--corpus", str(corpus)),
    ]
    for wait in (_told, lambda _: time.sleep(0.5)):
        campaign = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        os.kill(_worker(campaign.pid, corpus), signal.SIGKILL)
        wait(corpus)
        campaign.kill()
        campaign.communicate()
        for event in events(corpus, "entry"):
            load(corpus / "traces" / event["file"])
        for event in events(corpus, "finding"):
            load(corpus / "findings" / event["file"])
    assert events(corpus, "entry")
    assert _killed(corpus)


def _told(corpus: Path) -> None:
    """Wait until the log has the worker's death."""
    deadline = time.monotonic() + 60
    while not _killed(corpus) and time.monotonic() < deadline:
        time.sleep(0.1)


def _killed(corpus: Path) -> bool:
    """Whether the log has a worker that was killed."""
    return any(event["status"] == "SIGKILL" for event in events(corpus, "worker"))


def _worker(coordinator: int, corpus: Path) -> int:
    """The process of one of a campaign's workers, once it has made something."""
    before = len(list((corpus / "traces").glob("*"))) if corpus.exists() else 0
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.05)
        if corpus.exists() and len(list((corpus / "traces").glob("*"))) > before:
            # Between two workers there is none, and the status of `ps` says so.
            asked = ["ps", "-o", "pid=", "--ppid", str(coordinator)]
            found = subprocess.run(asked, capture_output=True, text=True, check=False)
            if found.stdout:
                return int(found.stdout.split()[0])
    raise AssertionError("no worker made anything")


def test_red_without_the_canary(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A campaign whose canary lives is red, whatever else it says."""
    lane = Lane(system="token", subject="impl")
    alive = Trial("canary", lane, frozenset({"I2"}))
    monkeypatch.setattr(job, "trials", lambda systems, seed: [alive])
    monkeypatch.setattr(selftest, "LONGEST_SECONDS", 0.2)
    assert main(["run", "rows", "--seconds", "0.2", "--corpus", "c"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("RED: the self-test failed")
    assert "canary: I2 not found" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workers", "0"), ("--workers is 0", "1 to")),
        (("--limit", "-1"), ("--limit is -1", "above 0")),
        (("--hours", "nan"), ("--hours is nan", "finite")),
        (("--hours", "1", "--seconds", "1"), ("--seconds and --hours",)),
        (("--shard", "3/2"), ("'3/2'", "I/N")),
        (("--shard", "0/2"), ("'0/2'",)),
        (("--shard", "one"), ("'one'",)),
        (("--steps", "5", "--corpus", "c"), ("--corpus is for a campaign",)),
        (("--steps", "5", "--until-found"), ("--until-found is for a campaign",)),
        (("--no-feedback", "--measure-feedback"), ("give one of them",)),
        (("--corpus", "file"), ("nothing can be kept in file", "directory")),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_unusable_campaigns(
    arguments: tuple[str, ...], words: tuple[str, ...], capsys: Captured
) -> None:
    """Unusable options end in status 2 and one line, before any process is started."""
    Path("file").write_text("in the way")
    assert main(["run", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_subject_that_cannot_be_built(capsys: Captured) -> None:
    """What only a worker can see is told in one line too."""
    assert main(["run", "--subject", "fuzz.test_cli:broken", "--seconds", "1"]) == 2
    err = capsys.readouterr().err
    assert "can't be built" in err
    assert err.count("\n") == 1
