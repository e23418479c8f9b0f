"""The catalogue of invariants: the numbers of the bug list, and all that can be raised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import impl
import properties
import reference
from properties.choices import Seeded
from properties.invariants import (
    CATALOGUE,
    Violation,
    of_missed_refusal,
    of_wrongful_refusal,
    violation,
)
from properties.systems import SYSTEMS

# The list at the end of `bugs.md`, family by family, as it stands there.
FREE_LIST = (1, 2, 3, 4, 5, 34, 51, 19)
ALLOCATION = (6, 7, 8, 9, 71, 10, 11, 12, 54, 67, 68, 52, 53)
FREES = (20, 21, 22, 35, 36, 55)
ROWS = (25, 26, 27, 28, 29, 30, 13, 32, 33, 41, 44, 31, 65, 66)
HYBRID = (17, 18, 23, 24, 47, 50, 16, 48, 49, 37, 38)
SIZING = (14, 15, 39, 61, 62)
SHARING = (40, 42, 43, 45, 46, 63, 64, 69, 70)
CONTENT = (56, 57, 58, 59, 60)
LISTED = FREE_LIST + ALLOCATION + FREES + ROWS + HYBRID + SIZING + SHARING + CONTENT

HOUSE = Path(properties.__file__).parent
# What can raise, or hand up for raising: drivers' and tests' words about invariants don't count.
RAISING = (
    HOUSE / "lockstep.py",
    HOUSE / "commands.py",
    HOUSE / "invariants.py",
    *sorted((HOUSE / "systems").glob("*.py")),
    *sorted((HOUSE / "subjects").glob("*.py")),
    Path(reference.__file__).parent / "ledger.py",
    *sorted(Path(impl.__file__).parent.rglob("*.py")),
)
LITERAL = re.compile(r'f?"(I\d+)[":]')


def raised() -> dict[str, list[str]]:
    """Invariants that occur as a literal in what can raise them, with the files."""
    found: dict[str, list[str]] = {}
    for path in RAISING:
        for number in LITERAL.findall(path.read_text()):
            found.setdefault(number, []).append(path.name)
    return found


def test_catalogue_is_the_list() -> None:
    """The catalogue has the numbers of the bug list, each once, and no other."""
    assert len(set(LISTED)) == len(LISTED)
    assert list(CATALOGUE) == [f"I{number}" for number in sorted(LISTED)]


@pytest.mark.parametrize("number", CATALOGUE)
def test_entry(number: str) -> None:
    """An entry is a class named as its number, says what must hold, and tells it when raised."""
    cls = CATALOGUE[number]
    assert cls.__name__ == cls.number == number
    assert issubclass(cls, Violation)
    assert issubclass(cls, AssertionError)
    assert cls.__doc__ == f"{number}: {cls.statement}."
    assert len(cls.statement.split()) >= 3
    assert not cls.statement.endswith(".")
    made = violation(number, "page 3 is lost")
    assert type(made) is cls
    assert str(made) == f"{number} ({cls.title}): page 3 is lost"
    assert made.message == "page 3 is lost"


def test_titles_are_distinct() -> None:
    """No two invariants have one title or one statement: a message names exactly one."""
    assert len({cls.title for cls in CATALOGUE.values()}) == len(CATALOGUE)
    assert len({cls.statement for cls in CATALOGUE.values()}) == len(CATALOGUE)
    assert all(0 < len(cls.title) <= 30 for cls in CATALOGUE.values())


def test_what_is_raised_is_here() -> None:
    """Every invariant that a check can raise is in the catalogue and waits for no other system."""
    found = raised()
    assert {"I1", "I2", "I9", "I11", "I21", "I28", "I34", "I54", "I66", "I68", "I71"} <= set(found)
    for number, files in found.items():
        assert number in CATALOGUE, f"{number} in {files}"
        assert CATALOGUE[number].waits_for == "", f"{number} in {files} waits for its check"


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_differences_are_in_the_catalogue(name: str) -> None:
    """What a difference in a part of the snapshot is about is in the catalogue, for real parts."""
    system = SYSTEMS[name]
    config = system.config.draw(Seeded(0), {})
    target = system.reference(config)
    model = system.model(config, target.target)
    assert set(model.difference.values()) <= set(CATALOGUE)
    assert set(model.difference) <= set(target.observe())


@pytest.mark.parametrize("kind", reference.KINDS)
def test_every_kind_of_refusal_has_an_invariant(kind: str) -> None:
    """A missed or wrongful refusal of any kind breaks an invariant that is checked here."""
    for number in (of_missed_refusal(kind), of_wrongful_refusal(kind)):
        assert CATALOGUE[number].waits_for == ""


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("GroupOpen", "I21"),
        ("GroupNotOpen", "I21"),
        ("Misaligned", "I36"),
        ("OverlappingSegments", "I36"),
        ("NotConsecutive", "I36"),
        ("StaleHandle", "I28"),
        ("NegativeSize", "I68"),
        ("DoubleFree", "I4"),
        ("TooMany", "I4"),
        ("Unsupported", "I4"),
    ],
)
def test_missed_refusals(kind: str, number: str) -> None:
    """A missed refusal names the invariant of its kind, as DESIGN lists them."""
    assert of_missed_refusal(kind) == number
