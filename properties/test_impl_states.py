"""State slots and the rows of hybrid models: what no command of their systems says."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import reference
from impl import HybridReqToTokenPool, MambaSlotAllocator
from impl import sizing as ours
from impl.errors import (
    Duplicate,
    GroupOpen,
    NegativeSize,
    NotOwned,
    OutOfRange,
    PoolError,
    StillOwned,
    Unsupported,
    WrongDtype,
)
from properties.hybrid_scene import LAZY, UNTRACKED, Scene
from properties.refused import Act, ids
from properties.subjects.state_records import Record
from reference import sizing as theirs


def rows(**options: Any) -> HybridReqToTokenPool:
    """Two rows and four state slots, tracked in pairs unless told otherwise."""
    chosen = {"mamba_size": 4, "enable_mamba_extra_buffer": True, **options}
    return HybridReqToTokenPool(2, 4, device="cpu", **chosen)


def request() -> Any:
    """A request that has nothing."""
    return SimpleNamespace(kv=Record())


def test_a_group_ends_however_its_body_does() -> None:
    """What is left goes back when the body raises, once; a `clear` inside has ended the group."""
    slots = MambaSlotAllocator(3, device="cpu")
    with pytest.raises(RuntimeError), slots.alloc_group(2):
        raise RuntimeError
    assert slots.snapshot()["free"] == [3, 1, 2]
    with slots.alloc_group(2):
        slots.clear()
    assert slots.snapshot()["free"] == [1, 2, 3]
    with slots.alloc_group(1), pytest.raises(GroupOpen), slots.alloc_group(1):
        pass


@pytest.mark.parametrize("house", [ours, theirs], ids=["impl", "reference"])
def test_tracking_slots(house: Any) -> None:
    """The table of the spec: none without a buffer, one lazily or without overlap, else two."""
    slots = house.get_mamba_tracking_slots
    assert {slots(extra_buffer=False, overlap=o, lazy=z) for o in (0, 1) for z in (0, 1)} == {0}
    assert slots(extra_buffer=True, overlap=True) == 2
    assert slots(extra_buffer=True, overlap=False) == 1
    assert slots(extra_buffer=True, overlap=True, lazy=True) == 1
    assert slots(extra_buffer=True, overlap=False, lazy=True) == 1


def test_slots_needed() -> None:
    """Both houses charge a state and its tracks, monotone in each; negative counts are refused."""
    for states in range(3):
        for tracked in range(3):
            for each in range(3):
                due = states + tracked * each
                assert ours.slots_needed(states, tracked, each) == due
                assert theirs.slots_needed(states, tracked, each) == due
    for at in range(3):
        counts = [1, 1, 1]
        counts[at] = -1
        with pytest.raises(NegativeSize):
            ours.slots_needed(*counts)
        with pytest.raises(reference.Refused, match="NegativeSize"):
            theirs.slots_needed(*counts)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (
            {"enable_mamba_extra_buffer_lazy": True, "enable_overlap_schedule": False},
            Unsupported,
            "overlap",
        ),
        (
            {
                "enable_mamba_extra_buffer": False,
                "enable_mamba_extra_buffer_lazy": True,
                "enable_overlap_schedule": False,
            },
            Unsupported,
            "overlap",
        ),
        ({"mamba_layer_ids": (3, 1, 3)}, Duplicate, "layer 3 is named twice"),
        ({"mamba_layer_ids": (-1,)}, NegativeSize, "a layer id must be at least 0, got -1"),
        ({"mamba_size": "4", "mamba_pool": SimpleNamespace(size=4)}, WrongDtype, "mamba_size"),
        ({"mamba_size": 2**31 - 1}, OutOfRange, "mamba_size"),
        ({"mamba_pool": SimpleNamespace(size=5)}, OutOfRange, "5 slots, mamba_size is 4"),
        ({"mamba_size": -1}, NegativeSize, "mamba_size must be at least 0, got -1"),
    ],
)
def test_pools_that_cannot_be(options: dict[str, Any], kind: type[PoolError], words: str) -> None:
    """Lazy without overlap and a state pool of another size are refused at construction."""
    with pytest.raises(kind, match=words):
        rows(**options)


@pytest.mark.parametrize(
    "act",
    [
        lambda pool, req: pool.run_deferred_mamba(pool.collect_deferred_mamba([req])),
        lambda pool, req: pool.copy_mamba_state(torch.tensor([1]), torch.tensor([2])),
        lambda pool, req: pool.mamba2_layer_cache(3),
    ],
)
def test_bytes_need_a_pool(act: Callable[[HybridReqToTokenPool, Any], Any]) -> None:
    """Whoever asks for bytes of rows without a state pool is told how to get one."""
    pool, req = rows(mamba_layer_ids=(3,)), request()
    assert pool.alloc([req]) == [2]
    with pytest.raises(Unsupported, match="mamba_pool="):
        act(pool, req)


def test_a_hook_that_takes_slots_makes_it_short() -> None:
    """Slots that a hook on the rows takes are missing then: None, and rows are where they were."""
    pool, req = rows(mamba_size=3), request()

    def greedy(taken: list[int]) -> None:
        assert pool.mamba_allocator.alloc(1) is not None

    pool.register_on_alloc_rows(greedy)
    assert pool.alloc([req]) is None
    assert pool.free_slots == [1, 2]
    assert req.kv.req_pool_idx is None
    assert req.kv.mamba_pool_idx is None
    assert pool.audit() == []


def test_a_record_of_another_maker_is_read_back() -> None:
    """A record whose tensors this pool never saw is believed if its slots are out."""
    pool, req = rows(), request()
    assert pool.alloc([req]) == [2]
    req.kv.mamba_pool_idx = req.kv.mamba_pool_idx.clone()
    req.kv.mamba_ping_pong_track_buffer = req.kv.mamba_ping_pong_track_buffer.clone()
    pool.free_mamba_cache(req)
    assert pool.mamba_allocator.snapshot()["free"] == [4, 1, 2, 3]
    pool.free(req)
    req.kv.mamba_pool_idx = torch.tensor(4)
    with pytest.raises(NotOwned, match="slot 4"):
        pool.alloc([req])


def test_a_release_forgets_what_was_planned() -> None:
    """Copy and clear are off with the state, with a track buffer or without one."""
    for places in (False, True):
        pool, req = rows(enable_mamba_extra_buffer=places), request()
        node = pool.mamba_allocator.alloc(1)
        assert node is not None
        assert pool.cow_mamba_state(req, node) is not None
        pool.free_mamba_cache(req)
        assert req.kv.mamba_cow_src_index is None
        assert not req.kv.mamba_needs_clear


# ---- what is just inside, where a call just outside is refused --------------------


def test_a_slot_may_have_no_axis() -> None:
    """One slot is one slot, with an axis or without; of 32 bits or of 64."""
    for make in (ids, torch.tensor, lambda slot: torch.tensor(slot, dtype=torch.int32)):
        scene = Scene()
        assert scene.pool.cow_mamba_state(scene.first, make(7)).tolist() == [1]  # type: ignore[union-attr]
        assert scene.kv.mamba_cow_src_index.tolist() == [7]
        scene.pool.set_mamba_ping_pong_slot(scene.other, 1, make(7))
        assert scene.other.kv.mamba_ping_pong_track_buffer.tolist() == [5, 7]
        new = scene.taken()
        assert scene.pool.donate_mamba_ping_pong_slot(scene.first, make(int(new))).tolist() == [2]


@pytest.mark.parametrize("place", [0, 1])
def test_a_place_may_keep_its_slot(place: int) -> None:
    """The slot that is there already may be set there again."""
    scene = Scene()
    before = scene.shown()
    scene.pool.set_mamba_ping_pong_slot(scene.first, place, ids(2 + place))
    assert scene.shown() == before


def test_whole_ranges_are_served() -> None:
    """The first and the last row, place, layer and length."""
    scene = Scene()
    pool = scene.pool
    assert pool.get_mamba_indices(ids(0, 2, 3)).tolist() == [0, 1, 4]
    assert pool.get_mamba_indices(torch.tensor([3], dtype=torch.int32)).dtype == torch.int64
    assert pool.translate_mamba_indices(torch.tensor([0, 99], dtype=torch.int32)).tolist() == [
        0,
        99,
    ]
    assert [pool.get_mamba_ping_pong_other_idx(place) for place in (0, 1)] == [1, 0]
    assert [pool.mamba2_layer_index(layer) for layer in (1, 3)] == [0, 1]
    assert pool.mamba_checkpoint(scene.first, 7) is None
    assert pool.mamba_checkpoint(scene.first, 8) == (8, 0)
    assert pool.mamba_checkpoint(scene.other, 0) is None
    pool.mamba_track_boundary(scene.first, 9)
    pool.mamba_track_boundary(scene.other, 0)
    assert pool.mamba_checkpoint(scene.other, 0) == (0, 0)
    assert pool.enable_mamba_extra_buffer
    assert not pool.enable_mamba_extra_buffer_lazy
    assert Scene(**LAZY).pool.enable_mamba_extra_buffer_lazy
    assert not Scene(**UNTRACKED).pool.enable_mamba_extra_buffer


def test_a_state_of_another_maker_in_the_queue_is_read_back() -> None:
    """A request without a row may bring a state that this pool never gave it."""
    pool, req = Scene().pool, SimpleNamespace(kv=Record())
    taken = pool.mamba_allocator.alloc(1)
    assert taken is not None
    req.kv.mamba_pool_idx = taken[0]
    pool.free_mamba_cache(req)
    assert pool.mamba_allocator.snapshot()["free"][-1] == int(taken)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda book: book._ids.append(1), "aren't a partition of 1..3"),
        (lambda book: book._owned.__setitem__(3, True), "1 slots count as out, 2 are marked"),
        (lambda book: setattr(book, "num_owned", 2), "2 slots count as out, 1 are marked"),
        (lambda book: book._issued.__setitem__(1, False), "some were never issued"),
    ],
)
def test_the_audit_of_slots(spoil: Act, words: str) -> None:
    """Slots that are nowhere, in two places, miscounted, or out without an issue are told."""
    slots = MambaSlotAllocator(3, device="cpu")
    assert slots.alloc(1) is not None
    assert slots.audit() == []
    spoil(slots.book)
    assert any(words in line for line in slots.audit()), slots.audit()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: p.req_index_to_mamba_index_mapping.__setitem__(2, 9), "I41: row 2 has"),
        (
            lambda p: p.req_index_to_mamba_ping_pong_track_buffer_mapping.__setitem__((3, 1), -1),
            "I41: row 3 has",
        ),
        (lambda p: p._known[2][0].tracks.__setitem__(0, 1), "I34: a slot is twice in"),
        (lambda p: p.free_slots.pop(), "I34: free rows"),
        (lambda p: p.mamba_allocator.book._ids.pop(), "I34: free ["),
    ],
)
def test_the_audit_of_rows(spoil: Act, words: str) -> None:
    """Maps that say something else than the book, a slot twice, and what is wrong below."""
    scene = Scene()
    spoil(scene.pool)
    assert any(line.startswith(words) for line in scene.audit()), scene.audit()


def test_the_list_is_trimmed_now_and_then() -> None:
    """What was taken stays in the list for a while: neither each time, nor for ever."""
    slots = MambaSlotAllocator(200, device="cpu")
    taken = slots.alloc(60)
    assert len(slots.book._ids) == 200
    for _ in range(1000):
        assert taken is not None
        slots.free(taken)
        taken = slots.alloc(60)
    assert len(slots.book._ids) < 3 * 200
    assert slots.audit() == []


def test_row_1_is_known_as_the_others() -> None:
    """Neither a request without a row nor what is no row at all is taken for row 1."""
    scene = Scene()
    assert scene.pool.alloc([scene.fresh]) is None
    scene.pool.free_mamba_cache(scene.other)
    assert scene.pool.alloc([scene.fresh]) == [1]
    scene.pool.free_mamba_cache(scene.queued)
    with pytest.raises(StillOwned, match="row 1"):
        scene.pool.free_rows([1])
    with pytest.raises(WrongDtype):
        scene.pool.free_rows([1.0])  # type: ignore[list-item]
    assert scene.audit() == []


def test_what_was_handed_out_is_not_read_back() -> None:
    """Of its own tensors the pool knows on the host what is in them."""
    scene = Scene()
    scene.kv.mamba_pool_idx.fill_(99)
    scene.kv.mamba_ping_pong_track_buffer.fill_(99)
    scene.pool.free_mamba_cache(scene.first)
    assert scene.slots.snapshot()["free"][-3:] == [1, 2, 3]
