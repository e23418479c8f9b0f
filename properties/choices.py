"""Where every random decision of the harness comes from: one interface, three sources.

A command draws itself from a `Choices` and never knows which: Hypothesis, a seeded generator
(several times faster), or the enumeration of all possibilities on a tiny pool.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

# How often a favoured value is taken where one fits: boundary values carried the real bugs, and
# above about a half the other values starve.
FAVOUR = 0.4
# A single choice of more values than this makes an enumeration hopeless; it is refused by name.
MOST_ENUMERATED = 64


class Choices(Protocol):
    """A source of decisions; bounds are inclusive."""

    def integer(self, low: int, high: int, favour: Sequence[int] = ()) -> int:
        """An int in [low, high], more often one of `favour` that lies inside."""

    def boolean(self) -> bool:
        """True or False."""

    def once_in(self, count: int) -> bool:
        """True once in `count` times."""

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, which are not empty; one that stands there twice, twice as often."""

    def subset(self, options: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        """Between `least` and `most` of the options, in their order."""


class Seeded:
    """Choices from a seeded pseudo-random generator."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._next = self._random.random

    def integer(self, low: int, high: int, favour: Sequence[int] = ()) -> int:
        if favour and self._next() < FAVOUR:
            value = favour[int(self._next() * len(favour))]
            if low <= value <= high:
                return value
        return low + int(self._next() * (high - low + 1))

    def boolean(self) -> bool:
        return self._next() < 0.5

    def once_in(self, count: int) -> bool:
        return self._next() * count < 1

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._next() * len(options))]

    def subset(self, options: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        most = len(options) if most is None else min(most, len(options))
        count = min(least + int(self._next() * (most - least + 1)), len(options))
        if count >= len(options):
            return list(options)
        chosen: set[int] = set()
        while len(chosen) < count:
            chosen.add(int(self._next() * len(options)))
        return [options[i] for i in sorted(chosen)]


class FromHypothesis:
    """Choices from Hypothesis's `draw`, so that its database and its mutations apply.

    A draw costs as much there as a whole command here. So one draw gives a word of bits, each
    choice is a digit of it, and the next word is drawn when too few bits are left. Hypothesis likes
    words of zeros; with a `step` they mean something else in each, and no run is of one command.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], step: int = 0) -> None:
        self._draw = draw
        self._mask = step * GOLDEN % 2 ** (8 * WORD_BYTES)
        # `_rest` is even over `_range` values: what is left of the words drawn so far
        self._rest, self._range = 0, 1

    def _below(self, count: int) -> int:
        """An int in [0, count), all alike."""
        while self._range < count * EVEN:
            word: bytes = self._draw(_WORDS)
            value = int.from_bytes(word, "big") ^ self._mask
            self._rest = self._rest << 8 * WORD_BYTES | value
            self._range <<= 8 * WORD_BYTES
        self._range //= count
        self._rest, digit = divmod(self._rest, count)
        return digit

    def integer(self, low: int, high: int, favour: Sequence[int] = ()) -> int:
        if favour and self._below(10) < 10 * FAVOUR:
            value = favour[self._below(len(favour))]
            if low <= value <= high:
                return value
        return low + self._below(high - low + 1)

    def boolean(self) -> bool:
        return self._below(2) == 1

    def once_in(self, count: int) -> bool:
        return self._below(count) == 0

    def pick(self, options: Sequence[T]) -> T:
        return options[self._below(len(options))]

    def subset(self, options: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        most = len(options) if most is None else min(most, len(options))
        count = min(least + self._below(max(0, most - least) + 1), len(options))
        others = list(range(len(options)))
        chosen = [others.pop(self._below(len(others))) for _ in range(count)]
        return [options[i] for i in sorted(chosen)]


# 64 bits: most commands need one word. Bytes, because Hypothesis draws wide integers unevenly.
WORD_BYTES = 8
_WORDS = st.binary(min_size=WORD_BYTES, max_size=WORD_BYTES)
# An odd number whose multiples spread over all words (2^64 divided by the golden ratio).
GOLDEN = 0x9E3779B97F4A7C15
# So many times the values of a choice must be left: no value then comes up 1/64 more often.
EVEN = 64


class TooManyChoices(ValueError):
    """An enumeration met a single choice with more values than it can walk."""


class Every:
    """All choices, one after another: `list(Every(name).walk(draw))` runs `draw` for each path."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path: list[list[int]] = []
        self._depth = 0

    def walk(self, draw: Callable[[Choices], T]) -> Iterator[T]:
        """The result of `draw(self)` along every path of choices, depth first."""
        while True:
            self._depth = 0
            yield draw(self)
            while self._path and self._path[-1][0] + 1 == self._path[-1][1]:
                self._path.pop()
            if not self._path:
                return
            self._path[-1][0] += 1

    def _choose(self, count: int) -> int:
        if count > MOST_ENUMERATED:
            raise TooManyChoices(
                f"{self._name}: one choice of {count} values, enumeration allows {MOST_ENUMERATED}"
            )
        if self._depth == len(self._path):
            self._path.append([0, count])
        value, expected = self._path[self._depth]
        if expected != count:
            raise RuntimeError(f"{self._name}: draw is not a function of its choices")
        self._depth += 1
        return value

    def integer(self, low: int, high: int, favour: Sequence[int] = ()) -> int:
        return low + self._choose(high - low + 1)

    def boolean(self) -> bool:
        return bool(self._choose(2))

    def once_in(self, count: int) -> bool:
        return count == 1 or self.boolean()

    def pick(self, options: Sequence[T]) -> T:
        distinct = list(dict.fromkeys(options))
        return distinct[self._choose(len(distinct))]

    def subset(self, options: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        most = len(options) if most is None else min(most, len(options))
        least = min(least, len(options))
        taken: list[T] = []
        for position, option in enumerate(options):
            left = len(options) - position
            if len(taken) == most:
                break
            if least - len(taken) == left or self._choose(2):
                taken.append(option)
        return taken
