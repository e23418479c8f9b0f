"""Both backends of ours in lockstep, whichever is the default here."""

from __future__ import annotations

import pytest
import torch

from impl import PagedTokenToKVPoolAllocator, ReqToTokenPool
from properties.machine import fail
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.subjects.impl import default_device, systems
from properties.systems import SYSTEMS

# An interpreted call takes some milliseconds; compiled ones are the default on a GPU, and get the
# long runs of each system's own test there.
STEPS = {"impl:torch": 3_000, "impl:triton": 500}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("system", ["token", "paged", "paged_rows"])
def test_backend(name: str, system: str) -> None:
    """No seeded sequence of commands tells a backend from the reference."""
    factory = load(name)
    if not factory.has(system):
        pytest.skip("backend triton needs triton: pip install triton")
    plan = Plan(system=SYSTEMS[system], factory=factory, seed=1)
    _, finding = run_steps(plan, STEPS[name])
    if finding is not None:
        fail(finding, plan)


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("narrow", [False, True])
def test_strided_arguments(backend: str, narrow: bool) -> None:
    """The row table and all arguments may be strided views: what is written reaches the table."""
    if "paged" not in systems(backend):
        pytest.skip("backend triton needs triton: pip install triton")
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
