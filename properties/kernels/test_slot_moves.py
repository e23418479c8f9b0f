"""The kernels that set, move and look at rows of states, against their torch form, in the fence.

Ids at both borders of the pool, padded lanes, faults anywhere; lanes around a tile where one
program looks at all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from impl import MambaPool, NGramPool, PoolError
from impl.kernels.device.common import BLOCK
from impl.states.moves import Moves
from impl.states.shapes import StateParams, StateShape
from properties.kernels.rig import DEVICE
from properties.refused import ids

Act = Callable[["Pools"], Any]


class Pools:
    """A state pool and the contexts of its requests, of `size` slots and two rows of drafts."""

    def __init__(self, backend: str, size: int) -> None:
        shape = StateShape(conv=((1, 3),), temporal=(1, 1, 2), conv_kernel=4)
        self.size = size
        options: dict[str, Any] = {"device": DEVICE, "backend": backend, "spec_state_size": 2}
        self.pool = MambaPool(
            size=size, cache_params=StateParams(shape=shape, layers=(0, 1)),
            mamba_layer_ids=(0, 1), **options,
        )  # fmt: skip
        self.grams = NGramPool(
            size=size, context_len=2, eos_token_id=9, speculative_num_draft_tokens=2, **options
        )
        self.pool.register_slot_state(self.grams)
        for tensor in (*self.pool.mamba_cache.conv, self.pool.mamba_cache.temporal):
            tensor[:] = torch.arange(size + 1, device=DEVICE).view(
                1, -1, 1, *[1] * (tensor.dim() - 3)
            )
        if size:
            slots = torch.arange(1, size + 1, device=DEVICE)
            self.grams.set_context(slots, slots[:, None].repeat(1, 2))

    def ids(self, *numbers: int) -> torch.Tensor:
        return ids(*numbers).to(DEVICE)

    def state(self) -> Any:
        return self.pool.snapshot()


def both(size: int, act: Act) -> tuple[Any, Any]:
    """What each backend makes of a call: its state, or the kind of its refusal."""
    found: list[Any] = []
    for backend in ("triton", "torch"):
        pools = Pools(backend, size)
        before = pools.state()
        try:
            value = act(pools)
            pools.pool.check()
            pools.grams.check()
        except PoolError as error:
            for each in (pools.pool, pools.grams):
                each.recover()
            assert pools.state() == before
            assert pools.pool.audit() == []
            found.append(type(error).__name__)
            continue
        found.append((pools.state(), value.tolist() if torch.is_tensor(value) else value))
        assert pools.pool.audit() == []
    return found[0], found[1]


def lanes(pools: Pools, count: int) -> torch.Tensor:
    """So many slots, the last one first; behind those that there are, padding."""
    numbers = torch.arange(count, device=DEVICE)
    return torch.where(numbers < pools.size, pools.size - numbers, 0)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_legal_calls(count: int) -> None:
    """Set, moved and read as in torch, whatever the number of lanes."""
    size = 2 * count + 1

    def act(pools: Pools) -> Any:
        named = lanes(pools, count)
        pools.pool.copy_from(named, torch.where(named > 0, named - count, 0))
        pools.pool.clear_slots(torch.where(named > 0, named, 0).to(torch.int32))
        return pools.grams.get_context(torch.arange(size + 1, device=DEVICE))

    ours, twin = both(size, act)
    assert ours == twin


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("bad", [-1, 0, 1, 3, 4, 2**40])
@pytest.mark.parametrize("at", [0, 1])
def test_ids_at_the_borders(size: int, bad: int, at: int) -> None:
    """Any id at any place of a batch of padded lanes: refused as in torch, or done as in torch."""
    for act in (
        lambda pools: pools.pool.clear_slots(pools.ids(*[0] * at, bad)),
        lambda pools: pools.pool.copy_from(pools.ids(*[0] * at, bad), pools.ids(*[0] * at, size)),
        lambda pools: pools.pool.copy_from(pools.ids(*[0] * at, size), pools.ids(*[0] * at, bad)),
        lambda pools: pools.grams.get_context(pools.ids(*[0] * at, bad)),
    ):
        ours, twin = both(size, act)
        assert ours == twin


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ((1, 2), (3, 3)), ((1, 1), (2, 3)), ((1, 2), (2, 3)), ((1, 3), (2, 1)), ((1,), (1,)),
        ((0, 1), (0, 2)), ((1, 1), (0, 0)), ((0,), (2,)), ((1, 5), (2, 2)), ((1, 2, 0), (3, 3, 4)),
        ((2, 3, 1), (1, 4, 5)),
    ],
)  # fmt: skip
def test_clashes(src: tuple[int, ...], dst: tuple[int, ...]) -> None:
    """Targets named twice, sources that are written to, the padding read: as in torch."""
    ours, twin = both(4, lambda pools: pools.pool.copy_from(pools.ids(*src), pools.ids(*dst)))
    assert ours == twin


@pytest.mark.parametrize("rows", [(0,), (1, 0), (2,), (2, 0, 2), (3,), (-1,), (1, 1), (0, 3)])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_draft_rows(rows: tuple[int, ...], steps: int) -> None:
    """The last row is the padding there: named by any number of lanes, and never written."""
    context = torch.arange(len(rows) * steps * 2).reshape(len(rows), steps, 2).to(DEVICE)

    def act(pools: Pools) -> Any:
        pools.grams.set_intermediate_context(context, pools.ids(*rows))

    ours, twin = both(2, act)
    assert ours == twin
    legal = all(0 <= row <= 2 for row in rows) and len({*rows} - {2}) == len(rows) - rows.count(2)
    assert isinstance(ours, tuple) == legal


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 3])
@pytest.mark.parametrize("kind", ["OutOfRange", "Duplicate", ""])
def test_lanes_around_a_tile(count: int, kind: str) -> None:
    """The last lane of many is looked at, the one behind it isn't, and no claim is left."""
    moves = Moves(count + 1, 0, device=torch.device(DEVICE), backend="triton", validate=True)
    named = torch.arange(1, count + 1, device=DEVICE)
    named[-1] = {"OutOfRange": count + 2, "Duplicate": 1, "": count + 1}[kind]
    moves.require("a call", None, named)
    moves.launched()
    if kind:
        with pytest.raises(PoolError, match=re.escape(f"[{count - 1}]")) as caught:
            moves.settle()
        assert type(caught.value).__name__ == kind
        moves.recover()
    moves.settle()
    assert moves.audit() == []
