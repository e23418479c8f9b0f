"""What the sliding-window pair refuses, argument by argument and element by element.

Whatever is refused is refused by the class that it is due, and neither side has changed. Spec:
`spec/swa_unified.md` §2.4, §2.5; `spec/core.md` §4b.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl import PoolError, StoragelessSWAKVPool, SWATokenToKVPoolAllocator
from properties.kernels.rig import DEVICE
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


class ForeignStream:
    """In place of what looks at the current stream on a GPU: it isn't the pair's."""

    def require(self) -> None:
        raise InterruptedError


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


GROWING = ("alloc_extend", "alloc_extend_swa_tail", "alloc_decode")
DEVICE_LENGTHS = ("prefix_lens", "seq_lens")


@pytest.mark.parametrize(
    ("call", "name"),
    [(call, name) for call in GROWING for name in CALLS[4][call] if name in DEVICE_LENGTHS],
)
def test_a_device_length_that_its_host_copy_contradicts(call: str, name: str) -> None:
    """Each of them is looked at, with the tail as without one."""
    pair = pages_of_four()
    before = pair.snapshot()
    args = CALLS[4][call]
    with pytest.raises(PoolError, match=r"on the device") as caught:
        getattr(pair, call)(**{**args, name: args[name] + 1})
    assert type(caught.value).__name__ == "BadLengths"
    assert pair.snapshot() == before


def extend_two(pair: Pair, last: tuple[int, int]) -> Any:
    """Two requests of two tokens get one more; the first is at home in page 2."""
    return pair.alloc_extend(
        ids(2, 2), host(2, 2), ids(3, 3), host(3, 3), ids(*last), 2
    )  # fmt: skip


def moved(pair: Pair, slots: tuple[int, ...], windows: tuple[int, ...]) -> Any:
    return pair.set_full_to_swa_mapping(ids(*slots), ids(*windows))


def test_slots_of_a_page_are_mapped_one_after_another() -> None:
    """To the peer that the page has already, which has no other page."""
    pair = pages_of_four()
    for slot in (12, 13, 12):
        moved(pair, (slot,), (slot,))
    assert pair.translate_loc_from_full_to_swa(ids(12, 13, 14)).tolist() == [12, 13, 0]
    assert pair.audit() == []


def test_what_a_group_has_parked_is_not_accused() -> None:
    """Of pages without windows the refusal names the one that no slot free of the group named."""
    pair = pages_of_four()
    pair.free_group_begin()
    pair.free_full(ids(12))
    before = pair.snapshot()
    with pytest.raises(PoolError, match=r"^free: \[2\] page 4 has no window\. "):
        pair.free(ids(12, 4, 16))
    assert pair.snapshot() == before


Act = Callable[[Pair], Any]
#: page size, what is done, the kind of refusal, what its message says of the element
FAULTS: tuple[tuple[int, Act, str, str], ...] = (
    (4, lambda p: p.free(ids(4, 5, 12)), "NoWindowPeer", "free: [2] page 3 has no window."),
    (4, lambda p: p.free_swa(ids(4, 16)), "NoWindowPeer", "free_swa: [1] page 4 has no window."),
    (4, lambda p: p.free_page_ids(ids(1, 2, 4)), "NoWindowPeer", "[2] page 4 has no window."),
    (4, lambda p: p.free_full(ids(12, 24)), "StillOwned", "free_full: [1] page 6 has a window."),
    (4, lambda p: p.free_segments([(ids(4, 5, 6, 7, 12, 13), 0)]), "NoWindowPeer", "[4] page 3"),
    (4, lambda p: p.free_swa_segments([(ids(4), 0), (ids(16), 4)]), "NoWindowPeer", "[1] page 4"),
    (4, lambda p: p.free_full_segments([(ids(12, 13), 0), (ids(8), 4)]), "StillOwned",
     "[2] page 2 has a window"),
    (4, lambda p: extend_two(p, (9, 13)), "NoWindowPeer", "[1] page 3 has no window."),
    (4, lambda p: p.alloc_decode(ids(7, 3), host(7, 3), ids(9, 17)), "NoWindowPeer", "[1] page 4"),
    (1, lambda p: p.free(ids(1, 2, 3)), "NoWindowPeer", "free: [2] page 3 has no window."),
    (1, lambda p: p.free_swa(ids(2, 3)), "NoWindowPeer", "free_swa: [1] page 3 has no window."),
    (1, lambda p: p.free_full(ids(3, 1)), "StillOwned", "free_full: [1] page 1 has a window."),
    (1, lambda p: p.free_swa(ids(1, 2, 1)), "Duplicate", "[2] page 1 was named at 0 already"),
    (1, lambda p: p.free_full(ids(3, 7)), "NotOwned", "[1] page 7"),
    (1, lambda p: p.free_full(ids(3, -1)), "OutOfRange", "[1] page -1"),
    # the map
    (4, lambda p: moved(p, (12, 13), (12, 14)), "Misaligned",
     "[1] slot 13 and window slot 14 lie at different offsets"),
    (4, lambda p: moved(p, (12, 13, -1), (12, 14, 12)), "Misaligned", "[1] slot 13 and"),
    (4, lambda p: moved(p, (12, 12), (12, 12)), "Duplicate", "[1] slot 12 is named already"),
    (4, lambda p: moved(p, (12, 16), (12, 12)), "Duplicate",
     "[1] page 4 with window page 3: one of them has another in this call"),
    (4, lambda p: moved(p, (12, 13), (12, 21)), "Duplicate",
     "[1] page 3 with window page 5: one of them has another in this call"),
    (4, lambda p: moved(p, (12, 4), (12, 20)), "StillOwned",
     "[1] page 1 has window page 1, and 5 is that of 0"),
    (4, lambda p: moved(p, (12, 24), (12, 20)), "StillOwned",
     "[1] page 6 has window page 4, and 5 is that of 0"),
    (4, lambda p: moved(p, (12, 16), (12, 4)), "StillOwned",
     "[1] page 4 has window page 0, and 1 is that of 1"),
    (4, lambda p: moved(p, (12, 32), (12, 20)), "NotOwned", "[1] slot 32: its page is not issued"),
    (4, lambda p: moved(p, (12, 3), (12, 19)), "Reserved", "[1] slot 3: its page is reserved"),
    (4, lambda p: moved(p, (12, 0), (12, 20)), "Reserved", "[1] slot 0: its page is reserved"),
    (4, lambda p: moved(p, (12, 36), (12, 20)), "OutOfRange", "[1] slot 36: its page is outside"),
    (4, lambda p: moved(p, (12, -4), (12, 20)), "OutOfRange", "[1] slot -4: its page is outside"),
    (4, lambda p: moved(p, (12, 16), (12, 28)), "NotOwned", "[1] slot 28: its page is not issued"),
    (4, lambda p: moved(p, (12, 16), (12, 0)), "Reserved", "[1] slot 0: its page is reserved"),
    (4, lambda p: moved(p, (12, 16), (12, 400)), "OutOfRange", "[1] slot 400: its page is outside"),
    (4, lambda p: moved(p, (12, 16), (12,)), "WrongShape", "2 slots with 1 window slots"),
    (1, lambda p: moved(p, (3, 1), (4, 5)), "StillOwned",
     "[1] page 1 has window page 1, and 5 is that of 0"),
    (1, lambda p: moved(p, (3, 4), (4, 1)), "StillOwned",
     "[1] page 4 has window page 0, and 1 is that of 1"),
    (1, lambda p: moved(p, (3, 4), (4, 4)), "Duplicate", "[1] page 4 with window page 4"),
    (1, lambda p: moved(p, (3, 9), (4, 5)), "OutOfRange", "[1] slot 9: its page is outside"),
    (4, lambda p: p.clear_full_to_swa_mapping(ids(4, 32)), "NotOwned", "[1] slot 32"),
    (4, lambda p: p.clear_full_to_swa_mapping(ids(4, 3)), "Reserved", "[1] slot 3"),
    (4, lambda p: p.clear_full_to_swa_mapping(ids(4, -1)), "OutOfRange", "[1] slot -1"),
    # tails
    (4, lambda p: p.alloc_extend_swa_tail(**lengths(0, 6, -1, swa_tail_len=3)), "Misaligned",
     "the tail begins at position 3, inside a page of 4."),
    (4, lambda p: p.alloc_extend_swa_tail(**lengths(4, 6, 7, swa_tail_len=3)), "Misaligned",
     "the tail begins at position 3"),
    (4, lambda p: p.alloc_extend_swa_tail(**lengths(8, 12, 19, swa_tail_len=8)), "BadLengths",
     "a tail of 8 tokens of 4 new ones"),
    (4, lambda p: p.alloc_extend_swa_tail(**lengths(0, 4, -1, swa_tail_len=-1)), "NegativeSize",
     "a tail of -1 tokens. Give at least 0."),
    # sizes
    (4, lambda p: p.new_pages_available(-1, 0), "NegativeSize", "num_full_pages"),
    (4, lambda p: p.new_pages_available(0, -1), "NegativeSize", "num_swa_pages"),
    (4, lambda p: p.reclaim_for_prealloc(Tree(sharing=True), -1, 0), "NegativeSize", "full_tokens"),
    (4, lambda p: p.reclaim_for_prealloc(Tree(sharing=True), 0, -1), "NegativeSize", "swa_tokens"),
    (4, lambda p: p.evict_to_free_tokens(None, -1), "NegativeSize", "num_tokens"),
    (4, lambda p: p.resize(SimpleNamespace(full_max_total_num_tokens=32)), "StillOwned",
     "[7, 5] pages are out"),
    (1, lambda p: p.alloc(-1), "NegativeSize", "need_size"),
)  # fmt: skip


@pytest.mark.parametrize(("size", "act", "kind", "words"), FAULTS)
def test_a_fault_is_named_where_it_stands(size: int, act: Act, kind: str, words: str) -> None:
    """The smallest kind, then its smallest index, by page and window; neither side has changed."""
    pair = WORLDS[size]()
    before = pair.snapshot()
    with pytest.raises(PoolError) as caught:
        act(pair)
    said = str(caught.value)
    assert words in said
    if "[" in words:
        assert said.index("[") == said.index(words) + words.index("["), "another is named first"
    assert type(caught.value).__name__ == kind
    assert pair.snapshot() == before
    assert pair.audit() == []
