"""Batches over several tiles, what the record says, rings, and how many loads a request costs."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from impl.allocators.states import BEYOND, FREE, NEVER, OWNED, RESERVED, STAGED
from impl.errors import KINDS, BadLengths, DoubleFree, Duplicate, NotConsecutive
from impl.kernels.device import load
from impl.kernels.device.extend import SCRATCH_ROWS
from impl.kernels.device.pages import UNCLAIMED, Pages, Record, describe, kind_of, make_pages, read
from impl.kernels.device.release import Target
from properties.kernels.guards import Guards
from properties.kernels.rig import DEVICE
from reference import PagedTokenToKVPoolAllocator

# Three tiles, the last one with a single element.
N = 2 * 1024 + 1


def owned(num_pages: int, page_size: int) -> Pages:
    """A pool all of whose pages are out."""
    pages = make_pages(num_pages, page_size, DEVICE)
    pages.states[1:-1] = OWNED
    return pages


def on_device(values: Any) -> torch.Tensor:
    """int64 where the kernels run."""
    return torch.as_tensor(values, dtype=torch.int64).to(DEVICE)


def extend(
    pages: Pages, prefix: list[int], seq: list[int], last: list[int], fused_tokens: int = 4096
) -> list[int]:
    """An extend of a fresh pool, its output and its list between guards."""
    n, guards = len(seq), Guards(DEVICE)
    out = guards.empty("out", sum(seq) - sum(prefix))
    load().extend.place(
        pages,
        guards.line("ids", range(1, pages.num_pages + 1)),
        0,
        out,
        prefix_lens=guards.line("prefix_lens", prefix),
        seq_lens=guards.line("seq_lens", seq),
        last_loc=guards.line("last_loc", last),
        host=guards.line("host", prefix + seq).view(2, n),
        sums=guards.empty("sums", SCRATCH_ROWS * n),
        seq=1,
        fused_tokens=fused_tokens,
    )
    guards.require("out", "sums")
    return out.tolist()


def test_one_long_prompt_among_empty_ones() -> None:
    """Most tokens are one request's, others have none; the last tile is exactly full."""
    seq = [0, 3, 0, 196 * 1024 - 80, 0, 0, 77, 0]
    model = PagedTokenToKVPoolAllocator(201_000, 7)
    zeros, last = [0] * len(seq), [-1] * len(seq)
    want = model.alloc_extend(zeros, zeros, seq, seq, last, sum(seq))
    pages = make_pages(201_000 // 7, 7, DEVICE)
    assert extend(pages, zeros, seq, last) == want
    states = pages.states.tolist()
    assert [page for page, state in enumerate(states) if state == OWNED] == sorted(
        model.owned_pages
    )


@pytest.mark.parametrize("fused_tokens", [0, 4096])
def test_batches_over_several_tiles(fused_tokens: int) -> None:
    """Prefix sums go on from tile to tile, half-filled pages and all."""
    rng = random.Random("tiles")
    model = PagedTokenToKVPoolAllocator(5 * N, 5)
    before = [rng.randint(0, 4) for _ in range(N)]
    zeros = [0] * N
    slots = model.alloc_extend(zeros, zeros, before, before, [-1] * N, sum(before))
    assert slots is not None
    pages = make_pages(N, 5, DEVICE)
    assert extend(pages, zeros, before, [-1] * N, fused_tokens) == slots
    ends, last, at = [], [], 0
    for length in before:
        at += length
        last.append(slots[at - 1] if length else -1)
        ends.append(length + rng.randint(0, 1) * (length % 5 > 0))
    want = model.alloc_extend(before, before, ends, ends, last, sum(ends) - sum(before))
    assert extend(pages, before, ends, last, fused_tokens) == want


def test_the_last_of_three_tiles_is_judged() -> None:
    """A page named at the very end again is found, and so is a free one; nothing has changed."""
    for wrong, kind in ((3, Duplicate), (N + 1, DoubleFree)):
        pages = owned(N + 1, 4)
        pages.states[N + 1] = FREE
        buffer = torch.zeros(N + 1, dtype=torch.int64, device=DEVICE)
        before = pages.states.clone()
        ids = on_device([*range(1, N), wrong])
        load().release.release_ids(pages, ids, Target(buffer, 0, STAGED), seq=9)
        record = read(pages.record.tolist())
        assert record is not None
        assert (kind_of(record), record.at, record.seq) == (kind, N - 1, 9)
        assert record.extra == (2 if kind is Duplicate else 0)
        assert torch.equal(pages.states, before)
        assert not buffer.any()
        assert (pages.claim == UNCLAIMED).all(), "claims left behind"


def test_long_segments_and_many_slots() -> None:
    """More slots than a tile holds, in both forms of a free; the list ends up as it should."""
    for segments in (True, False):
        pages = owned(900, 3)
        ids = torch.zeros(900, dtype=torch.int64, device=DEVICE)
        slots = on_device([page * 3 + offset for page in range(1, 901) for offset in range(3)])
        if segments:
            load().release.release_segments(
                pages, slots, Target(ids, 0, FREE, True), num_given=900, seq=1
            )
        else:
            count = on_device([-1])
            values, order = slots[torch.randperm(2700)].sort()
            target = Target(ids, 900, FREE, True)
            load().slots.release_sorted(pages, values, order, target, count, num_out=900, seq=1)
            assert count.tolist() == [900]
        assert not pages.record.any()
        assert ids.tolist() == list(range(1, 901))
        assert set(pages.states[1:-1].tolist()) == {FREE}


@pytest.mark.parametrize(("page_size", "head"), [(1, 9), (1, N - 40), (3, 100), (3, N - 300)])
def test_takes_over_several_tiles(page_size: int, head: int) -> None:
    """Pages from the head on, of a ring that goes on at its beginning; they alone are out then."""
    pages, guards = make_pages(N, page_size, DEVICE), Guards(DEVICE)
    listed = random.Random(head).sample(range(1, N + 1), N)
    count = N // page_size
    taken = [listed[(head + at) % N] for at in range(count)]
    out = guards.empty("out", count * page_size)
    load().take.take(pages, guards.line("ids", listed), head, out)
    guards.require("out")
    assert out.tolist() == [page * page_size + at for page in taken for at in range(page_size)]
    out_now = [page for page, state in enumerate(pages.states.tolist()) if state == OWNED]
    assert out_now == sorted(taken)


def test_merge_over_several_tiles() -> None:
    """Free, never issued and staged pages, ascending, from where the list begins."""
    pages = make_pages(N, 2, DEVICE)
    states = pages.states[1:-1]
    states[::3], states[1::3] = OWNED, STAGED
    total = int((states != OWNED).sum())
    want = [page for page in range(1, N + 1) if (page - 1) % 3]
    ids = torch.zeros(N, dtype=torch.int64, device=DEVICE)
    load().merge.merge(pages, ids, N - total, total)
    assert ids.tolist() == [0] * (N - total) + want
    assert set(states.tolist()) == {OWNED, FREE, NEVER}


def test_a_merge_writes_no_more_than_was_counted() -> None:
    """Frees that nobody checked may leave more free pages than the list has room for."""
    pages = make_pages(6, 2, DEVICE)
    pages.states[1:-1] = torch.tensor([OWNED, STAGED, FREE, STAGED, OWNED, STAGED])
    ids = torch.zeros(3, dtype=torch.int64, device=DEVICE)
    load().merge.merge(pages, ids, 1, 2)
    assert ids.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("holder", "theirs"), [((2, 7), True), ((0, 0), True), ((2, 6), False), ((1, 7), False)]
)
def test_whose_page_it_is(holder: tuple[int, int], theirs: bool) -> None:
    """Row 2 in generation 7 goes on in its own page or in nobody's, and frees no other."""
    pages, ids = owned(3, 4), on_device([0, 0, 3])
    pages.holder_row[1], pages.holder_gen[1] = holder
    table = torch.tensor([[0] * 4, [0] * 4, [4, 5, 0, 0]], dtype=torch.int32, device=DEVICE)
    rows, prefix, seq, out = (on_device([number]) for number in (2, 2, 3, -1))
    load().extend.place(
        pages, ids, 2, out, seq_lens=seq, prefix_lens=prefix, table=table, rows=rows,
        host=on_device([[2], [2], [3], [7]]), sums=on_device([0] * SCRATCH_ROWS), seq=1,
    )  # fmt: skip
    assert (out.item(), bool(pages.record[0])) == ((6, False) if theirs else (0, True))
    pages.record.zero_()
    load().release.release_row(pages, table, (2, 7), 0, 2, Target(ids, 2, FREE, True), seq=1)
    assert (pages.states[1].item() == FREE, bool(pages.record[0])) == (theirs, not theirs)


def test_who_adds_nothing_claims_nothing() -> None:
    """Two requests in one half-filled page, of which only one goes on in it, are no clash."""
    pages = make_pages(4, 4, DEVICE)
    pages.states[4] = OWNED
    assert extend(pages, [3, 7, 3], [3, 9, 3], [18, 18, 18]) == [19, 4]
    assert not pages.record.any()


def sorted_slots(pages: Pages, slots: torch.Tensor, to: Target) -> None:
    """A plain free of slots, unchecked."""
    values, order = slots.sort()
    load().slots.release_sorted(
        pages, values, order, to, on_device([0]), num_out=9, seq=1, validate=False
    )


def row(pages: Pages, slots: torch.Tensor, to: Target) -> None:
    """A free of a row that has these slots, unchecked."""
    table = slots.to(torch.int32).view(1, -1)
    load().release.release_row(pages, table, (0, 1), 0, 4, to, seq=1, validate=False)


UNCHECKED: dict[str, Callable[[Pages, torch.Tensor, Target], None]] = {
    "ids": lambda pages, slots, to: load().release.release_ids(
        pages, slots[::2] // 2, to, seq=1, validate=False
    ),
    "segments": lambda pages, slots, to: load().release.release_segments(
        pages, slots, to, bounds=on_device([[0, 2, 4], [0, 1, 2]]), num_given=2, seq=1,
        validate=False,
    ),
    "row": row,
    "slots": sorted_slots,
}  # fmt: skip


@pytest.mark.parametrize("bad", [0, 1, -1, 8, 9, 2**30])
@pytest.mark.parametrize("free", UNCHECKED)
def test_what_isnt_checked_stays_inside(free: str, bad: int) -> None:
    """An unchecked free of what is no page leaves the entries around the pages alone."""
    pages, ids = owned(3, 2), on_device([0] * 6)
    pages.holder_row[:] = 5
    UNCHECKED[free](pages, on_device([bad, bad, 4, 5]), Target(ids, 1, FREE))
    assert set(ids[1:3].tolist()) == {2, min(max(bad // 2, 0), 4)}  # ids below name page 0
    assert [ids[0], *ids[3:]] == [0] * 4
    assert pages.states.tolist() == [RESERVED, OWNED, FREE, OWNED, BEYOND]
    assert pages.holder_row.tolist() == [5, 5, 0, 5, 5]


def test_unchecked_segments_that_share_a_page() -> None:
    """A page of two segments counts once, and no more is written than was counted."""
    pages, guards = owned(3, 2), Guards(DEVICE)
    slots, starts = on_device([2, 4, 2]), on_device([0, 2])
    keys, ids = torch.zeros_like(slots), guards.line("ids", [0, 0])
    load().slots.segment_keys(keys, slots, starts, num_segments=2, reverse=False)
    values, order = slots.sort()
    count, target = on_device([0]), Target(ids, 0, FREE)
    load().slots.release_sorted(
        pages, values, order, target, count, num_out=3, seq=1, validate=False,
        keys=keys.sort().values, starts=starts, num_segments=2,
    )  # fmt: skip
    guards.require("ids")
    assert (count.item(), ids.tolist()) == (2, [1, 2])


def test_slots_at_the_end_of_int64() -> None:
    """Where the sum of a page's first slot and an offset leaves int64, slots don't follow."""
    pages, last = make_pages(3, 7, DEVICE), 2**63 - 1  # a multiple of seven
    slots, ids = on_device([last, -last - 1]), on_device([0] * 3)
    load().release.release_segments(pages, slots, Target(ids, 0, FREE), num_given=1, seq=1)
    record = read(pages.record.tolist())
    assert record is not None
    assert (KINDS[record.kind].__name__, record.at) == ("NotConsecutive", 1)


def test_a_ring_goes_on_at_its_beginning() -> None:
    """Tokens taken and given across the end of the list."""
    pages = make_pages(6, 1, DEVICE)
    ids = on_device([1, 2, 3, 4, 5, 6])
    out = on_device([0] * 4)
    load().take.take(pages, ids, 4, out)
    assert out.tolist() == [5, 6, 1, 2]
    load().release.release_ids(pages, on_device([2, 5, 1]), Target(ids, 5, FREE), seq=1)
    assert ids.tolist() == [5, 1, 3, 4, 5, 2]
    assert pages.states.tolist()[1:-1] == [FREE, FREE, NEVER, NEVER, FREE, OWNED]


def test_the_record_says_what_was_found() -> None:
    """Numbers for the message: both sides' lengths, ids, holders, what was expected."""
    pages = make_pages(4, 4, DEVICE)
    extend(pages, [0], [6], [-1])
    out = on_device([7])
    load().extend.place(
        pages, on_device([1, 2, 3, 4]), 2, out, seq_lens=on_device([9]), last_loc=on_device([9]),
        host=on_device([[7]]), sums=on_device([0] * SCRATCH_ROWS), seq=3,
    )  # fmt: skip
    record = read(pages.record.tolist())
    assert out.tolist() == [0]
    assert record == Record(3, BadLengths.rank, 0, 8, 6, 9, 7, 0)
    assert "(8, 9) on the device, (6, 7) on the host" in describe(record, page_size=4)
    pages.record.zero_()
    pages.holder_row[2], pages.holder_gen[2] = 5, 8
    buffer = on_device([0] * 4)
    load().release.release_segments(
        pages, on_device([8, 9, 11]), Target(buffer, 0, STAGED), num_given=1, seq=4
    )
    record = read(pages.record.tolist())
    assert record == Record(4, NotConsecutive.rank, 2, 11, 5, 8, OWNED, 10)
    assert "slot 11 (page 2) where 10 was expected" in describe(record, page_size=4)


@contextmanager
def lanes_loaded() -> Iterator[list[int]]:
    """Counts the elements that the interpreter loads."""
    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    plain, counted = builder.create_masked_load, [0]

    def load_and_count(pointers: Any, mask: Any, *rest: Any) -> Any:
        counted[0] += int(mask.data.sum())
        return plain(pointers, mask, *rest)

    builder.create_masked_load = load_and_count
    try:
        yield counted
    finally:
        del builder.create_masked_load


@pytest.mark.skipif(DEVICE == "cuda", reason="the interpreter counts")
@pytest.mark.parametrize("tokens", [1, 5])
def test_a_request_costs_the_same_in_any_batch(tokens: int) -> None:
    """60 requests or 2,400: the loads per request grow by those of a longer search only."""
    per_request = []
    for n in (60, 2400):
        pages = make_pages(2 * n, 4, DEVICE)
        with lanes_loaded() as counted:
            extend(pages, [0] * n, [tokens] * n, [-1] * n)
        per_request.append(counted[0] / n)
    # Seven more steps of a binary search for each token.
    assert 8 < per_request[0] <= per_request[1] <= per_request[0] + 7 * tokens


def test_without_triton_the_library_works_and_says_what_to_install() -> None:
    """`import impl` doesn't need triton; asking for the kernels names it."""
    script = (
        "import sys; sys.modules['triton'] = None; import impl; from impl.kernels import device\n"
        "try: device.load()\n"
        "except impl.PoolError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install triton" in run.stdout
