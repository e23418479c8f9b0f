"""The benchmark without pytest: every case on every engine, and the table of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from properties.performance.cases import Case, cases
from properties.performance.engines import OURS, UNCHECKED, engines, has_sglang
from properties.performance.kv_cases import kv_cases
from properties.performance.row_cases import row_cases
from properties.performance.timing import Timing, measure

# A case takes about this long; disturbances here last for tenths of a second.
SECONDS_PER_CASE = 1.0
ALONE = "sglang is not installed: ours alone, no ratios"
_WIDTH = 28


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one case came to, by engine."""

    case: Case
    timings: dict[str, Timing]

    def median_us(self, label: str) -> float | None:
        """Microseconds per call; None for an engine that has no such job."""
        timing = self.timings.get(label)
        return None if timing is None else timing.median_us

    def ratio(self, label: str) -> float | None:
        """How many times as fast as who it is beside; None where there is nothing to compare."""
        ours, theirs = self.median_us(label), self.median_us(self.case.beside)
        return None if ours is None or theirs is None else theirs / ours

    def to_json(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "group": self.case.group,
            "name": self.case.name,
            "beside": self.case.beside,
            "median_us": {label: timing.median_us for label, timing in self.timings.items()},
            "ratio": {label: self.ratio(label) for label in (OURS, UNCHECKED)},
            "samples": {label: len(timing.samples) for label, timing in self.timings.items()},
        }


def all_cases(device: torch.device) -> list[Case]:
    """Every case for a device: those through the row table are what a GPU is asked about."""
    found = cases() + kv_cases(device)
    return found + (row_cases() if device.type == "cuda" else [])


def measure_case(
    case: Case, device: torch.device, seconds: float = SECONDS_PER_CASE
) -> dict[str, Timing]:
    """Timings of one case by engine, one thread, taken in turns."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        works = {engine.label: case.start(engine) for engine in engines(device, case.beside)}
        return measure(works, device, seconds)
    finally:
        torch.set_num_threads(threads)


def run(
    device: torch.device,
    chosen: Iterable[Case],
    say: Callable[[str], None],
    seconds: float = SECONDS_PER_CASE,
) -> list[Result]:
    """Measure the cases, saying each line of the table as it is known."""
    results: list[Result] = []
    say(heading(device))
    for case in chosen:
        if not results or results[-1].case.group != case.group:
            say(group_line(case))
        results.append(Result(case=case, timings=measure_case(case, device, seconds)))
        say(line(results[-1]))
    for each in means(results):
        say(each)
    return results


def table(device: torch.device, results: Sequence[Result]) -> list[str]:
    """The lines of the table, for results that are there."""
    lines = [heading(device)]
    for at, result in enumerate(results):
        if not at or results[at - 1].case.group != result.case.group:
            lines.append(group_line(result.case))
        lines.append(line(result))
    return [*lines, *means(results)]


def heading(device: torch.device) -> str:
    """What the columns are."""
    what = "median microseconds per call, one thread; ratio: the other's time by ours"
    alone = "" if has_sglang() else f"\n{ALONE}"
    return f"{what}; {device}{alone}"


def group_line(case: Case) -> str:
    """The names of the columns, under that of the case's group."""
    columns = (OURS, "unchecked", case.beside, "ratio", "unchecked")
    return f"\n{case.group}\n{'':{_WIDTH}}" + "".join(f"{each:>11}" for each in columns)


def line(result: Result) -> str:
    """A case's line of the table."""
    times = [result.median_us(label) for label in (OURS, UNCHECKED, result.case.beside)]
    ratios = [result.ratio(label) for label in (OURS, UNCHECKED)]
    cells = ["" if time is None else f"{time:.1f}" for time in times]
    cells += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
    return f"{result.case.name:{_WIDTH}}" + "".join(f"{cell:>11}" for cell in cells)


def means(results: Sequence[Result]) -> list[str]:
    """A line per group: geometric mean and least of the ratios."""
    lines = []
    for group in dict.fromkeys(result.case.group for result in results):
        members = [result for result in results if result.case.group == group]
        for label in (OURS, UNCHECKED):
            ratios = [ratio for each in members if (ratio := each.ratio(label)) is not None]
            if ratios:
                mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
                found = f"geometric mean {mean:.2f}, least {min(ratios):.2f}"
                lines.append(f"{group}, {label}: {found}")
    return ["", *lines] if lines else []
