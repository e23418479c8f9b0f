"""Whose turn it is."""

from __future__ import annotations

import pytest

from fuzz.campaign.lanes import FLOOR, Track, charge, part, shares, turn
from fuzz.campaign.task import Lane


def tracks(count: int) -> list[Track]:
    return [Track(Lane(system=f"s{i}", subject="impl")) for i in range(count)]


def test_everybody_is_tried_first() -> None:
    """As long as a lane has done nothing, it gets more than those that have."""
    found = tracks(3)
    found[0].note({"seconds": 1.0}, 100)
    first, *others = shares(found)
    assert first < min(others)


def test_a_short_run_has_time_for_every_lane() -> None:
    """Until each lane had a round, one takes no more than its part of what is left."""
    found, left = tracks(3), 2.0
    found[2].rounds = 1
    assert part(found, left) == left / 2
    found[0].pending = 1
    assert part(found, left) == left
    found[1].pending = 1
    assert part(found, left) == left


def test_time_goes_where_news_are() -> None:
    """A lane with news gets what is over the floor; all shares together are the whole."""
    found = tracks(4)
    for track, fresh in zip(found, (90, 10, 0, 0), strict=True):
        track.note({"seconds": 1.0}, fresh)
    floor = FLOOR / 4
    assert sum(shares(found)) == pytest.approx(1)
    assert shares(found) == pytest.approx([floor + 0.6, floor + 1 / 15, floor, floor])
    for track in found:
        track.news = 0.0
    assert shares(found) == [0.25] * 4


def test_old_news_fade() -> None:
    """What a lane found at its start counts less and less."""
    (track,) = tracks(1)
    track.note({"seconds": 1.0}, 100)
    rates = []
    for _ in range(3):
        track.note({"seconds": 30.0}, 0)
        rates.append(track.news / track.spent)
    assert rates == sorted(rates, reverse=True)
    assert track.news == pytest.approx(12.5)


def test_turns_follow_shares() -> None:
    """Over many turns lanes get their shares, and none starves."""
    found = tracks(2)
    used = [0.0, 0.0]
    for track, fresh in zip(found, (1000, 0), strict=True):
        track.note({"seconds": 1000.0}, fresh)
        track.news, track.spent = float(fresh), 1.0
    for _ in range(1000):
        track = turn(found)
        used[found.index(track)] += 1.0
        charge(track, 1.0, found)
    assert used[1] == pytest.approx(1000 * FLOOR / 2, abs=2)


def test_a_round_under_way_counts() -> None:
    """A lane whose round is under way isn't next again at once."""
    found = tracks(2)
    for track in found:
        track.note({"seconds": 1.0}, 1)
    first = turn(found)
    first.pending += 1
    assert turn(found) is not first
