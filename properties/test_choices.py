"""The three sources of choices: bounds, repeatability, completeness."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties.choices import MOST_ENUMERATED, WORD_BYTES, Choices, Every, FromHypothesis, Seeded
from properties.choices import TooManyChoices as TooMany

# ---- bounds --------------------


def decisions(choices: Choices) -> list[Any]:
    """One of each kind of decision, each checked against its bounds."""
    low = choices.integer(-3, 3)
    high = low + choices.integer(0, 4, (0, 4, 9, -9))
    assert -3 <= low <= high <= low + 4
    wild = choices.integer(low, high, (low - 1, high + 1))
    assert low <= wild <= high
    flag = choices.boolean()
    assert isinstance(flag, bool)
    options = list(range(high - low))
    picked = choices.pick(("a", "b", "c"))
    assert picked in ("a", "b", "c")
    least = min(1, len(options))
    part = choices.subset(options, least, 2)
    assert part == sorted(set(part))
    assert set(part) <= set(options)
    assert least <= len(part) <= 2
    whole = choices.subset(options)
    assert whole == sorted(set(whole))
    assert set(whole) <= set(options)
    return [low, high, wild, flag, picked, part, whole]


def test_seeded_stays_inside() -> None:
    """Whatever the seed, a seeded decision lies within its bounds, and the edges come up."""
    seen = [decisions(Seeded(seed)) for seed in range(2000)]
    assert {each[0] for each in seen} == set(range(-3, 4))
    assert {each[1] - each[0] for each in seen} == set(range(5))
    assert {each[3] for each in seen} == {False, True}
    assert {len(each[5]) for each in seen} == {0, 1, 2}
    assert {len(each[6]) for each in seen} == set(range(5))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_hypothesis_stays_inside(data: st.DataObject) -> None:
    """Whatever Hypothesis draws, a decision lies within its bounds."""
    decisions(FromHypothesis(data.draw))


def words(seed: int, drawn: list[bytes]) -> FromHypothesis:
    """Choices from words that are random, as Hypothesis's are; each is noted in `drawn`."""
    source = random.Random(seed)

    def draw(_: Any) -> bytes:
        drawn.append(source.randbytes(WORD_BYTES))
        return drawn[-1]

    return FromHypothesis(draw)


def test_digits_of_words_are_even() -> None:
    """Every value of a choice comes up as often as the others, however many were drawn before."""
    choices = words(0, [])
    for count in (2, 3, 7, 10, 100):
        counts = Counter(choices.integer(0, count - 1) for _ in range(400 * count))
        assert set(counts) == set(range(count))
        assert all(280 < found < 530 for found in counts.values()), counts
    subsets = Counter(tuple(choices.subset("abcd", 2, 2)) for _ in range(2400))
    assert len(subsets) == 6
    assert all(310 < found < 490 for found in subsets.values()), subsets
    favoured = [choices.integer(0, 99, (17,)) for _ in range(4000)].count(17)
    assert 1450 < favoured < 1850


def test_a_word_serves_many_choices() -> None:
    """A word is drawn only when the last one has too few bits left; wide choices take several."""
    drawn: list[bytes] = []
    choices = words(1, drawn)
    for _ in range(160):
        choices.integer(0, 15)
    assert len(drawn) in range(10, 14)  # 16 digits of 4 bits in a word, less its last ones
    drawn.clear()
    wide = [choices.integer(0, 2**200 - 1) for _ in range(50)]
    assert max(wide) > 2**198
    assert len(drawn) in range(150, 170)


@pytest.mark.parametrize("most", [None, 0, 1, 3, 9])
def test_subset_of_few(most: int | None) -> None:
    """A subset asked to be larger than its options is all of them; one of nothing is empty."""
    for source in (Seeded(0), Seeded(1), words(0, []), words(1, [])):
        assert source.subset([], 2, most) == []
        assert source.subset([5], 4, most) in ([5], [])
        assert len(source.subset([5, 6, 7], 2, 3)) in (2, 3)


def test_same_seed_same_draws() -> None:
    """A seed, number or word, gives the same decisions again; another seed gives others."""
    for seed in (0, 7, "paged/7/0"):
        one, two = Seeded(seed), Seeded(seed)
        assert [decisions(one) for _ in range(20)] == [decisions(two) for _ in range(20)]
    assert [decisions(Seeded(0)) for _ in range(3)] != [decisions(Seeded(1)) for _ in range(3)]


def test_favoured_values_are_favoured() -> None:
    """A favoured value comes up more often than another, and the others still do."""
    source = Seeded(3)
    counts = Counter(source.integer(0, 99, (17,)) for _ in range(4000))
    assert counts[17] > 1000
    assert len(counts) == 100


# ---- enumeration --------------------


def walked(draw: Callable[[Choices], Any]) -> list[Any]:
    return list(Every("a test").walk(draw))


def test_every_walks_all_combinations_once() -> None:
    """The enumeration gives each combination of choices exactly once."""

    def draw(choices: Choices) -> tuple[int, bool, str]:
        return choices.integer(2, 4, (3,)), choices.boolean(), choices.pick("xy")

    found = walked(draw)
    assert len(found) == len(set(found)) == 3 * 2 * 2
    assert set(found) == set(itertools.product((2, 3, 4), (False, True), "xy"))


def test_every_walks_choices_that_depend_on_choices() -> None:
    """Later choices may depend on earlier ones; each path comes once."""

    def draw(choices: Choices) -> tuple[int, ...]:
        return tuple(choices.integer(0, n) for n in range(choices.integer(0, 3)))

    found = walked(draw)
    assert len(found) == len(set(found)) == 1 + 1 + 2 + 2 * 3
    assert (0, 1, 2) in found


@pytest.mark.parametrize(("least", "most"), list(itertools.product(range(5), (None, 0, 1, 2, 9))))
def test_every_walks_all_subsets(least: int, most: int | None) -> None:
    """The enumeration of subsets gives exactly those of the sizes asked for."""
    options = (4, 5, 6, 7)
    largest = 4 if most is None else min(most, 4)
    found = [tuple(each) for each in walked(lambda choices: choices.subset(options, least, most))]
    assert len(found) == len(set(found))
    if least <= largest:
        sizes = range(least, largest + 1)
        assert set(found) == {c for n in sizes for c in itertools.combinations(options, n)}


def test_every_without_a_choice() -> None:
    """A draw that decides nothing has one path."""
    assert walked(lambda choices: 5) == [5]
    assert walked(lambda choices: choices.integer(3, 3)) == [3]


def test_every_refuses_large_choices_by_name() -> None:
    """A single choice of more values than the bound is refused with the command's name."""
    assert len(walked(lambda choices: choices.integer(1, MOST_ENUMERATED))) == MOST_ENUMERATED
    large: list[Callable[[Choices], Any]] = [
        lambda choices: choices.integer(0, MOST_ENUMERATED),
        lambda choices: choices.pick(range(MOST_ENUMERATED + 1)),
        lambda choices: choices.integer(0, 2**40, (1,)),
    ]
    for draw in large:
        with pytest.raises(TooMany, match=r"free_page_ids: .* allows 64"):
            list(Every("free_page_ids").walk(draw))


def test_every_notices_a_draw_with_a_will_of_its_own() -> None:
    """A draw that isn't a function of its choices is an error, not a wrong enumeration."""
    sizes = iter((2, 3, 4))

    def draw(choices: Choices) -> int:
        return choices.integer(0, 1) + choices.integer(1, next(sizes))

    with pytest.raises(RuntimeError, match="a test"):
        walked(draw)
