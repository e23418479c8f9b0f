"""What commands choose from in a scope: few values, all of them, and each but once.

A model that has a `Scope` is walked exhaustively. There a batch is any selection of requests in any
order, since states that differ in the names of requests alone are one; amounts go from nothing to
one more than fits; what only converts arguments is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from properties.choices import Choices


def batch(
    choices: Choices, live: Sequence[int], fresh: Sequence[int], least: int, most: int
) -> Iterator[int]:
    """Any selection of these names in any order, each chosen when it is asked for.

    Fresh ones are alike, and come in their order.
    """
    known, unused = list(live), list(fresh)
    for chosen in range(min(most, len(known) + len(unused))):
        at = choices.integer(0 if chosen < least else -1, len(known) - (not unused))
        if at < 0:
            return
        yield known.pop(at) if at < len(known) else unused.pop(0)


def amount(choices: Choices, fits: int, least: int = 0) -> int:
    """How much a request takes: up to one more than fits."""
    return choices.integer(least, fits + 1)
