"""What an accelerator runs of the torch form, on the CPU: torch's arrays beside numpy's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch

from impl.kernels import arrays
from impl.kernels.arrays import Arrays, DeviceArrays, HostArrays
from impl.kernels.extend import HALF, MAX_ARRAY_LENGTH, PAGES, TOKENS, ExtendPlan, plan
from properties.machine import fail
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS

STEPS = 3000
SIDES = (HostArrays(), DeviceArrays(torch.device("cpu")))
Ask = Callable[[Arrays, random.Random], Any]


def unreadable(tensor: torch.Tensor, *_: Any) -> None:
    """Stands in for a tensor of an accelerator, which numpy can't look at."""
    raise TypeError(f"numpy looks at a tensor of {tensor.shape}")


@pytest.mark.parametrize("system", ["token", "paged", "paged_rows"])
def test_torchs_arrays_in_lockstep(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool on torch's own operations does what the reference does, like one on numpy's."""
    monkeypatch.setattr(arrays, "of", DeviceArrays)
    plan_ = Plan(system=SYSTEMS[system], factory=load("impl:torch"), seed=3)
    monkeypatch.setattr(torch.Tensor, "__array__", unreadable)
    tally, finding = run_steps(plan_, STEPS)
    if finding is not None:
        fail(finding, plan_)
    assert tally.steps >= STEPS


def ids(side: Arrays, rng: random.Random, most: int = 9, dtype: Any = torch.int64) -> Any:
    """Up to 12 ids as an array of this side, the same for both."""
    drawn = [rng.randint(0, most) for _ in range(rng.randint(0, 12))]
    return side.view(torch.tensor(drawn, dtype=dtype))


def spread(side: Arrays, rng: random.Random) -> Any:
    counts = [rng.randint(0, 4) for _ in range(rng.randint(1, 5))]
    firsts = side.view(torch.tensor([rng.randint(1, 99) for _ in counts]))
    starts = list(accumulate(counts, initial=0))
    sides = np.array(starts[:-1]), np.array(counts)
    return side.spread(firsts, *sides, starts[-1])


def look(side: Arrays, rng: random.Random) -> Any:
    table = side.view(torch.tensor([5, 6, 7, 8]))
    return side.look(table, side.view(torch.tensor([rng.randint(-3, 9) for _ in range(6)])))


def same(side: Arrays, rng: random.Random) -> Any:
    one = ids(side, rng)
    other = side.copy(one)
    if len(other) and rng.random() < 0.5:
        other[rng.randrange(len(other))] += 1
    return side.all_hold([side.same(one, other)])


def all_hold(side: Arrays, rng: random.Random) -> Any:
    truths = [rng.choice((True, True, True, False)) for _ in range(rng.randint(0, 2))]
    distinct = [side.once(ids(side, rng, 40)) for _ in range(rng.randint(0, 3))]
    return side.all_hold([*truths, *distinct])


ASKS: dict[str, Ask] = {
    "ids": lambda side, rng: side.ids(torch.tensor([3, 1], dtype=rng.choice((torch.int32, None)))),
    "tensor": lambda side, rng: side.tensor(ids(side, rng)),
    "send": lambda side, rng: side.send(np.array([4, 5]), np.array([], np.int64), np.array([6]))[
        rng.randrange(3)
    ],
    "zeros": lambda side, rng: side.zeros(rng.randint(0, 4)),
    "wide": lambda side, rng: side.wide(ids(side, rng, dtype=torch.int32)),
    "narrow": lambda side, rng: side.narrow(ids(side, rng)),
    "copy": lambda side, rng: side.copy(ids(side, rng)),
    "joined": lambda side, rng: side.joined([ids(side, rng) for _ in range(rng.randint(1, 3))]),
    "sorted": lambda side, rng: side.sorted(ids(side, rng)),
    "distinct": lambda side, rng: side.distinct(ids(side, rng, rng.choice((1, 9, 99)))),
    "look": look,
    "spread": spread,
    "same": same,
    "all are": lambda side, rng: side.all_hold(
        [side.all_are(ids(side, rng, rng.choice((0, 3)), torch.uint8), 0)]
    ),
    "all zero": lambda side, rng: side.all_hold([side.all_zero(ids(side, rng, 1))]),
    "once": lambda side, rng: side.all_hold([side.once(ids(side, rng, rng.choice((9, 99))))]),
    "all hold": all_hold,
}


def shown(value: Any) -> tuple[str, Any]:
    """Dtype and content."""
    if isinstance(value, bool):
        return "bool", value
    return str(value.dtype).removeprefix("torch."), value.tolist()


@pytest.mark.parametrize("name", ASKS)
def test_both_sides_agree(name: str) -> None:
    """Each operation gives the same on numpy's arrays and on torch's, dtype included."""
    for seed in range(60):
        ours, theirs = (shown(ASKS[name](side, random.Random(f"{name} {seed}"))) for side in SIDES)
        assert ours == theirs, seed


@pytest.mark.parametrize("side", SIDES, ids=["numpy", "torch"])
def test_storage(side: Arrays) -> None:
    """A view is of the pool's memory, and what has storage of its own is not."""
    tensor = torch.tensor([1, 2, 3])
    view = side.view(tensor)
    for own in (
        side.copy(view), side.joined([view]), side.sorted(view), side.distinct(view),
        side.narrow(view), side.wide(side.narrow(view)),
    ):  # fmt: skip
        own[0] = 9
        assert tensor.tolist() == [1, 2, 3]
    view[0] = 7
    assert tensor.tolist() == [7, 2, 3]
    assert side.tensor(view)[0] == 7
    assert side.empty(3).shape == (3,)
    assert shown(side.empty(0)) == ("int64", [])


# ---- plans of lengths that no array can sum --------------------


def huge(rng: random.Random) -> Iterator[tuple[list[int], list[int], int]]:
    """Batches with a length beyond what is summed in arrays, and their page size."""
    for _ in range(200):
        size = rng.choice((1, 2, 3, 48))
        prefix = [rng.choice((0, 1, size, rng.randint(0, 99), 2**61 + rng.randint(0, 99)))
                  for _ in range(rng.randint(1, 5))]  # fmt: skip
        prefix[0] = MAX_ARRAY_LENGTH + rng.randint(0, 99)
        most = rng.choice((5, 5, 5, 2**61))
        yield prefix, [each + rng.randint(0, most) for each in prefix], size


def by_hand(prefix: list[int], seq: list[int], size: int) -> list[tuple[int, int, int]]:
    """New tokens, new pages and whether a half-filled page goes on, request for request."""
    return [
        (end - begin, -(-end // size) - -(-begin // size), int(begin % size > 0))
        for begin, end in zip(prefix, seq, strict=True)
    ]


def test_plans_of_huge_lengths() -> None:
    """Counts are exact; where a pool could hold the new tokens, so is the placement."""
    placed = 0
    for prefix, seq, size in huge(random.Random(1)):
        found = plan(np.array(prefix), np.array(seq), size)
        assert found is not None
        wanted = by_hand(prefix, seq, size)
        assert found.num_tokens == sum(tokens for tokens, _, _ in wanted)
        assert found.num_pages == sum(pages for _, pages, _ in wanted)
        if found.num_tokens < MAX_ARRAY_LENGTH:
            placed += 1
            require_placed(found, prefix, wanted, size)
        else:
            assert found.each.shape == found.before.shape == (4, 0)
            assert found.offsets.shape == (0,)
    assert 50 < placed < 180


def require_placed(
    found: ExtendPlan, prefix: list[int], wanted: list[tuple[int, int, int]], size: int
) -> None:
    """The rows of a plan are what counts request for request."""
    assert found.offsets.tolist() == [each % size for each in prefix]
    # who is fresh stays so, and nobody else becomes it
    assert (found.prefix_lens > 0).tolist() == [each > 0 for each in prefix]
    for row, column in zip((TOKENS, PAGES, HALF), zip(*wanted, strict=True), strict=True):
        assert found.each[row].tolist() == list(column)
        assert found.before[row].tolist() == list(accumulate(column, initial=0))[:-1]


@pytest.mark.parametrize(
    ("prefix", "seq"),
    [
        ([2**50, -1], [2**50, 4]),
        ([2**50], [2**50 - 1]),
        ([0, 5], [2**60, 4]),
        ([-(2**60)], [2**60]),
    ],
)
def test_huge_lengths_that_contradict(prefix: list[int], seq: list[int]) -> None:
    """There is no plan for a negative prefix or one longer than its sequence."""
    assert plan(np.array(prefix), np.array(seq), 4) is None
