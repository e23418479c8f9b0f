"""The row reference against the second oracle: all short sequences, and long seeded ones (§2).

Compared after each call: answer, free list, generations, held rows and the reference's audit.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import reference
from properties.choices import Seeded
from reference import oracle

Call = tuple[str, dict[str, Any]]
OPERATIONS = {
    "alloc_rows": oracle.alloc_rows,
    "free_rows": oracle.free_rows,
    "clear": oracle.clear_rows,
}


def agree(target: reference.ReqToTokenPool, pool: oracle.Rows, call: Call) -> oracle.Rows:
    """One call on both; the oracle's next pool, once all is equal."""
    method, kwargs = call
    operation: Any = OPERATIONS[method]
    pool, expected = operation(pool, **kwargs)
    found: oracle.Answer
    try:
        value = getattr(target, method)(**kwargs)
        found = None if value is None else tuple(value)
    except reference.Refused as refusal:
        found = refusal.kind
    assert found == expected, call
    state = target.snapshot()
    assert state["free"] == list(pool.free), call
    assert state["generations"] == list(pool.generations), call
    assert state["held"] == sorted(pool.held), call
    assert target.available_size() == len(pool.free)
    assert target.audit() == []
    return pool


def every_call(size: int) -> Iterator[Call]:
    """All calls with small arguments."""
    yield "clear", {}
    for count in range(-1, size + 2):
        yield "alloc_rows", {"need_size": count}
    for length in range(3):
        for rows in itertools.product(range(-1, size + 2), repeat=length):
            yield "free_rows", {"indices": list(rows)}


@pytest.mark.parametrize(("size", "depth"), [(0, 3), (1, 4), (2, 3), (3, 2)])
def test_every_short_sequence(size: int, depth: int) -> None:
    """Every sequence of small calls, to a depth, has one answer at each step."""
    calls = list(every_call(size))
    level = [(reference.ReqToTokenPool(size, 4), oracle.row_pool(size))]
    for _ in range(depth):
        below = {}
        for (target, pool), call in itertools.product(level, calls):
            fork = copy.deepcopy(target)
            after = agree(fork, pool, call)
            # Equal pools answer alike: agreement has just been compared in full.
            below[after] = (fork, after)
        level = list(below.values())
    assert len(level) > size


def test_long_runs() -> None:
    """Long runs on pools of up to nine rows have one answer at each step."""
    for seed in range(60):
        choices = Seeded(f"oracle rows/{seed}")
        size = choices.integer(0, 9)
        target, pool = reference.ReqToTokenPool(size, 4), oracle.row_pool(size)
        for _ in range(100):
            draw = choices.integer(0, 11)
            call: Call = "alloc_rows", {"need_size": choices.integer(0, 3, (-1, size))}
            if draw == 0:
                call = "clear", {}
            elif draw < 5:
                held = choices.subset(sorted(pool.held), 0, 3)
                call = "free_rows", {"indices": held[::-1] if choices.boolean() else held}
            elif draw == 5:
                rows = [choices.integer(-1, size + 1) for _ in range(choices.integer(0, 3))]
                call = "free_rows", {"indices": rows}
            pool = agree(target, pool, call)
