"""`fuzz mutants --generated`: which mutants there are, how they are tried, and the score."""

from __future__ import annotations

import hashlib
import inspect
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz import generated
from fuzz.cli import main
from fuzz.generated import Score
from properties.mutation import trial
from properties.mutation.mutants import Mutant, equivalent, every, is_out_of_reach, sample
from properties.mutation.trial import Found

Captured = pytest.CaptureFixture[str]
MUTANTS = every()
FOUND = Found("rows: I2", 0.5)


def called(place: str, words: str) -> Mutant:
    """The mutant of a function in whose name these words are."""
    (mutant,) = [each for each in MUTANTS if each.place == place and words in each.name]
    return mutant


MERGE = called("allocators.book:Book.merge", "self.free_list.merge() -> pass")


def test_all_parts_have_mutants() -> None:
    """Kernels, allocators, rows and the table have them, with every operator; each has a name."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    files = {mutant.file for mutant in MUTANTS}
    assert {"rows.py", "table.py", "allocators/paged.py", "kernels/device/extend.py"} <= files
    assert {mutant.operator for mutant in MUTANTS} == {
        "off by one", "ceil and floor", "comparison", "swapped operands", "swapped order",
        "dropped statement", "condition", "mask", "prefix and seq", "arithmetic",
    }  # fmt: skip


def test_a_sample_leaves_no_part_out() -> None:
    """Each part and operator comes once before one comes twice; a seed decides which."""
    strata = {(mutant.file, mutant.operator) for mutant in MUTANTS}
    one, two = (sample(MUTANTS, len(strata), seed) for seed in (1, 2))
    assert {(mutant.file, mutant.operator) for mutant in one} == strata
    assert one != two
    assert sample(MUTANTS, len(strata), 1) == one
    assert len(set(sample(MUTANTS, 10**6, 1))) == len(MUTANTS)


def running(mutant: Mutant) -> Any:
    """What runs where the mutant is: a function's code, or what stands in for a kernel."""
    found = mutant.found()
    return found.rewrite() if hasattr(found, "rewrite") else found.__code__


def test_planting_changes_nothing_for_good() -> None:
    """A function is itself again behind the block, and no file has changed."""
    root = inspect.getsourcefile(MERGE.function())
    assert root is not None
    files = sorted(Path(root).parents[1].rglob("*.py"))
    assert len(files) > 20
    before = [hashlib.sha256(path.read_bytes()).digest() for path in files]
    for mutant in sample(MUTANTS, 60, 3):
        if is_out_of_reach(mutant):
            continue
        sound = running(mutant)
        with mutant.planted():
            assert running(mutant) is not sound
        assert running(mutant) is sound
        changed = [line for line in mutant.diff().splitlines()[2:] if line[0] in "+-"]
        assert changed, mutant.name
    assert [hashlib.sha256(path.read_bytes()).digest() for path in files] == before


def test_a_function_may_lose_its_only_super() -> None:
    """It is a mutant like any other: planted, and not noticed for having no place to go."""
    lost = 0
    for mutant in MUTANTS:
        if "dropped statement: super()" in mutant.name:
            with mutant.planted():
                lost += "super" not in running(mutant).co_names
    assert lost > 10


def test_a_mutant_is_noticed_in_a_child() -> None:
    """A dropped merge is noticed by the lockstep run of its system; this process stays sound."""
    sound = MERGE.function().__code__
    found = trial.trial(MERGE)
    assert found is not None
    assert found.by.startswith(("token: I", "paged: I")), found
    assert MERGE.function().__code__ is sound


def hang(mutant: Mutant) -> Iterator[str]:
    time.sleep(60)
    yield "late"


def die(mutant: Mutant) -> Iterator[str]:
    os._exit(3)


@pytest.mark.parametrize(("attempts", "by"), [(hang, "time"), (die, "crash")])
def test_a_child_may_hang_or_die(attempts: Any, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that doesn't come back, or ends its process, is noticed by that."""
    monkeypatch.setattr(trial, "attempts", attempts)
    found = trial.trial(MERGE, seconds=1.0)
    assert found is not None
    assert found.by == by


def test_a_survivor_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing notices survives."""
    monkeypatch.setattr(trial, "attempts", lambda mutant: iter(()))
    assert trial.trial(MERGE) is None


def test_the_list_of_equivalent_ones() -> None:
    """Each is a mutant there is, and says why it changes nothing; there are few."""
    known = equivalent()
    assert set(known) <= {mutant.name for mutant in MUTANTS}
    assert all(len(reason) > 20 for reason in known.values())
    assert len(known) <= generated.MOST_LISTED * len(MUTANTS)


def test_what_is_listed_wrongly_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A mutant that is listed as equivalent and isn't makes the score void."""
    monkeypatch.setattr(generated, "every", lambda: [MERGE])
    monkeypatch.setattr(generated, "equivalent", lambda: {MERGE.name: "it does nothing"})
    assert main(["mutants", "--generated", "--count", "1", "--workers", "1"]) == 1
    out = capsys.readouterr().out
    assert f"NOT EQUIVALENT {MERGE.name}: " in out
    assert "1 listed as equivalent" in out


def test_survivors_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A mutant that nothing notices is printed with its diff, and the status is 1."""
    monkeypatch.setattr(generated, "every", lambda: [MERGE])
    monkeypatch.setattr(trial, "attempts", lambda mutant: iter(()))
    assert main(["mutants", "--generated", "--seed", "5", "--workers", "1"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("seed 5: 1 of 1 mutants, 1 workers\n")
    assert f"SURVIVED {MERGE.name}\n" in out
    assert any(line[0] == "+" and line.endswith(" pass") for line in out.splitlines() if line)
    assert "0 of 1 mutants noticed, 0.0 %" in out


@pytest.mark.parametrize(
    ("found", "survived", "listed", "good"),
    [(95, 5, 5, True), (94, 6, 0, False), (90, 0, 10, False), (0, 0, 0, True)],
)
def test_a_good_score(found: int, survived: int, listed: int, good: bool) -> None:
    """At least 95 % noticed of those not listed, and at most 5 % listed."""
    names = iter(MUTANTS)
    score = Score(
        found={next(names): FOUND for _ in range(found)},
        survived=[next(names) for _ in range(survived)],
        listed=[next(names) for _ in range(listed)],
    )
    assert score.good == good
    assert score.raw <= score.share


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--count", "0"), ("--count is 0", "at least 1")),
        (("--workers", "-1"), ("--workers is -1", "at least 1")),
    ],
)
def test_unusable_arguments(
    arguments: tuple[str, ...], words: tuple[str, ...], capsys: Captured
) -> None:
    """One line, before a mutant is made."""
    assert main(["mutants", "--generated", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for word in words:
        assert word in err
