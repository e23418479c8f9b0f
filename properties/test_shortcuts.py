"""Legal use is seen to be legal at a look: the searches that name a fault are for what has one.

Spec: DESIGN, "impl: how every class behaves". A check that is too strict would only cost time, and
no comparison of results would show it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from impl import checks, errors
from impl.allocators import (
    batches,
    faults,
    page_book,
    row_batches,
    slot_book,
    window_moves,
)
from impl.kernels import arrays
from properties.machine import fail
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS

STEPS = 3000
#: where each search begins
SEARCHES = (
    (errors, "refuse"),
    (checks, "ids_fault"),
    (batches, "argument_errors"),
    (row_batches, "argument_errors"),
    (row_batches, "_row_faults"),
    (page_book.PageBook, "_refuse_batch"),
    (page_book.PageBook, "_refuse_slots"),
    (page_book.PageBook, "_refuse_segments"),
    (slot_book.SlotBook, "_refuse"),
    (window_moves, "_refuse"),
    *((faults, name) for name in vars(faults) if name.startswith("of_")),
)


def never(name: str) -> Callable[..., Any]:
    def search(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"{name} was called although nothing is wrong")

    return search


@pytest.mark.parametrize("on", [arrays.HostArrays, arrays.DeviceArrays])
@pytest.mark.parametrize("system", ["token", "paged", "paged_rows", "swa"])
def test_legal_use_is_not_searched(system: str, on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call of a run without misuse looks for what might be wrong with it."""
    for where, name in SEARCHES:
        if system == "swa" and name == "ids_fault":
            continue  # two pairs of arguments are looked at together
        assert inspect.isfunction(getattr(where, name))
        monkeypatch.setattr(where, name, never(name))
    if on is arrays.DeviceArrays:
        monkeypatch.setattr(arrays, "of", on)
    plan = Plan(system=SYSTEMS[system], factory=load("impl:torch"), seed=4, misuse=False)
    tally, finding = run_steps(plan, STEPS)
    if finding is not None:
        fail(finding, plan)
    served = sum(n for (_, kind), n in tally.outcomes.items() if kind == "served")
    assert served > STEPS / 3
