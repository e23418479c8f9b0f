"""What the sliding-window pair refuses, element by element: which one is named, and as what.

Whatever is refused, neither side has changed. Spec: `spec/swa_unified.md` §2.4 to §2.7;
`spec/core.md` §4b.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from impl import PoolError
from properties.subjects.swa import Tree
from properties.test_impl_swa_arguments import (
    CALLS,
    WORLDS,
    Pair,
    host,
    ids,
    lengths,
    pages_of_four,
)

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
