"""Groups of `impl` as context managers, what it forwards, and `resize` (`spec/core.md` §4, §4a)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from impl.errors import GroupNotOpen, GroupOpen, Unsupported
from properties.test_impl import POOLS, Maker, ids


@POOLS
def test_group_ends_when_the_body_raises(make: Maker) -> None:
    """The context manager releases what was parked and passes the body's exception on."""
    pool = make()
    slots = pool.alloc(2 * pool.page_size)

    def body() -> None:
        with pool.free_group():
            pool.free(slots[: pool.page_size])
            assert pool.snapshot()["group"]
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        body()
    assert not pool.snapshot()["group"]
    assert pool.available_size() == 7 * pool.page_size
    assert pool.audit() == []


@POOLS
@pytest.mark.parametrize("raises", [False, True])
def test_clear_inside_a_group(make: Maker, raises: bool) -> None:
    """`clear` inside the body closes the group, and the exit is quiet or the body's own error."""
    pool = make()
    fresh, slots = pool.snapshot(), pool.alloc(2 * pool.page_size)

    def body() -> None:
        with pool.free_group():
            pool.free(slots)
            pool.clear()
            if raises:
                raise KeyError("mine")

    if raises:
        with pytest.raises(KeyError, match="mine"):
            body()
    else:
        body()
    assert pool.snapshot() == fresh


@POOLS
def test_nested_groups(make: Maker) -> None:
    """A group inside a group is refused, and the outer one keeps what it has parked."""
    pool = make()
    slots = pool.alloc(2 * pool.page_size)
    with pool.free_group():
        pool.free(slots[: pool.page_size])
        with pytest.raises(GroupOpen), pool.free_group():
            pytest.fail("the body of a refused group ran")
        assert pool.snapshot()["group"]
        pool.free(slots[pool.page_size :])
    assert pool.available_size() == 8 * pool.page_size
    with pytest.raises(GroupNotOpen):
        pool.free_group_end()


# ---- forwarding --------------------


class Cache:
    """A storage pool that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def get_cpu_copy(
        self, indices: Any, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> Any:
        self.asked.append((indices, mamba_indices, req_pool_index))
        return "a copy"

    def load_cpu_copy(
        self, kv_cache_cpu: Any, indices: Any, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> None:
        self.asked.append((kv_cache_cpu, indices, mamba_indices, req_pool_index))


@POOLS
def test_copies_are_forwarded(make: Maker) -> None:
    """Host copies go to the `kvcache` with all their arguments, and its answer comes back."""
    cache, states = Cache(), ids(3)
    pool = make(kvcache=cache)
    slots = pool.alloc(2 * pool.page_size)[-2:]
    assert pool.get_kvcache() is cache
    assert pool.get_cpu_copy(slots, mamba_indices=states, req_pool_index=5) == "a copy"
    pool.load_cpu_copy("a copy", slots, mamba_indices=states, req_pool_index=5)
    assert cache.asked == [(slots, states, 5), ("a copy", slots, states, 5)]


@POOLS
def test_copies_without_a_kvcache(make: Maker) -> None:
    """Without a `kvcache` host copies are Unsupported, and the message says what to give."""
    pool = make()
    assert pool.get_kvcache() is None
    with pytest.raises(Unsupported, match="kvcache"):
        pool.get_cpu_copy(ids(1))
    with pytest.raises(Unsupported, match="kvcache"):
        pool.load_cpu_copy(None, ids(1))
    pool.set_hicache_transfer_done_event("key", None)


@POOLS
def test_resize_reads_one_attribute(make: Maker) -> None:
    """`resize` takes any object with `max_total_num_tokens`; the pool is then as a new one."""
    pool = make(need_sort=True)
    pool.free(pool.alloc(3 * pool.page_size))
    pool.resize(SimpleNamespace(max_total_num_tokens=5 * pool.page_size, other=None))
    assert pool.snapshot() == make(5, need_sort=True).snapshot()
    slots = pool.alloc(5 * pool.page_size)
    assert int(slots.max()) == 6 * pool.page_size - 1
