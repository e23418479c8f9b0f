"""Every check checks: small bugs planted in `impl` are found, named and told in a few commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from properties.lockstep import EXACT, RENAMED
from properties.minimize import minimize
from properties.planted import BUGS, Bug
from properties.seeded import Finding, Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.trace import Replay

# Most bugs need dozens of commands; the rarest, a double free of a parked page, thousands.
MOST_STEPS = 5_000
# Where only the order is wrong, nothing may be found without it; this many would find most bugs.
QUIET_STEPS = 400
# A bug that breaks several invariants may show another one first.
MOST_SEEDS = 6
LONGEST_TRACE = 10
# Small pools show every bug of ours; large ones take longer to run and to minimise.
LIMITS = {"page_size": (1, 2, 3, 4), "num_pages": (1, 2, 3, 4, 6, 8)}
ROOT = Path(__file__).parents[1]
HOUSES = ("impl", "reference", "properties")


def found(bug: Bug, level: str, seed: int, steps: int) -> Finding | None:
    """What a seeded run makes of the bug."""
    system, factory = SYSTEMS[bug.system], load(f"planted:{bug.slug}")
    limits = {**LIMITS, **bug.limits}
    plan = Plan(system=system, factory=factory, seed=seed, level=level, limits=limits)
    return run_steps(plan, steps)[1]


def named(bug: Bug, level: str) -> Finding:
    """A finding that names the bug's invariant; none on the way names one that holds."""
    for seed in range(MOST_SEEDS):
        finding = found(bug, level, seed, MOST_STEPS)
        if finding is None:
            continue
        number = finding.violation.number
        assert number in (bug.invariant, *bug.also), str(finding.violation)
        if number == bug.invariant:
            return finding
    raise AssertionError(f"{MOST_SEEDS} runs did not name {bug.invariant}")


@pytest.mark.parametrize("level", [EXACT, RENAMED])
@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_planted_bug_is_found_named_and_minimised(bug: Bug, level: str) -> None:
    """A seeded run finds the bug, its invariant is named, and a few commands show it."""
    if level == RENAMED and not bug.renamed:
        finding = found(bug, level, 0, QUIET_STEPS)
        assert finding is None or finding.violation.number in bug.also
        return
    finding = named(bug, level)
    if level == RENAMED:
        return  # minimising knows of no levels: the exact one says it all
    factory = load(f"planted:{bug.slug}")
    minimal = minimize(finding.trace, factory)
    assert len(minimal.commands) <= LONGEST_TRACE
    violation = Replay(minimal, factory.make).run()
    assert violation is not None
    assert violation.number == bug.invariant


def test_planting_leaves_nothing_behind() -> None:
    """A function has its own code again once the bug is gone."""
    for bug in BUGS:
        if bug.edit is None:
            continue
        function = bug.edit.function()
        sound = function.__code__
        with bug.planted():
            assert function.__code__ is not sound
        assert function.__code__ is sound


def test_a_bug_on_disk_fails_the_suite(tmp_path: Path) -> None:
    """The suite on an edited copy of `impl` fails, and says which invariant."""
    (bug,) = [bug for bug in BUGS if bug.title == "pages aren't deduplicated on free"]
    for house in HOUSES:
        shutil.copytree(ROOT / house, tmp_path / house)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert bug.edit is not None
    bug.edit.write(tmp_path)
    tests = f"properties/test_{bug.system}.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", tests, "-x", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{bug.invariant} (" in done.stdout
