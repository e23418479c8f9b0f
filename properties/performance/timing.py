"""Several ways to do one job, timed in turns: what disturbs the machine disturbs all of them.

A sample is the mean time of a call over some calls in a row; a result is the median of samples.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter

import torch

# Below this the clock's own cost and resolution show in a sample.
LEAST_SAMPLE_SECONDS = 2e-4
# Enough for a median that a disturbed tenth of the samples doesn't move.
LEAST_SAMPLES, MOST_SAMPLES = 25, 400
WARM_UP_ROUNDS = 5


def _nothing() -> None:
    """Nothing to restore."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One way to do a job: `run` is timed, `restore` brings the state back and isn't."""

    run: Callable[[], None]
    restore: Callable[[], None] = _nothing
    #: calls within one `run`, by which its time is divided
    calls: int = 1


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds per call, sample by sample."""

    samples: list[float] = field(repr=False)

    @property
    def median_us(self) -> float:
        """Microseconds per call."""
        return statistics.median(self.samples) * 1e6


def measure(works: Mapping[str, Work], device: torch.device, seconds: float) -> dict[str, Timing]:
    """Timings of each of `works`, taken in turns for about `seconds` in all."""
    finish = torch.cuda.synchronize if device.type == "cuda" else _nothing
    for work in works.values():
        for _ in range(WARM_UP_ROUNDS):
            _sample(work, 1, finish)
    repeats = {label: _repeats(work, finish) for label, work in works.items()}
    samples: dict[str, list[float]] = {label: [] for label in works}
    order = list(works)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        end = perf_counter() + seconds
        taken = 0
        while taken < LEAST_SAMPLES or (perf_counter() < end and taken < MOST_SAMPLES):
            for label in order:
                samples[label].append(_sample(works[label], repeats[label], finish))
            # Whoever follows whom must not matter either: what one leaves in the caches.
            order.reverse()
            taken += 1
    finally:
        if was_enabled:
            gc.enable()
    return {label: Timing(samples=found) for label, found in samples.items()}


def _repeats(work: Work, finish: Callable[[], None]) -> int:
    """How many runs make a sample long enough."""
    once = min(_sample(work, 1, finish) for _ in range(WARM_UP_ROUNDS)) * work.calls
    return max(1, round(LEAST_SAMPLE_SECONDS / max(once, 1e-7)))


def _sample(work: Work, repeats: int, finish: Callable[[], None]) -> float:
    spent = 0.0
    if work.restore is _nothing:
        finish()
        start = perf_counter()
        for _ in range(repeats):
            work.run()
        finish()
        spent = perf_counter() - start
    else:
        for _ in range(repeats):
            finish()
            start = perf_counter()
            work.run()
            finish()
            spent += perf_counter() - start
            work.restore()
    return spent / (repeats * work.calls)
