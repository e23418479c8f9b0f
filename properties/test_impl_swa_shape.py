"""How the sliding-window pair is made, what it can't be, and what it says of itself.

Spec: `spec/swa_unified.md` §2.2, §2.8, §2.10, §2.13.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from impl import (
    PagedTokenToKVPoolAllocator,
    PoolError,
    ReqToTokenPool,
    StoragelessSWAKVPool,
    SWATokenToKVPoolAllocator,
)
from impl.errors import (
    NegativeSize,
    NoWindowPeer,
    OutOfRange,
    StillOwned,
    Unsupported,
    WrongDtype,
)
from properties.kernels.rig import DEVICE
from properties.test_backends import require
from properties.test_impl_swa import extend, pair


def ring_of(ring: int, rows: int, page_size: int = 4) -> tuple[SWATokenToKVPoolAllocator, Any]:
    table = ReqToTokenPool(rows, 1, device=DEVICE)
    pool = StoragelessSWAKVPool(swa_req_ring_size=ring)
    made = pair(32, 8, page_size, kvcache=pool, req_to_token_pool=table)
    return made, table


# ---- rings --------------------


def test_a_ring_costs_whole_pages_of_each_row() -> None:
    """A ring of 10 with pages of 4 costs 12; three rows make 36, fewer as rows are taken (§2.8)."""
    target, rows = ring_of(10, 3)
    assert (target.swa_ring_cost_tokens, target.size_swa) == (12, 36)
    assert target.swa_available_size() == 36
    rows.alloc_rows(2)
    assert (target.swa_available_size(), target.size_swa) == (12, 36)
    assert target.available_size() == target.full_available_size() == 32
    slots = extend(target, 6)
    assert slots is not None
    assert not any(target.full_to_swa_index_mapping[:-1].tolist())
    before = target.snapshot()
    target.free_swa(slots)
    target.free_swa_segment(slots, start_pos=0)
    assert target.snapshot() == before
    target.free(slots)
    assert target.available_size() == 32
    target.resize(SimpleNamespace(full_max_total_num_tokens=16, swa_max_total_num_tokens=99))
    assert (target.size_full, target.size_swa) == (16, 36)


def test_rings_that_cannot_be() -> None:
    """Without rows, without pages, and of no tokens: refused at construction."""
    pool = StoragelessSWAKVPool(swa_req_ring_size=4)
    with pytest.raises(Unsupported, match="req_to_token_pool"):
        pair(16, 16, 4, kvcache=pool)
    with pytest.raises(Unsupported, match="pages"):
        ring_of(4, 2, page_size=1)
    with pytest.raises(NegativeSize):
        StoragelessSWAKVPool(swa_req_ring_size=0)


def test_the_smallest_ring() -> None:
    """One token costs a page."""
    target, _ = ring_of(1, 2)
    assert (target.swa_ring_cost_tokens, target.size_swa) == (4, 8)


def test_rings_have_no_map() -> None:
    """Slots can be mapped to nothing, nor let go of it."""
    target, _ = ring_of(4, 2)
    slots = extend(target, 1)
    assert slots is not None
    with pytest.raises(Unsupported):
        target.set_full_to_swa_mapping(slots, slots)
    with pytest.raises(Unsupported):
        target.clear_full_to_swa_mapping(slots)


# ---- construction and interface --------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"size": -1}, NegativeSize),
        ({"size_swa": -1}, NegativeSize),
        ({"page_size": 0}, NegativeSize),
        ({"size": 2**31}, OutOfRange),
        ({"size_swa": 2**31}, OutOfRange),
        ({"size": 2**31 - 2, "page_size": "4"}, WrongDtype),
        ({"kvcache": object()}, Unsupported),
        ({"backend": "cupy"}, Unsupported),
    ],
)
def test_a_pair_that_cannot_be(options: dict[str, Any], error: type[PoolError]) -> None:
    """Sizes below 0, beyond the int32 table, pools and backends of other kinds are refused."""
    sizes = {"size": 8, "size_swa": 8, "page_size": 4, **options}
    with pytest.raises(error):
        SWATokenToKVPoolAllocator(device=DEVICE, **sizes)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_either_backend_raises_at_the_call(backend: str) -> None:
    """A fault of values is there at once, names its kind, and neither side has changed."""
    require(backend)
    target = pair(16, 16, 4, backend=backend)
    assert target.backend == backend
    slots = extend(target, 8)
    assert slots is not None
    target.free_swa_segment(slots[:4], start_pos=0)
    assert target.swa_available_size() == 12
    before = target.snapshot()
    with pytest.raises(NoWindowPeer):
        target.free(slots)
    assert target.snapshot() == before
    target.check()


def test_kernels_that_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without triton they are refused by name; whoever names none gets torch."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="pip install triton"):
        pair(8, 8, 4, backend="triton")
    assert pair(8, 8, 4).backend == "torch"


def test_the_pair_has_the_interface_of_a_single_allocator() -> None:
    """All but the calls through the row table (I53)."""
    single = {name for name in dir(PagedTokenToKVPoolAllocator) if not name.startswith("_")}
    lacking = single - set(dir(pair(8, 8, 4)))
    assert lacking == {"alloc_extend_rows", "alloc_decode_rows", "free_rows_segment"}


def test_resize_only_shrinks_what_owns_nothing() -> None:
    """A larger side is refused, so is one with pages out; the map keeps its length (§2.10)."""
    target = pair(16, 8, 4)
    slots = extend(target, 1)
    assert slots is not None
    smaller = SimpleNamespace(full_max_total_num_tokens=8, swa_max_total_num_tokens=4)
    with pytest.raises(StillOwned):
        target.resize(smaller)
    target.free(slots)
    larger = SimpleNamespace(full_max_total_num_tokens=16, swa_max_total_num_tokens=9)
    with pytest.raises(OutOfRange):
        target.resize(larger)
    target.resize(smaller)
    assert (target.size_full, target.size_swa, target.available_size()) == (8, 4, 4)
    assert target.full_to_swa_index_mapping.shape == (16 + 4 + 1,)
    assert extend(target, 5) is None


# ---- audits --------------------


@pytest.mark.parametrize(
    ("slot", "window", "words"),
    [
        (-1, 0, ["the map's last entry is 0, not -1"]),
        (9, 0, []),  # page 2 has its peer still, by its first slot
        (
            12,
            12,
            ["slot 12 isn't owned", "12, which isn't", "the owner of page 3 is 0 by the index"],
        ),
        (2, 4, ["slot 2 isn't owned", "out of step", "is that of pages 0 and 1"]),
        (5, 6, ["out of step"]),
        (9, 5, ["out of step", "window page 1 is that of pages 1 and 2"]),
        (9, 13, ["slot 9 has window slot 13, which isn't owned", "out of step"]),
        (9, 21, ["slot 9 has window slot 21, which isn't owned"]),
        (9, -3, ["slot 9 has window slot -3, which isn't owned"]),
    ],
)
def test_the_map_is_audited(slot: int, window: int, words: list[str]) -> None:
    """Of full pages 1 to 3 two are out, with window pages 1 and 2: an entry that is wrong shows."""
    target = pair(12, 12, 4)
    slots = extend(target, 6)
    assert slots is not None
    assert slots.tolist() == [4, 5, 6, 7, 8, 9]
    target.full_to_swa_index_mapping[slot] = window
    found = "; ".join(target.audit())
    assert [word for word in words if word not in found] == [], found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("page_size", [2, 4])
def test_the_index_of_the_map_is_audited(page_size: int) -> None:
    """A peer or an owner that the map doesn't say shows."""
    for index, words in (("peer_pages", "the peer of page 1 is 2"), ("owner_pages", "the owner")):
        target = pair(16, 16, page_size)
        assert extend(target, page_size) is not None
        getattr(target._windows, index)[1] = 2
        (found,) = target.audit()
        assert words in found


def test_a_map_longer_than_its_pool_is_audited() -> None:
    """A pair that was made smaller has entries of pages that it has no more."""
    target = pair(16, 16, 4)
    target.resize(SimpleNamespace(full_max_total_num_tokens=8, swa_max_total_num_tokens=8))
    target.full_to_swa_index_mapping[17] = 13
    found = "; ".join(target.audit())
    assert "slot 17 isn't owned" in found
    assert "window slot 13, which isn't owned" in found
