"""The benchmark's machinery, on a clock that the test moves: nothing real is timed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from properties.performance import __main__ as command
from properties.performance import bench, kv_cases, timing
from properties.performance.cases import Case, cases
from properties.performance.engines import (
    OURS,
    PLAIN,
    SGLANG,
    UNCHECKED,
    Engine,
    Ours,
    Plain,
    engines,
    has_sglang,
)
from properties.performance.row_cases import decode_rows, extend_rows
from properties.performance.timing import Work, measure

CPU = torch.device("cpu")


class Clock:
    """Seconds that pass only when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.order: list[str] = []
        monkeypatch.setattr(timing, "perf_counter", lambda: self.now)

    def work(self, label: str, seconds: float, **options: Any) -> Work:
        """A job that takes so long."""

        def run() -> None:
            self.order.append(label)
            self.now += seconds

        return Work(run=run, **options)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock in place of the real one."""
    return Clock(monkeypatch)


def test_median_is_per_call(clock: Clock) -> None:
    """A run of several calls counts as several."""
    works = {"a": clock.work("a", 2e-3), "b": clock.work("b", 2e-3, calls=4)}
    found = measure(works, CPU, 1.0)
    assert found["a"].median_us == pytest.approx(2000)
    assert found["b"].median_us == pytest.approx(500)


def test_restoring_is_not_timed(clock: Clock) -> None:
    """What brings the state back takes time, but none that counts."""

    def restore() -> None:
        clock.now += 5.0

    found = measure({"a": clock.work("a", 1e-3, restore=restore)}, CPU, 1.0)
    assert found["a"].median_us == pytest.approx(1000)


def test_contenders_take_turns(clock: Clock) -> None:
    """Samples of the two alternate, and who begins does too; a short one repeats its runs."""
    measure({"a": clock.work("a", 1.0), "b": clock.work("b", 1.0)}, CPU, 1.0)
    assert "".join(clock.order[-8:]) in ("abbaabba", "baabbaab")
    clock.order.clear()
    measure({"a": clock.work("a", 1e-5), "b": clock.work("b", 1.0)}, CPU, 1.0)
    assert clock.order.count("a") > 10 * clock.order.count("b")


def small_cases() -> list[Case]:
    """Those whose pools are built in no time."""
    return [case for case in cases() if not any(f"2^{n}" in case.name for n in range(16, 23))]


@pytest.mark.parametrize("case", small_cases(), ids=str)
def test_case_can_go_on(case: Case) -> None:
    """A job can be done again and again: what it takes comes back."""
    work = case.start(Ours(CPU, validate=True))
    for _ in range(3):
        work.run()
        work.restore()


@pytest.mark.parametrize("case", [extend_rows(3), decode_rows(3)], ids=str)
def test_row_case_can_go_on(case: Case) -> None:
    """The same of the jobs through the row table, which are timed on a GPU."""
    test_case_can_go_on(case)


def test_kv_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of pools, smaller here, run on every engine, and have their lines and their ratios."""
    for name, value in {"STORED_TOKENS": (1, 5), "MOVED_SLOTS": 6, "COPIED_TOKENS": 7}.items():
        monkeypatch.setattr(kv_cases, name, value)
    lines: list[str] = []
    found = bench.run(CPU, kv_cases.kv_cases(CPU), lines.append, 0.0)
    assert len(found) == (6 if has_sglang() else 4)
    assert all(len(result.timings) == 3 for result in found)
    assert all(result.ratio(OURS) for result in found)
    assert all(any(line.startswith(each.case.name) for line in lines) for each in found)


def test_plain_does_the_same() -> None:
    """Writes, moves and round trips of plain tensors leave what ours leave."""
    ours: Any = Ours(CPU, validate=True).heads(8, 2, 2)
    plain: Any = Plain(CPU).heads(8, 2, 2)
    keys = torch.arange(3 * 8 * 128).reshape(3, 8, 128).to(torch.bfloat16)
    layer = SimpleNamespace(layer_id=1)
    loc, others = torch.tensor([3, 7, 2]), torch.tensor([5, 2, 8])
    for pool in (ours, plain):
        pool.set_kv_buffer(layer, loc, keys, keys + 1)
        pool.move_kv_cache(others, loc)
        pool.load_cpu_copy(pool.get_cpu_copy(others), torch.tensor([4, 6, 3]))
    assert all(map(torch.equal, (*ours.k_buffer, *ours.v_buffer), (*plain.k, *plain.v)))
    assert ours.k_buffer[1].any()


def test_beside_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case is timed beside the engine that it names, and its table says whom."""
    case = Case(group="g", name="one", start=lambda engine: Work(run=lambda: None), beside=PLAIN)
    assert [each.label for each in engines(CPU, PLAIN)] == [OURS, UNCHECKED, PLAIN]
    lines: list[str] = []
    [result] = bench.run(CPU, [case], lines.append, 0.0)
    assert result.ratio(OURS) is not None
    assert result.to_json()["beside"] == PLAIN
    assert PLAIN in lines[1]
    assert SGLANG not in lines[1]


class Rival(Ours):
    """Ours under SGLang's name."""

    def __init__(self) -> None:
        super().__init__(CPU, validate=True)
        self.label = SGLANG


def fixed(group: str, name: str, seconds: dict[str, float], clock: Clock) -> Case:
    """A case of known cost by engine."""
    return Case(group=group, name=name, start=lambda engine: clock.work("", seconds[engine.label]))


@pytest.fixture
def contenders(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Ours twice, and one that passes for SGLang."""
    found: list[Engine] = [Ours(CPU, validate=True), Ours(CPU, validate=False), Rival()]
    monkeypatch.setattr(bench, "engines", lambda device, beside: found)
    return found


def test_table(clock: Clock, contenders: list[Engine]) -> None:
    """A line has ours, SGLang's and the ratios; a group its geometric mean and its least."""
    first = {OURS: 1e-3, UNCHECKED: 5e-4, SGLANG: 2e-3}
    second = {OURS: 1e-3, UNCHECKED: 1e-3, SGLANG: 8e-3}
    chosen = [fixed("g", "one", first, clock), fixed("g", "two", second, clock)]
    said: list[str] = []
    results = bench.run(CPU, chosen, said.append, 0.1)
    lines = bench.table(CPU, results)
    assert "\n".join(said) == "\n".join(lines)
    assert lines[2].split() == ["one", "1000.0", "500.0", "2000.0", "2.00", "4.00"]
    assert lines[3].split() == ["two", "1000.0", "1000.0", "8000.0", "8.00", "8.00"]
    assert f"g, {OURS}: geometric mean 4.00, least 2.00" in lines
    assert results[1].to_json()["ratio"][OURS] == pytest.approx(8.0)


def test_alone_without_sglang(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Where SGLang isn't installed ours is measured alone, and a line says so."""
    monkeypatch.setattr("properties.performance.engines.has_sglang", lambda: False)
    monkeypatch.setattr(bench, "has_sglang", lambda: False)
    case = fixed("g", "one", {OURS: 1e-3, UNCHECKED: 1e-3}, clock)
    lines = bench.table(CPU, bench.run(CPU, [case], lambda line: None, 0.1))
    assert bench.ALONE in lines[0]
    assert lines[2].split() == ["one", "1000.0", "1000.0"]


def test_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    clock: Clock,
    contenders: list[Engine],
) -> None:
    """`python -m properties.performance` runs what was asked for and writes it down."""
    costs = {OURS: 1e-3, UNCHECKED: 1e-3, SGLANG: 1e-3}
    chosen = [fixed("g", "one", costs, clock), fixed("h", "two", costs, clock)]
    monkeypatch.setattr(bench, "all_cases", lambda device: chosen)
    out = tmp_path / "bench.json"
    assert command.main(["--only", "h, two", "--seconds", "0.1", "--out", str(out)]) == 0
    assert [each["group"] for each in json.loads(out.read_text())] == ["h"]
    assert "two" in capsys.readouterr().out
    assert command.main(["--only", "nothing"]) == command.UNUSABLE
