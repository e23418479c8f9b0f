"""Large batches against the reference, slot for slot: what small pools can't show.

Thousands of requests in one call, a million tokens in one extend, frees scattered over all of it.
Spec: `spec/core.md` §4.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from impl import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from properties.subjects.impl import default_device
from reference import PagedTokenToKVPoolAllocator as PagedReference
from reference import TokenToKVPoolAllocator as TokenReference

NUM_REQUESTS = 4_096
NUM_TOKENS = 1_000_000
# Powers of two and not, and a page of one slot, where every token takes a page.
PAGE_SIZES = (1, 16, 48, 64)
DTYPES = (torch.int64, torch.int32)
DEVICE = default_device()

pytestmark = pytest.mark.system("paged")


class Pair:
    """An allocator and its reference, called alike; requests are rows of slots by number."""

    def __init__(self, num_pages: int, page_size: int, *, need_sort: bool = False) -> None:
        size = num_pages * page_size
        self.pool = PagedTokenToKVPoolAllocator(size, page_size, device=DEVICE, need_sort=need_sort)
        self.reference = PagedReference(size, page_size, need_sort=need_sort)
        self.rows: list[list[int]] = []
        self.dtype = torch.int64

    def tensor(self, ids: list[int], device: str = DEVICE) -> torch.Tensor:
        return torch.tensor(ids, dtype=self.dtype, device=device)

    def lengths(self, tokens: list[int]) -> dict[str, list[int]]:
        prefix = [len(row) for row in self.rows]
        seq = [old + new for old, new in zip(prefix, tokens, strict=True)]
        last = [row[-1] if row else -1 for row in self.rows]
        return {
            "prefix_lens": prefix, "prefix_lens_cpu": prefix,
            "seq_lens": seq, "seq_lens_cpu": seq, "last_loc": last,
        }  # fmt: skip

    def call(self, method: str, **args: Any) -> list[int] | None:
        """Both sides' result, which is the same, and so is the whole state afterwards."""
        tensors = {
            key: self.tensor(ids, "cpu" if key.endswith("_cpu") else DEVICE)
            if isinstance(ids, list)
            else ids
            for key, ids in args.items()
        }
        got = getattr(self.pool, method)(**tensors)
        found = got.tolist() if isinstance(got, torch.Tensor) else got
        due = getattr(self.reference, method)(**args)
        assert found == due
        self.compare()
        return found

    def compare(self) -> None:
        assert self.pool.snapshot() == self.reference.snapshot()

    def extend(self, tokens: list[int]) -> list[int] | None:
        """Appends to every request its number of tokens; None leaves the rows alone."""
        found = self.call("alloc_extend", **self.lengths(tokens), extend_num_tokens=sum(tokens))
        if found is not None:
            at = 0
            for row, count in zip(self.rows, tokens, strict=True):
                row += found[at : at + count]
                at += count
        return found

    def decode(self) -> None:
        args = self.lengths([1] * len(self.rows))
        found = self.call("alloc_decode", **{k: v for k, v in args.items() if "prefix" not in k})
        for row, slot in zip(self.rows, found or [], strict=True):
            row.append(slot)


def uneven(source: random.Random, count: int, most: int) -> list[int]:
    """Token counts of a batch: a third of its members have none, some have just one."""
    return [source.choice((0, 1, source.randint(0, most))) for _ in range(count)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_batch_of_thousands(page_size: int, dtype: torch.dtype) -> None:
    """4,096 requests in one extend, a second chunk and a decode get the reference's slots."""
    source = random.Random(page_size)
    pair = Pair(40_000, page_size)
    pair.dtype = dtype
    pair.rows = [[] for _ in range(NUM_REQUESTS)]
    assert pair.extend(uneven(source, NUM_REQUESTS, 9)) is not None
    assert pair.extend(uneven(source, NUM_REQUESTS, max(8, 2 * page_size))) is not None
    pair.rows = [row for row in pair.rows if row]
    pair.decode()
    assert pair.pool.audit() == []


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_million_tokens(page_size: int) -> None:
    """One extend of a million tokens, alone or among others, gets the reference's slots."""
    pair = Pair(NUM_TOKENS // page_size + 64, page_size)
    pair.rows = [[], [], []]
    pair.extend([5, 0, 1])
    # request 0 goes on in its half-filled page, request 2 gets nothing
    pair.extend([page_size, NUM_TOKENS, 0])
    assert len(pair.rows[1]) == NUM_TOKENS


@pytest.mark.parametrize("page_size", [16, 48])
def test_a_million_tokens_too_many(page_size: int) -> None:
    """An extend that is one page short is None and changes nothing, however large it is."""
    pair = Pair(NUM_TOKENS // page_size, page_size)
    pair.rows = [[], []]
    pair.extend([1, 0])
    assert pair.extend([0, NUM_TOKENS]) is None


@pytest.mark.parametrize("prefix", [0, 15, 16, 17, 32])
def test_lengths_whose_sums_leave_int64(prefix: int) -> None:
    """Requests as long as an int64 holds, beside one whose prefix ends at a border or not."""
    pair, far = Pair(8, 16), 2**62
    pair.rows = [[]]
    pair.extend([3 * 16])  # pages 1 to 3 are out
    last = [15 + prefix if prefix else -1, 47, 63]
    for seq in ([prefix, far + 1, far + 17], [prefix + 2, far, far + 5]):
        lens = {"prefix_lens": [prefix, far, far], "seq_lens": seq}
        args = {**lens, **{f"{name}_cpu": ids for name, ids in lens.items()}}
        tokens = sum(seq) - prefix - 2 * far
        assert pair.call("alloc_extend", **args, last_loc=last, extend_num_tokens=tokens)


@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_scattered_frees(page_size: int, need_sort: bool) -> None:
    """Thousands of pages freed in any order, by slots, ids and segments, come back in order."""
    source = random.Random(page_size)
    pair = Pair(12_000, page_size, need_sort=need_sort)
    pair.rows = [[] for _ in range(NUM_REQUESTS)]
    pair.extend([source.randint(1, 2 * page_size) for _ in pair.rows])
    source.shuffle(pair.rows)
    quarter = NUM_REQUESTS // 4
    by_slots, by_ids, by_group = (pair.rows[i * quarter : (i + 1) * quarter] for i in range(3))
    slots = [slot for row in by_slots for slot in row]
    source.shuffle(slots)
    pair.call("free", free_index=slots)
    pages = list(dict.fromkeys(slot // page_size for row in by_ids for slot in row))
    source.shuffle(pages)
    pair.call("free_page_ids", page_ids=pages)
    pair.call("free_group_begin")
    for row in by_group[: len(by_group) // 16]:
        pair.call("free_segment", free_index=row, start_pos=0)
    pair.call("free", free_index=[row[0] for row in by_group[len(by_group) // 16 :]])
    pair.call("free_group_end")
    pair.rows = pair.rows[3 * quarter :]
    pair.decode()
    pair.rows.append([])
    pair.extend([page_size] * len(pair.rows))
    assert pair.pool.audit() == []


@pytest.mark.parametrize("need_sort", [False, True])
def test_a_large_token_pool(need_sort: bool) -> None:
    """100,000 slots go round the token allocator's ring in the reference's order."""
    size = 100_000
    pool = TokenToKVPoolAllocator(size, device=DEVICE, need_sort=need_sort)
    reference = TokenReference(size, need_sort=need_sort)
    source = random.Random(7)
    held: list[int] = []
    for _ in range(6):
        count = source.randint(size // 4, size // 2)
        got, due = pool.alloc(count), reference.alloc(count)
        assert (None if got is None else got.tolist()) == due
        held += due or []
        source.shuffle(held)
        given, held = held[: size // 3], held[size // 3 :]
        pool.free(torch.tensor(given, device=DEVICE))
        reference.free(given)
        assert pool.snapshot() == reference.snapshot()
