"""What the doors of KV pools refuse, argument by argument: a `PoolError`, and no byte changes.

What is said of each is in `test_impl_kv.py`. Spec: `spec/pools_states_sizing.md` §8 to §13,
`spec/core.md` §4b, §7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from impl import (
    DSATokenToKVPool,
    HybridLinearKVPool,
    KVWriteLoc,
    MHATokenToKOnlyPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    PoolError,
    SWAKVPool,
)
from impl.storage.hybrid_linear import HybridCopy
from impl.storage.swa_kv import SWACopy

F32, E4M3 = torch.float32, torch.float8_e4m3fn


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def heads(layers: int = 2) -> MHATokenToKVPool:
    return MHATokenToKVPool(6, 3, F32, 1, 2, layers, device="cpu")


def latents(rope: int, layers: int = 2) -> MLATokenToKVPool:
    return MLATokenToKVPool(6, 3, F32, 2, rope, layers, device="cpu")


def windows() -> SWAKVPool:
    pool = SWAKVPool(6, 6, 3, F32, 1, 2, [1], [0], device="cpu")
    mapping = torch.zeros(10, dtype=torch.int64)
    mapping[4:6], mapping[9] = ids(3, 4), -1
    pool.register_mapping(mapping)
    return pool


class Door(NamedTuple):
    """A way to write, and a call that is all right: layer, slots, values by their names."""

    make: Callable[[], Any]
    method: str
    layer: str
    slots: str
    loc: Any
    values: dict[str, torch.Tensor | None]


KEYS = torch.ones(1, 1, 2)
BOTH: dict[str, torch.Tensor | None] = {"cache_k": KEYS, "cache_v": KEYS}
PARTS: dict[str, torch.Tensor | None] = {"cache_k_nope": KEYS, "cache_k_rope": torch.ones(1, 1, 1)}
WHOLE: dict[str, torch.Tensor | None] = {"cache_k_nope": KEYS, "cache_k_rope": None}
DOORS = {
    "heads": Door(heads, "set_kv_buffer", "layer", "loc_info", ids(4), BOTH),
    "prefixes": Door(
        heads, "set_kv_buffer_prefix_valid", "layer", "loc_2d", ids(4)[None],
        {**BOTH, "commit_lens": ids(1)},
    ),
    "keys": Door(
        lambda: MHATokenToKOnlyPool(6, 3, F32, 1, 2, 2, device="cpu"), "set_k_buffer", "layer",
        "loc_info", ids(4), {"cache_k": KEYS},
    ),
    "latents": Door(
        lambda: latents(1), "set_kv_buffer", "layer", "loc_info", ids(4),
        {"cache_k": torch.ones(1, 1, 3)},
    ),
    "parts": Door(lambda: latents(1), "set_mla_kv_buffer", "layer", "loc_info", ids(4), PARTS),
    "no rotary": Door(lambda: latents(0), "set_mla_kv_buffer", "layer", "loc_info", ids(4), WHOLE),
    "packed": Door(
        lambda: DSATokenToKVPool(6, 3, E4M3, 128, 1, 2, kv_cache_dim=134, device="cpu"),
        "set_mla_kv_buffer", "layer", "loc_info", ids(4),
        {"cache_k_nope": torch.ones(1, 1, 128), "cache_k_rope": torch.ones(1, 1, 1)},
    ),
    "index": Door(
        lambda: DSATokenToKVPool(6, 3, F32, 2, 1, 2, device="cpu"), "set_index_k_scale_buffer",
        "layer_id", "loc_info", ids(4),
        {"index_k": torch.ones(1, 128).to(torch.uint8), "index_k_scale": torch.ones(1, 1)},
    ),
    "hybrid": Door(
        lambda: HybridLinearKVPool(heads(1), [0]), "set_kv_buffer", "layer", "loc_info", ids(4),
        BOTH,
    ),
    "hybrid of latents": Door(
        lambda: HybridLinearKVPool(latents(0, 1), [0]), "set_mla_kv_buffer", "layer", "loc_info",
        ids(4), WHOLE,
    ),
    "windows": Door(
        windows, "set_kv_buffer", "layer", "loc_info", KVWriteLoc(ids(4), ids(4)), BOTH
    ),
}  # fmt: skip
LAYERS = [None, "0", [[0]], 0.0, True, 9, -1, ids(0)]
SLOTS = [
    None, "4", [4], 4, torch.tensor([4.0]), torch.tensor(4), ids(4).to("meta"), ids(4).to_sparse(),
]  # fmt: skip
VALUES = [None, "1", [[1.0]], 1.0, torch.tensor(1.0)]


def spoilt(values: torch.Tensor) -> Iterator[Any]:
    """Values of the wrong type, shape, device or layout; the rest about them is right."""
    yield from VALUES
    yield values.to(torch.complex64)
    yield values.to(torch.float64)
    yield values[..., :0]
    yield torch.cat((values, values))
    yield values.to("meta")
    yield values.to_sparse()


def cases() -> Iterator[tuple[str, str, Any]]:
    """(door, argument, what it may not be)."""
    for name, door in DOORS.items():
        for layer in LAYERS:
            yield name, door.layer, layer
        for loc in SLOTS:
            yield name, door.slots, loc
        for argument, values in door.values.items():
            for bad in [] if values is None else spoilt(values):
                yield name, argument, bad


@pytest.mark.parametrize("name", DOORS)
def test_each_argument_of_a_write(name: str) -> None:
    """Each by itself is refused before anything is written; the call is right without it."""
    door = DOORS[name]
    good = {door.layer: 0, door.slots: door.loc, **door.values}
    pool = door.make()
    before = pool.snapshot()
    for which, argument, bad in cases():
        if which == name:
            try:
                getattr(pool, door.method)(**{**good, argument: bad})
            except PoolError:
                assert pool.snapshot() == before, (argument, bad)
            else:
                pytest.fail(f"{argument}={bad!r} was accepted")
    getattr(pool, door.method)(**good)
    assert pool.snapshot() != before


@pytest.mark.parametrize("name", DOORS)
def test_slots_beyond_the_pool(name: str) -> None:
    """The one behind the last, and one far away."""
    door = DOORS[name]
    pool = door.make()
    before = pool.snapshot()
    for slot in (9, 2**40):
        loc: Any = ids(slot)[None] if name == "prefixes" else ids(slot)
        if name == "windows":
            loc = KVWriteLoc(loc, loc)
        with pytest.raises(PoolError, match=f"slot {slot} is beyond 8"):
            getattr(pool, door.method)(**{door.layer: 0, door.slots: loc, **door.values})
    assert pool.snapshot() == before


LEAF = [[[None, None]]]
COPIES: list[Any] = [None, "x", 5, [], [[]], [[[]]], [None], [["x"]], [[["x"]]], LEAF]


@pytest.mark.parametrize("make", [heads, lambda: latents(1), windows])
def test_copies_that_are_none(make: Any) -> None:
    """Whatever a copy is made of: what it isn't is found before anything is written."""
    pool = make()
    good, before = pool.get_cpu_copy(ids(4, 5)), pool.snapshot()
    bad, masks = list(COPIES), [None, torch.ones(2), ids(1, 1)]
    masks += [torch.tensor([True]), torch.tensor([True, False])]
    if isinstance(good, SWACopy):
        bad += [good._replace(full=each) for each in COPIES]
        bad += [good._replace(swa=each) for each in COPIES]
        bad += [SWACopy(good.full, good.swa, each) for each in masks]  # type: ignore[arg-type]
    for copy in bad:
        with pytest.raises(PoolError):
            pool.load_cpu_copy(copy, ids(4, 5))
        assert pool.snapshot() == before, copy
    pool.load_cpu_copy(good, ids(4, 5))


def test_copies_of_a_hybrid_that_are_none() -> None:
    """The same, in what a hybrid's copy holds of its pool."""
    pool = HybridLinearKVPool(heads(), [1, 3])
    for copy in COPIES:
        for given in (copy, HybridCopy(copy, None)):
            with pytest.raises(PoolError):
                pool.load_cpu_copy(given, ids(4, 5))
