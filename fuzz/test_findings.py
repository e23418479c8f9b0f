"""Findings: on disk first, then minimised, told once; replayed and minimised from their files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from fuzz import findings
from fuzz.cli import main
from properties.minimize import minimize
from properties.subjects import Factory, impl
from properties.trace import FINDINGS, Trace, load

Captured = pytest.CaptureFixture[str]
HERE = "fuzz.test_findings:"
RUN = ("run", "token", "--steps", "600", "--seed", "1", "--level", "exact")


def honest(system: str, config: Any) -> impl.ImplSubject:
    """Our own token allocator."""
    return impl.make(system, config)


def lossy(system: str, config: Any) -> impl.ImplSubject:
    """Loses what is freed."""
    subject = impl.make(system, config)
    subject.target.free = lambda free_index: None
    return subject


def once(system: str, config: Any) -> impl.ImplSubject:
    """Loses what is freed in one construction only: no replay shows it."""
    return (lossy if next(_built) == 3 else honest)(system, config)


_built = itertools.count()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    global _built
    _built = itertools.count()


def saved() -> list[Trace]:
    """The traces on disk, the longest first."""
    traces = [load(path) for path in FINDINGS.glob("*.json")]
    return sorted(traces, key=lambda trace: -len(trace.commands))


def test_raw_trace_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the minimiser starts, the trace as found is a complete file."""
    on_disk = []

    def spy(trace: Trace, factory: Factory) -> Trace:
        on_disk.append([load(path) for path in FINDINGS.glob("*.json")] == [trace])
        return minimize(trace, factory)

    monkeypatch.setattr(findings, "minimize", spy)
    assert main([*RUN, "--subject", HERE + "lossy"]) == 1
    assert on_disk[0]


def test_findings_are_minimised_and_told_once(capsys: Captured) -> None:
    """A run with findings ends in status 1, each kind short, printed once, counted, and saved."""
    assert main([*RUN, "--subject", HERE + "lossy"]) == 1
    out, err = capsys.readouterr()
    traces = saved()
    shortest = traces[-1]
    assert len(shortest.commands) == 2
    first, last = (command.name() for command in shortest.commands)
    assert first == "alloc"
    assert last.startswith("free")
    verdict = out.splitlines()[-1]
    assert verdict.startswith("FINDINGS: ")
    total, kinds = int(verdict.split()[1]), int(verdict.split()[3])
    assert total > kinds == out.count("replay: ")
    paths = list(FINDINGS.glob("*.json"))
    assert len(paths) <= 2 * kinds
    for path in paths:
        assert str(path) in err
    assert "  1. alloc(" in out
    assert "rounds" in verdict


def test_interrupted_minimiser_keeps_the_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A minimiser that is interrupted or fails costs neither the trace nor the rest of the run."""
    for error in (KeyboardInterrupt(), ValueError("torn")):

        def fail(trace: Trace, factory: Factory, error: BaseException = error) -> Trace:
            raise error

        monkeypatch.setattr(findings, "minimize", fail)
        assert main([*RUN, "--subject", HERE + "lossy"]) == 1
        out, err = capsys.readouterr()
        assert saved()
        assert "kept as found: " + str(FINDINGS) in out
        assert "minimised" in err
        assert "FINDINGS: " in out.splitlines()[-1]


def test_irreproducible_finding(capsys: Captured) -> None:
    """A finding that no replay shows is said to be one, and its trace stays as found."""
    assert main([*RUN, "--subject", HERE + "once"]) == 1
    out, err = capsys.readouterr()
    assert "doesn't come again" in err
    assert len(saved()) == 1
    assert "FINDINGS: 1 of 1 kinds" in out.splitlines()[-1]


def test_unwritable_folder_does_not_end_the_run(capsys: Captured) -> None:
    """Findings are still told where they can't be saved."""
    FINDINGS.parent.write_text("in the way")
    assert main([*RUN, "--subject", HERE + "lossy"]) == 1
    out, err = capsys.readouterr()
    assert "can't be saved" in err
    assert "alloc(" in out


def test_round_trip(capsys: Captured) -> None:
    """A saved trace fails on the subject it was found on, in full and minimised, and passes on a
    sound one."""
    assert main([*RUN, "--subject", HERE + "lossy"]) == 1
    raw = max(FINDINGS.glob("*.json"), key=lambda path: len(load(path).commands))
    capsys.readouterr()
    assert main(["replay", str(raw)]) == 2  # a trace can't choose code to run
    assert main(["replay", str(raw), "--subject", HERE + "honest"]) == 0
    assert "no invariant is broken" in capsys.readouterr().out
    assert main(["replay", str(raw), "--subject", HERE + "lossy"]) == 1
    assert str(load(raw).invariant) in capsys.readouterr().out
    assert main(["minimize", str(raw), "--subject", HERE + "honest"]) == 0
    assert "no longer fails" in capsys.readouterr().out
    assert main(["minimize", str(raw), "--subject", HERE + "lossy"]) == 1
    short = raw.with_suffix(".min.json")
    assert len(load(short).commands) <= 2 < len(load(raw).commands)
    assert str(short) in capsys.readouterr().out
    assert main(["replay", str(short), "--subject", HERE + "lossy"]) == 1


def test_minimize_writes_where_it_is_told(tmp_path: Path, capsys: Captured) -> None:
    """-o names the file of the minimised trace; one that can't be written is unusable input."""
    assert main([*RUN, "--subject", HERE + "lossy"]) == 1
    raw = next(FINDINGS.glob("*.json"))
    out = tmp_path / "short.json"
    arguments = ["minimize", str(raw), "--subject", HERE + "lossy", "-o"]
    assert main([*arguments, str(out)]) == 1
    assert load(out).invariant == load(raw).invariant
    capsys.readouterr()
    assert main([*arguments, str(tmp_path / "no" / "folder.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_replay_on_another_level(capsys: Captured) -> None:
    """--level of a replay is the level that is judged and told."""
    assert main([*RUN, "--subject", HERE + "lossy"]) == 1
    raw = next(FINDINGS.glob("*.json"))
    capsys.readouterr()
    assert main(["replay", str(raw), "--subject", HERE + "lossy", "--level", "renamed"]) == 1
    assert "(renamed)" in capsys.readouterr().out
