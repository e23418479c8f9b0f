"""Feedback: what counts as a feature, where it was first met, what is news."""

from __future__ import annotations

from fuzz.campaign.features import Watch, news
from properties.commands import SHORT, Outcome

SERVED = Outcome("served", [1])


def test_places_of_features() -> None:
    """A round shows commands with outcomes, situations one by one and together, and pairs."""
    watch = Watch()
    watch.note("alloc", SERVED, (), 0.0)
    watch.note("free", Outcome("refused", "DoubleFree"), ("inside a group",), 0.0)
    watch.note("alloc", SHORT, ("exactly full", "after clear"), 0.0)
    watch.note("alloc", SERVED, ("after clear",), 0.0)
    assert watch.places() == {
        "alloc served": 1,
        "free DoubleFree": 2,
        "free DoubleFree: inside a group": 2,
        "alloc > free": 2,
        "alloc short": 3,
        "alloc short: exactly full": 3,
        "alloc short: after clear": 3,
        "alloc short: exactly full + after clear": 3,
        "free > alloc": 3,
        "alloc served: after clear": 4,
        "alloc > alloc": 4,
    }
    assert watch.steps == 4


def test_first_place_counts() -> None:
    """A feature's place is where it was first met, in whatever company."""
    watch = Watch()
    for situations in (("a", "b"), ("a",), ("b",)):
        watch.note("alloc", SERVED, situations, 0.0)
    found = watch.places()
    assert found["alloc served: a"] == found["alloc served: b"] == 1
    assert found["alloc served: a + b"] == 1


def test_news() -> None:
    """News is what nobody knew, or what came at least a quarter sooner."""
    known = {"old": 100, "sooner": 100, "little": 100}
    found = {"old": 200, "sooner": 74, "little": 75, "new": 7}
    assert news(found, known) == {"sooner": 74, "new": 7}
