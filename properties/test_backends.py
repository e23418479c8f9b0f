"""Both backends of ours in lockstep, whichever is the default here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from impl import (
    PagedTokenToKVPoolAllocator,
    PoolError,
    ReqToTokenPool,
    TokenToKVPoolAllocator,
)
from properties.machine import fail
from properties.refused import ForeignStream
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.subjects.impl import default_device, systems
from properties.systems import SYSTEMS

# An interpreted call takes some milliseconds; compiled ones are the default on a GPU, and get the
# long runs of each system's own test there.
STEPS = {"impl:torch": 3_000, "impl:triton": 500}
# Where a step is several calls, so many of those make one.
CALLS = {"engine": 3}


def require(backend: str) -> None:
    """Skips where the backend can't run."""
    if "paged" not in systems(backend):
        pytest.skip(f"backend {backend} needs triton: pip install triton")


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("system", ["token", "paged", "paged_rows", "swa", "engine"])
def test_backend(name: str, system: str) -> None:
    """No seeded sequence of commands tells a backend from the reference."""
    factory = load(name)
    if not factory.has(system):
        pytest.skip("backend triton needs triton: pip install triton")
    plan = Plan(system=SYSTEMS[system], factory=factory, seed=1)
    _, finding = run_steps(plan, STEPS[name] // CALLS.get(system, 1))
    if finding is not None:
        fail(finding, plan)


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("narrow", [False, True])
def test_strided_arguments(backend: str, narrow: bool) -> None:
    """The row table and all arguments may be strided views: what is written reaches the table."""
    require(backend)
    device, dtype = default_device(), torch.int32 if narrow else torch.int64
    table = ReqToTokenPool(3, 8, device=device)
    whole = torch.zeros((4, 24), dtype=torch.int32, device=device)
    table.req_to_token = whole[:, 1:24:3]
    pool = PagedTokenToKVPoolAllocator(32, 4, device=device, backend=backend)
    assert table.alloc_rows(2) == [2, 3]

    def both(*values: int) -> tuple[torch.Tensor, torch.Tensor]:
        spread = torch.full((len(values), 2), -7, dtype=dtype)
        spread[:, 0] = torch.tensor(values)
        return spread.to(device)[:, 0], spread[:, 0]

    rows = both(3, 2)
    slots = pool.alloc_extend_rows(table, *rows, *both(0, 0), *both(5, 2), 7)
    assert slots is not None
    assert slots.tolist() == [4, 5, 6, 7, 8, 12, 13]
    slots = pool.alloc_decode_rows(table, *rows, *both(6, 3))
    assert slots is not None
    assert slots.tolist() == [9, 14]
    pool.check()
    assert table.req_to_token[2:].tolist() == [[12, 13, 14] + [0] * 5, [4, 5, 6, 7, 8, 9, 0, 0]]
    assert whole.sum() == table.req_to_token.sum(), "something between the columns was written"
    pool.free_rows_segment(table.handle(3), 0, 6)
    pool.free_segments([(both(12, 13, 14)[0], 0)])
    assert pool.available_size() == 32
    assert pool.audit() == []


# ---- faults that arrive later --------------------

ROW = torch.tensor([3])
LENS = (torch.tensor([0]), torch.tensor([0]), torch.tensor([3]), torch.tensor([3]))
OTHER = torch.tensor([4])
#: a call of a pool of 8 pages of 4, with row 3 held, whose fault only the device sees: its kind,
#: what is said of it, the call
LATE: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "alloc_extend": (
        "BadLengths",
        "(0, 4) on the device",
        lambda p, t: p.alloc_extend(*LENS[:2], OTHER, LENS[3], torch.tensor([-1]), 3),
    ),
    "alloc_decode": (
        "BadLengths",
        "(3, 4) on the device",
        lambda p, t: p.alloc_decode(OTHER, torch.tensor([1]), torch.tensor([-1])),
    ),
    "alloc_extend_rows": (
        "BadLengths",
        "(0, 4) on the device, (0, 3) on the host (row 3",
        lambda p, t: p.alloc_extend_rows(t, ROW, ROW, *LENS[:2], OTHER, LENS[3], 3),
    ),
    "alloc_decode_rows": (
        "BadLengths",
        "(3, 4) on the device",
        lambda p, t: p.alloc_decode_rows(t, ROW, ROW, OTHER, torch.tensor([1])),
    ),
    "free_page_ids": ("NotOwned", "id 8", lambda p, t: p.free_page_ids(torch.tensor([8]))),
    "free_segments": (
        "NotOwned",
        "slot 32 (page 8)",
        lambda p, t: p.free_segments([(torch.tensor([32]), 0)]),
    ),
    "free_rows_segment": (
        "Reserved",
        "slot 0 (page 0)",
        lambda p, t: p.free_rows_segment(t.handle(3), 0, 1, table=t),
    ),
}


@pytest.mark.parametrize("call", LATE)
def test_a_late_fault_arrives(call: str) -> None:
    """The next call raises it, whatever it is; the pool goes on where it was before the fault."""
    require("triton")
    if default_device() != "cpu":
        pytest.skip("on a GPU a fault arrives whenever its copy does: properties.performance.gpu")
    kind, words, act = LATE[call]
    table = ReqToTokenPool(3, 8, device="cpu")
    pool = PagedTokenToKVPoolAllocator(32, 4, device="cpu", backend="triton")
    assert table.alloc_rows(1) == [3]
    assert pool.alloc(8) is not None
    before = pool.snapshot()
    act(pool, table)
    with pytest.raises(PoolError, match=f"^{call}: ") as caught:
        pool.available_size()
    assert type(caught.value).__name__ == kind
    assert words in str(caught.value)
    assert "(call 2 of this pool)" in str(caught.value)
    pool.recover()
    assert pool.snapshot() == {**before, "bound": pool.snapshot()["bound"]}
    assert pool.available_size() == 24


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_a_decode_holds_the_page_that_it_opens(backend: str) -> None:
    """Behind pages that nobody in particular holds too, and no longer once they are given back."""
    require(backend)
    device = default_device()
    table = ReqToTokenPool(3, 8, device=device)
    pool = PagedTokenToKVPoolAllocator(32, 4, device=device, backend=backend)
    row, slots = 3, pool.alloc(4)
    assert table.alloc_rows(1) == [row]
    assert slots is not None
    table.req_to_token[row, :4] = slots.to(torch.int32)
    rows, lens = torch.tensor([row]), torch.tensor([5])
    pool.alloc_decode_rows(table, rows.to(device), rows, lens.to(device), lens)
    assert pool.snapshot()["holders"] == {1: "anonymous", 2: (row, 1)}
    pool.free_page_ids(torch.tensor([2], device=device))
    assert pool.snapshot()["holders"] == {1: "anonymous"}
    pool.check()
    assert pool.audit() == []


@pytest.mark.parametrize("call", ["alloc", "check", "recover"])
@pytest.mark.parametrize("make", [TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator])
def test_a_foreign_stream_is_noticed(make: Any, call: str) -> None:
    """Where faults are deferred too, by every call that waits for none or for all of them."""
    require("triton")
    size = (8,) if make is TokenToKVPoolAllocator else (8, 2)
    pool = make(*size, device=default_device(), backend="triton")
    pool._book.stream = ForeignStream()
    with pytest.raises(InterruptedError):
        getattr(pool, call)(*[2] * (call == "alloc"))
