"""What of the GPU script can be tested without one: refusal, isolation of parts, the report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from impl import PagedTokenToKVPoolAllocator
from properties.performance import gpu, gpu_checks
from properties.performance.gpu_common import CheckFailed
from properties.performance.spending import PAGED, TOKEN, Pool


def stub(name: str, code: str, limit_seconds: float = 60.0) -> gpu.Part:
    """A part that is a line of Python; `path` is where its detail goes."""
    program = f"import sys; path = sys.argv[1]; {code}"
    return gpu.Part(
        name=name,
        command=(sys.executable, "-c", program, gpu.DETAIL),
        limit_seconds=limit_seconds,
    )


def ran(tmp_path: Path, *chosen: gpu.Part, seconds: float = 60.0) -> dict[str, Any]:
    """The report of these parts, as read from its file."""
    out = tmp_path / "report.json"
    gpu.run_parts(chosen, out, lambda line: None, seconds)
    report: dict[str, Any] = json.loads(out.read_text())
    return report


def test_refused_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without CUDA nothing is run or written: one line, exit status 2."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path / "report.json")]) == gpu.UNUSABLE
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["--out"], ["--out", "x", "--part", "nothing"]])
def test_bad_arguments(arguments: list[str]) -> None:
    """What can't be understood is refused before anything runs."""
    with pytest.raises(SystemExit) as refused:
        gpu.main(arguments)
    assert refused.value.code == gpu.UNUSABLE


def test_no_folder_for_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that can't be written is noticed before ten minutes are spent."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu.main(["--out", str(tmp_path / "none" / "report.json")]) == gpu.UNUSABLE


@pytest.mark.parametrize(("code", "status"), [("pass", 0), ("sys.exit(1)", 1)])
def test_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, status: int
) -> None:
    """The status is 0 when all parts passed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "parts", lambda: [stub("a", "pass"), stub("b", code)])
    assert gpu.main(["--out", str(tmp_path / "report.json")]) == status


def test_parts_are_isolated(tmp_path: Path) -> None:
    """A part that fails, dies or hangs is reported as such and the next one runs."""
    report = ran(
        tmp_path,
        stub("fails", "print('why'); raise SystemExit(3)"),
        stub("dies", "open(path, 'w').write('[1]'); import os; os.abort()"),
        stub("hangs", "import time; time.sleep(600)", limit_seconds=0.5),
        stub("torn", "open(path, 'w').write('[1')"),
        stub("passes", "open(path, 'w').write('[2]')"),
    )
    parts = report["parts"]
    found = {name: (part["status"], part["detail"]) for name, part in parts.items()}
    assert found == {
        "fails": ("failed", None),
        "dies": ("failed", [1]),
        "hangs": ("timed out", None),
        "torn": ("passed", None),
        "passes": ("passed", [2]),
    }
    assert parts["fails"]["output"] == "why\n"
    assert parts["fails"]["exit_status"] == 3


def test_workers_end_with_their_part(tmp_path: Path) -> None:
    """What a part started ends with it: its pipe closes, so the script goes on."""
    code = (
        "import subprocess; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    )
    start = time.perf_counter()
    report = ran(tmp_path, stub("hangs", code, limit_seconds=1.0))
    assert report["parts"]["hangs"]["status"] == "timed out"
    assert time.perf_counter() - start < 30


def test_total_is_bounded(tmp_path: Path) -> None:
    """Parts that there is no time left for aren't begun, and the report says so."""
    report = ran(tmp_path, stub("a", "pass"), stub("b", "pass"), seconds=0.0)
    assert {part["status"] for part in report["parts"].values()} == {"no time left"}


def test_report_is_written_after_each_part(tmp_path: Path) -> None:
    """Whatever happens later, what was found is on disk."""
    out, lines = tmp_path / "report.json", []

    def say(line: str) -> None:
        lines.append((line, list(json.loads(out.read_text())["parts"])))

    gpu.run_parts([stub("a", "pass"), stub("b", "pass")], out, say)
    assert [names for _, names in lines] == [["a"], ["a", "b"]]


def test_limits_fit_into_the_total() -> None:
    """The parts before the suites leave them time, and every one has a way to run."""
    names = [part.name for part in gpu.parts()]
    assert [name for name in names if not name.startswith("suite ")] == list(gpu_checks.CHECKS)
    quick = sum(part.limit_seconds for part in gpu.parts() if part.name in gpu_checks.CHECKS)
    assert quick < gpu.TOTAL_SECONDS - 200


def test_versions() -> None:
    """Versions are named, of what isn't installed too."""
    found: list[dict[str, Any]] = []
    gpu_checks.versions(torch.device("cpu"), found.append)
    assert found[0]["torch"] == torch.__version__.split("+")[0] or found[0]["torch"]
    assert "sglang" in found[0]


def test_graph_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph part passes where replaying is running once more."""
    monkeypatch.setattr(gpu_checks, "capture", lambda forward, forbidden: (forward, "refused"))
    found: list[dict[str, Any]] = []
    gpu_checks.graph(torch.device("cpu"), found.append)
    assert found[0]["real"] < found[0]["lanes"]


@pytest.mark.parametrize("wrong", ["lost", "unrefused", "elsewhere"])
def test_graph_part_can_fail(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """It fails where a replay does nothing, a call is served, or slots aren't the table's."""
    if wrong == "elsewhere":
        decode: Any = PagedTokenToKVPoolAllocator.alloc_decode_rows
        monkeypatch.setattr(
            PagedTokenToKVPoolAllocator,
            "alloc_decode_rows",
            lambda *arguments: decode(*arguments) + 1,
        )

    def capture(forward: Callable[[], None], forbidden: object) -> tuple[Callable[[], None], str]:
        lost = wrong == "lost"
        return (lambda: None) if lost else forward, "" if wrong == "unrefused" else "refused"

    monkeypatch.setattr(gpu_checks, "capture", capture)
    with pytest.raises(CheckFailed):
        gpu_checks.graph(torch.device("cpu"), lambda found: None)


@pytest.mark.parametrize("waits", [False, True])
def test_synchronisation_part(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """It asks every call but the plain free, and names those that torch stops."""
    modes: list[str] = []

    def stop(mode: str) -> None:
        modes.append(mode)

    def alloc(pool: Pool, half: int) -> Callable[[], object]:
        def call() -> object:
            if waits and modes and modes[-1] == "error":
                raise RuntimeError("called a synchronizing CUDA operation")
            return None

        return call

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", stop)
    monkeypatch.setattr(gpu_checks, "MODES", (("torch", False),))
    monkeypatch.setitem(PAGED, "alloc", alloc)
    found: list[dict[str, str]] = []
    if waits:
        with pytest.raises(CheckFailed, match=r"alloc, torch.*synchronizing"):
            gpu_checks.synchronisation(torch.device("cpu"), found.append)
    else:
        gpu_checks.synchronisation(torch.device("cpu"), found.append)
    assert len(found[-1]) == len(PAGED) + len(TOKEN) - 1
    assert modes[-1] == "default"


def test_recovery_in_the_interpreter() -> None:
    """The recovery part holds without a GPU too, where kernels are interpreted."""
    found: list[dict[str, str]] = []
    gpu_checks.recovery(torch.device("cpu"), found.append)
    assert set(found[-1]) == set(gpu_checks.FAULTS)
