"""The benchmark by way of pytest-benchmark: `pytest properties/performance --benchmark-only`.

Nothing is asserted about times. A case's contenders are timed in turns, once; each then replays
its samples to the plugin, so that its table, its JSON and its comparisons work, and the table of
ours beside SGLang's with the ratios is printed last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from properties.performance import bench
from properties.performance.cases import Case
from properties.performance.conftest import RESULTS
from properties.performance.engines import engines
from properties.subjects.impl import default_device

DEVICE = torch.device(default_device())


class Replay:
    """A clock that is only moved on, by the samples given to it."""

    __name__ = "replay"

    def __init__(self) -> None:
        self.now = 0.0
        self.samples: Iterator[float] = iter(())

    def __call__(self) -> float:
        return self.now

    def advance(self) -> None:
        """One sample later."""
        self.now += next(self.samples)


CLOCK = Replay()


@pytest.mark.benchmark(timer=CLOCK)
@pytest.mark.parametrize(
    ("case", "label"),
    [
        pytest.param(case, engine.label, id=f"{case}-{engine.label}")
        for case in bench.all_cases(DEVICE)
        for engine in engines(DEVICE, case.beside)
    ],
)
def test_cost(case: Case, label: str, benchmark: Any, request: pytest.FixtureRequest) -> None:
    """What a call costs."""
    results = request.config.stash[RESULTS]
    if case.full_name not in results:
        timings = bench.measure_case(case, DEVICE)
        results[case.full_name] = bench.Result(case=case, timings=timings)
    samples = results[case.full_name].timings[label].samples
    benchmark.group = case.full_name
    CLOCK.samples = iter(samples)
    benchmark.pedantic(CLOCK.advance, rounds=len(samples))
