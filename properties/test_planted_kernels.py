"""The kernels and what defers their faults are checked: bugs planted there are found and named.

Where kernels are interpreted only: a compiled one can't be edited in a running process. Steps are
slow there, so each bug names the configs and commands that show it, and nothing is minimised. What
steps over the end of a buffer is left to `properties/kernels/test_planted.py`, which has guards.
"""

from __future__ import annotations

import pytest
import torch

from properties.interpreter import kernels_run
from properties.planted import SLOW as BUGS
from properties.planted import Bug
from properties.seeded import Finding, Plan, run_steps
from properties.subjects import load

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() or not kernels_run(), reason="needs the interpreter"
)

# The rarest, a void merge of staged ids, takes 350 steps.
MOST_STEPS = 600
MOST_SEEDS = 3
LIMITS = {"page_size": (1, 2, 3, 4), "num_pages": (1, 2, 3, 4, 6, 8)}


def found(bug: Bug, seed: int) -> Finding | None:
    """What a seeded run makes of the bug."""
    plan = Plan(
        system=bug.narrowed(),
        factory=load(f"planted:{bug.slug}"),
        seed=seed,
        level="exact",
        limits={**LIMITS, **bug.limits},
    )
    return run_steps(plan, MOST_STEPS)[1]


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_bug_in_a_kernel_is_found_and_named(bug: Bug) -> None:
    """A seeded run finds the bug and names its invariant; none on the way names one that holds."""
    for seed in range(MOST_SEEDS):
        finding = found(bug, seed)
        number = finding.violation.number if finding else None
        if number == bug.invariant:
            return
        assert number in (None, *bug.also), str(finding and finding.violation)
    raise AssertionError(f"{MOST_SEEDS} runs did not name {bug.invariant}")


def test_planting_in_a_kernel_leaves_nothing_behind() -> None:
    """What the interpreter runs, and what kernels call, is sound again once the bug is gone."""
    for bug in BUGS:
        assert bug.edit is not None
        found, function = bug.edit.found(), bug.edit.function()
        runs = (function.__code__, found.rewrite() if found is not function else None)
        with bug.planted():
            inside = (function.__code__, found.rewrite() if found is not function else None)
            assert inside != runs
        assert (function.__code__, found.rewrite() if found is not function else None) == runs
