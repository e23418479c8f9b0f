"""Bugs planted in the kernels that the kernel tests find.

Those step over the end of a buffer, which only guards show, or need more requests than a pool of
the state machines has. Each is planted alone, and the test named beside it has to fail with it; it
passes without, as the suite shows anyway.
"""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch

from impl.allocators.states import FREE, OWNED
from impl.kernels.device import load
from impl.kernels.device.extend import SCRATCH_ROWS
from impl.kernels.device.pages import make_pages
from impl.kernels.device.release import Target
from properties.kernels import test_extend, test_kv_rows, test_release, test_rows, test_tiles
from properties.kernels.rig import DEVICE, Rig
from properties.kernels.test_extend import Batch
from properties.planted.edit import Edit, edit
from properties.planted.kernels import EXTEND, MERGE, RELEASE, SLOTS, TAKE

KV_ROWS = "kernels.device.kv_rows"

pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="only interpreted kernels can be edited")

extends = test_extend.test_slots_and_faults_are_those_of_the_reference
frees = test_release.test_frees_are_those_of_the_reference
rows = test_rows.test_rows
large_pool = partial(test_kv_rows.test_the_largest_slot_of_a_large_pool, "triton")
last_tile = test_tiles.test_the_last_of_three_tiles_is_judged
tiles = test_tiles.test_batches_over_several_tiles


def whole_pool() -> None:
    """One request takes all pages; behind the list stands the reserved page."""
    rig = Rig(4, 3)
    zone = rig.books.zones["ids"]
    zone.whole[zone.body.storage_offset() + 4 :] = 0
    batch = Batch([([], 0, 12)])
    assert test_extend.extend(rig, batch, random.Random(0), 0) is not None


def differing_copies() -> None:
    """A batch that is refused, too long for the plan to fill: nothing is handed out."""
    rig = Rig(4, 3)
    batch = Batch([([], 0, 7)])
    batch.device_seq[0] += 1
    test_extend.extend(rig, batch, random.Random(0), 0)


def far_rows() -> None:
    """Rows 2^30 entries apart, in memory that is reserved and never touched: row 2 is beyond 2^31.

    A product in 32 bits turns negative and lands as far before the table.
    """
    apart, width = 2**30, 8
    reserved = mmap.mmap(-1, 17 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    entries = torch.from_numpy(np.frombuffer(reserved, np.int32))
    table = entries.as_strided((3, width), (apart, 1), 2**31 + 100)
    pages = make_pages(4, 3, DEVICE)
    out = torch.zeros(5, dtype=torch.int64)
    ids = torch.arange(1, 5)
    load().extend.place(
        pages, ids, 0, out, table=table, rows=torch.tensor([2]), prefix_lens=torch.tensor([0]),
        seq_lens=torch.tensor([5]), host=torch.tensor([[2], [0], [5], [1]]),
        sums=torch.zeros(SCRATCH_ROWS, dtype=torch.int64), seq=1,
    )  # fmt: skip
    assert table[2].tolist() == [3, 4, 5, 6, 7, 0, 0, 0]
    load().extend.place(
        pages, ids, 2, out[:1], table=table, rows=torch.tensor([2]), seq_lens=torch.tensor([6]),
        host=torch.tensor([[2], [6], [1]]), sums=torch.zeros(SCRATCH_ROWS, dtype=torch.int64),
        seq=2,
    )  # fmt: skip
    assert not pages.record.any()
    assert table[2].tolist() == [3, 4, 5, 6, 7, 8, 0, 0]
    load().release.release_row(pages, table, (2, 1), 0, 6, Target(ids, 0, FREE, True), seq=3)
    assert not pages.record.any()
    assert OWNED not in pages.states.tolist()


# Of Linux; `mmap` names it from Python 3.13 on.
NO_RESERVE = 0x4000


@dataclass(frozen=True)
class Stray:
    """A bug, the test that finds it, and what it says then."""

    title: str
    edit: Edit
    test: Callable[[], None]
    says: str

    def __str__(self) -> str:
        return self.title


NO_KEYS = "keys = tl.full((BLOCK,), NO_FAULT, tl.int64)\n    for start in "
OUTSIDE = "outside"

BUGS = (
    Stray("a mask of <= for <", edit(
        f"{TAKE}:take_slots", "inside = t < num_slots", "inside = t <= num_slots",
    ), partial(frees, 0, False), OUTSIDE),
    Stray("a store past the last token", edit(
        f"{EXTEND}:_fill_tile", "tl.store(out + t, slot, mask=inside)",
        "tl.store(out + t, slot, mask=t <= num_tokens)",
    ), partial(extends, 0), OUTSIDE),
    Stray("a store past the last token of a row", edit(
        f"{EXTEND}:_fill_tile", "tl.store(table + to, slot.to(tl.int32), mask=live)",
        "tl.store(table + to + column_stride, slot.to(tl.int32), mask=live)\n"
        "        tl.store(table + to, slot.to(tl.int32), mask=live)",
    ), partial(rows, 1), "assert [["),
    Stray("pages come back one place too far", edit(
        f"{RELEASE}:release_runs", "to = at + _place(", "to = at + 1 + _place(",
    ), partial(frees, 0, False), "free list ["),
    Stray("a page is taken from one past the list", edit(
        f"{EXTEND}:_fill_tile", "ids + head + rank + page_at", "ids + head + rank + page_at + 1",
    ), whole_pool, OUTSIDE),
    Stray("tokens of a page all mark it as owned", edit(
        f"{EXTEND}:_fill_tile", "opens = fresh & (in_page == 0)", "opens = fresh",
    ), partial(extends, 2), "write the same places"),
    Stray("the place before the first is read", edit(
        f"{SLOTS}:_sorted_slots", "mask=m & (i > 0)", "mask=m",
    ), partial(frees, 1, False), OUTSIDE),
    Stray("the fill doesn't look at the record", edit(
        f"{EXTEND}:fill", "tl.where(tl.load(record) == 0, num_tokens, 0)", "num_tokens",
    ), differing_copies, "a refused call gives"),
    Stray("rows are addressed in 32 bits by the fill", edit(
        f"{EXTEND}:_fill_tile", "row * row_stride", "row.to(tl.int32) * row_stride",
    ), far_rows, OUTSIDE),
    Stray("rows are addressed in 32 bits where a last slot is read", edit(
        f"{EXTEND}:_last_loc", "row * row_stride", "row.to(tl.int32) * row_stride",
    ), far_rows, OUTSIDE),
    Stray("rows are addressed in 32 bits by a release", edit(
        f"{RELEASE}:release_runs", "tl.cast(row, tl.int64) * row_stride",
        "tl.cast(row, tl.int32) * row_stride",
    ), far_rows, OUTSIDE),
    Stray("rows of KV are addressed in 32 bits", edit(
        f"{KV_ROWS}:_offset", "group * group_step + (", "(group * group_step).to(tl.int32) + (",
    ), large_pool, "assert tensor(False)"),
    Stray("the second tile of requests begins anew", edit(
        f"{EXTEND}:plan", "carry += tl.sum(both, 0)", "carry += 0",
    ), partial(tiles, 4096), "assert ["),
    Stray("the last tile of pages given back isn't judged", edit(
        f"{RELEASE}:_page_faults", f"{NO_KEYS}range(0, num_given, BLOCK)",
        f"{NO_KEYS}range(0, num_given - 1, BLOCK)",
    ), last_tile, "assert None is not None"),
    Stray("the last of several tiles isn't merged", edit(
        f"{MERGE}:merge_states", "range(0, num_pages, BLOCK)", "range(0, num_pages - 1, BLOCK)",
    ), test_tiles.test_merge_over_several_tiles, "assert"),
    Stray("a page in two full segments is accepted", edit(
        f"{SLOTS}:_judge", "fault(owner < segment,", "fault((owner < segment) & ~m,",
    ), partial(frees, 2, False), "kernels miss ('Duplicate'"),
    Stray("the first of two names of a page is refused", edit(
        f"{RELEASE}:_page_faults", "fault(first < i, DUPLICATE, i)",
        "fault(first < i, DUPLICATE, first.to(tl.int64))",
    ), last_tile, "2 != 2048"),
)  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_planted_bug_fails_its_test(bug: Stray) -> None:
    """The test named beside the bug fails with it, and says what it should."""
    with bug.edit.planted(), pytest.raises(AssertionError) as failure:
        bug.test()
    assert bug.says in str(failure.value)


@pytest.mark.parametrize("check", [whole_pool, differing_copies, far_rows])
def test_what_bugs_fail_sound_kernels_pass(check: Callable[[], None]) -> None:
    """The checks that stand here only."""
    check()
