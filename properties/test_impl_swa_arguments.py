"""What the sliding-window pair refuses, argument by argument.

Whatever is refused is refused by the class that it is due, and neither side has changed. Spec:
`spec/swa_unified.md` §2.4, §2.5; `spec/core.md` §4b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from impl import PoolError, StoragelessSWAKVPool, SWATokenToKVPoolAllocator
from properties.kernels.rig import DEVICE
from properties.refused import ForeignStream
from properties.subjects.swa import Tree

Pair = SWATokenToKVPoolAllocator


def ids(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=DEVICE)


def host(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def lengths(prefix: int, seq: int, last: int, **more: Any) -> dict[str, Any]:
    """Arguments of an extend of one request."""
    return {
        "prefix_lens": ids(prefix), "prefix_lens_cpu": host(prefix), "seq_lens": ids(seq),
        "seq_lens_cpu": host(seq), "last_loc": ids(last), "extend_num_tokens": seq - prefix, **more,
    }  # fmt: skip


def pages_of_four(**options: Any) -> Pair:
    """Full pages 1 to 7 are out; window pages 1, 2 and 4 are those of 1, 2 and 6.

    Window pages 3 and 5 are owned and nobody's: full pages 5 and 7 have let go of them. Full pages
    3 and 4 have given theirs back. Full page 8 and window pages 6 to 8 were never handed out.
    """
    pair = Pair(32, 32, 4, device=DEVICE, **options)
    pair.alloc_extend(**lengths(0, 6, -1))
    gone = pair.alloc_extend(**lengths(0, 8, -1))
    assert gone is not None
    pair.free_swa(gone)
    for windows in (3, 4, 5):
        slots = pair.alloc_extend(**lengths(0, 4, -1))
        assert slots is not None
        assert pair.translate_loc_from_full_to_swa(slots[:1]).tolist() == [windows * 4]
        if windows != 4:
            pair.clear_full_to_swa_mapping(slots)
    assert pair.audit() == []
    return pair


def single_slots(**options: Any) -> Pair:
    """Slots 1 to 6 are out; 3 has given its window back, 4 and 5 have let go of theirs, 4 and 5."""
    pair = Pair(8, 8, 1, device=DEVICE, **options)
    pair.alloc(6)
    pair.free_swa(ids(3))
    pair.clear_full_to_swa_mapping(ids(4, 5))
    return pair


WORLDS: dict[int, Callable[..., Pair]] = {1: single_slots, 4: pages_of_four}

#: page size → calls that are served, each by itself
CALLS: dict[int, dict[str, dict[str, Any]]] = {
    4: {
        "alloc_extend": lengths(6, 9, 9, num_new_pages=1),
        "alloc_extend_swa_tail": lengths(0, 4, -1, swa_tail_len=4),
        "alloc_decode": {"seq_lens": ids(7), "seq_lens_cpu": host(7), "last_loc": ids(9)},
        "free": {"free_index": ids(4, 9)},
        "free_swa": {"free_index": ids(4, 9)},
        "free_full": {"free_index": ids(12, 16)},
        "free_page_ids": {"page_ids": ids(1, 2)},
        "free_segment": {"free_index": ids(4, 5, 6, 7, 8), "start_pos": 0},
        "free_swa_segment": {"free_index": ids(4, 5, 6, 7, 8), "start_pos": 4},
        "free_full_segment": {"free_index": ids(12, 13), "start_pos": 0},
        "free_segments": {"segments": [(ids(4, 5), 0), (ids(8), 4)]},
        "free_swa_segments": {"segments": [(ids(4, 5), 0), (ids(8), 4)]},
        "free_full_segments": {"segments": [(ids(12, 13), 0), (ids(16), 4)]},
        "translate_loc_from_full_to_swa": {"kv_indices": ids(4, -1)},
        "translate_swa_indices_for_transfer": {"kv_indices": ids(4, -1)},
        "set_full_to_swa_mapping": {"full_indices": ids(12, 16), "swa_indices": ids(12, 20)},
        "clear_full_to_swa_mapping": {"full_indices": ids(4, 24)},
        "new_pages_available": {"num_full_pages": 1, "num_swa_pages": 1},
        "evict_to_free_tokens": {"tree_cache": Tree(sharing=True), "num_tokens": 3},
        "reclaim_for_prealloc": {
            "tree_cache": Tree(sharing=True), "full_tokens": 3, "swa_tokens": 3,
        },
    },
    1: {
        "alloc": {"need_size": 1},
        "free": {"free_index": ids(1, 2)},
        "free_swa": {"free_index": ids(1, 2)},
        "free_full": {"free_index": ids(3, 4)},
        "free_page_ids": {"page_ids": ids(1, 2)},
        "free_segments": {"segments": [(ids(1), 0), (ids(2), 1)]},
        "set_full_to_swa_mapping": {"full_indices": ids(3, 4), "swa_indices": ids(4, 5)},
        "clear_full_to_swa_mapping": {"full_indices": ids(1, 2)},
    },
}  # fmt: skip

TENSORS: dict[str, tuple[str, Callable[[torch.Tensor], Any]]] = {
    "floats": ("WrongDtype", lambda each: each.to(torch.float32)),
    "bools": ("WrongDtype", lambda each: each.bool()),
    "a list": ("WrongDtype", lambda each: each.tolist()),
    "a number": ("WrongDtype", lambda each: int(each[0])),
    "nothing": ("WrongDtype", lambda each: None),
    "sparse": ("WrongDtype", lambda each: each.to_sparse()),
    "no dimension": ("WrongShape", lambda each: each[0]),
    "two dimensions": ("WrongShape", lambda each: each.view(1, -1)),
    "elsewhere": ("WrongDevice", lambda each: each.to("meta")),
}
NUMBERS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "a float": ("WrongDtype", float),
    "a bool": ("WrongDtype", bool),
    "a word": ("WrongDtype", str),
    "a tensor": ("WrongDtype", lambda each: torch.tensor(each)),
}


def distorted(value: Any, how: str) -> Any:
    """The value, of a wrong kind."""
    return (TENSORS if isinstance(value, torch.Tensor) else NUMBERS)[how][1](value)


def cases() -> list[Any]:
    """(page size, call, argument, place in it or None, how, kind), an argument wrong in each."""
    found = []
    for size, calls in CALLS.items():
        for call, args in calls.items():
            for name, value in args.items():
                parts: dict[int | None, Any] = {None: value}
                if name == "segments":
                    parts = {place: value[1][place] for place in (0, 1)}
                for place, part in parts.items():
                    if not isinstance(part, torch.Tensor | int):
                        continue
                    kinds = TENSORS if isinstance(part, torch.Tensor) else NUMBERS
                    found += [
                        pytest.param(size, call, name, place, how, kinds[how][0],
                                     id=f"{size}-{call}-{name}-{how}")
                        for how in kinds
                    ]  # fmt: skip
    return found


@pytest.mark.parametrize("size", CALLS)
def test_the_calls_are_served_as_they_are(size: int) -> None:
    """Nothing else than what is distorted below is wrong with them."""
    for call, args in CALLS[size].items():
        for validate in (True, False):
            pair = WORLDS[size](validate=validate)
            getattr(pair, call)(**args)
            assert pair.audit() == []


@pytest.mark.parametrize(("size", "call", "name", "place", "how", "kind"), cases())
def test_an_argument_of_the_wrong_kind(
    size: int, call: str, name: str, place: int | None, how: str, kind: str
) -> None:
    """Refused by name, also where values aren't looked at, with neither side changed."""
    args = dict(CALLS[size][call])
    if place is None:
        args[name] = distorted(args[name], how)
    else:
        second = list(args[name][1])
        second[place] = distorted(second[place], how)
        args[name] = [args[name][0], tuple(second)]
    for validate in (True, False):
        pair = WORLDS[size](validate=validate)
        before = pair.snapshot()
        with pytest.raises(PoolError) as caught:
            getattr(pair, call)(**args)
        assert type(caught.value).__name__ == kind
        assert pair.snapshot() == before


OF_THE_HOST = ("new_pages_available", "reclaim_for_prealloc")  # counts, and the cache's business
WITHOUT_ARGUMENTS = (
    "check", "recover", "free_group_begin", "free_group_end", "merge_and_sort_free",
    "get_all_free_pages", "snapshot", "audit",
)  # fmt: skip


@pytest.mark.parametrize("size", CALLS)
def test_a_foreign_stream_is_noticed_first(size: int) -> None:
    """By every call that works with tensors, before anything changes."""
    calls = {name: args for name, args in CALLS[size].items() if name not in OF_THE_HOST}
    for call, args in (*calls.items(), *((name, {}) for name in WITHOUT_ARGUMENTS)):
        pair = WORLDS[size]()
        if call == "free_group_end":
            pair.free_group_begin()
        before = pair.snapshot()
        book = pair.full_attn_allocator._book
        sound, book.stream = book.stream, ForeignStream()  # type: ignore[assignment]
        with pytest.raises(InterruptedError):
            getattr(pair, call)(**args)
        book.stream = sound
        assert pair.snapshot() == before, call


@pytest.mark.parametrize("how", TENSORS)
def test_a_pool_translates_slots_only(how: str) -> None:
    """The storage-less pool looks at what it is given as its allocator does."""
    pool = StoragelessSWAKVPool()
    Pair(8, 8, 4, device=DEVICE, kvcache=pool)
    with pytest.raises(PoolError) as caught:
        pool.translate_loc_from_full_to_swa(distorted(ids(4, -1), how))
    assert type(caught.value).__name__ == TENSORS[how][0]
