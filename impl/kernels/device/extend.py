"""Slots for an extend or a decode, `last_loc` given or read from the row table.

Two kernels. *Plan* is one program: it checks all requests, claims the half-filled pages that they
continue (so that two that continue one page show), decides, and leaves prefix sums. *Fill* is a
grid over tiles of output tokens, each of which finds its request in the prefix sums: balanced for
one very long prompt, and nothing is O(batch^2). A small fill is done by the plan's program, so a
decode or a short extend is a single launch.

The caller has made all tests that host data decides: lengths that fit, enough free pages, and with
rows that every row is held, named once, and wide enough. The faults left are `BadLengths` (host
and device differ), `BadLastLoc` and `Duplicate`. New pages come from `ids[head:]` in batch order;
the caller advances its head by as many as the host lengths say. Spec: `spec/core.md` §4, §5, §5a.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from impl.kernels.device.common import (
    BAD_LAST_LOC,
    BAD_LENGTHS,
    BLOCK,
    CLASH,
    DUPLICATE,
    KIND,
    NO_CLAIM,
    NO_FAULT,
    OPTIONS,
    OWNED,
    claim_pages,
    clip,
    fault,
    helper,
    kernel,
    report_page,
    search,
    write_record,
)
from impl.kernels.device.pages import Pages

Tensor = torch.Tensor

# Rows of the scratch buffer `sums`. What a fill needs of a request: tokens before it, new pages
# before it (less one if it goes on in a page), offset of its first token in a page, page it goes
# on in. What a report needs: seq, prefix and row as the device has them, where they differ.
SCRATCH_ROWS = 7
# A plan with a fill behind it needs more scalar registers than an AMD GPU has.
FUSED = torch.version.hip is None
# Up to so many tokens the plan's program fills: four tiles take it less than a launch costs.
FUSED_TOKENS = 4 * BLOCK


@helper
def _last_loc(last_loc, table, row, prefix, row_stride, column_stride, i, m, ROWS: tl.constexpr):
    """The slot of position prefix - 1, -1 without one (with rows; else as given)."""
    if ROWS:
        at = row * row_stride + (prefix - 1) * column_stride
        last = tl.load(table + at, mask=prefix > 0, other=-1)
    else:
        last = tl.load(last_loc + i, mask=m)
    return last.to(tl.int64)


@helper
def _lengths(host, n, i, m, ROWS: tl.constexpr, DECODE: tl.constexpr):
    """Row, prefix, seq and generation of requests, as the host has them."""
    row = i * 0
    generation = row
    if ROWS:
        row = tl.load(host + i, mask=m)
        generation = tl.load(host + (3 - DECODE) * n + i, mask=m)
    if DECODE:
        seq = tl.load(host + ROWS * n + i, mask=m, other=1)
        prefix = seq - 1
    else:
        prefix = tl.load(host + ROWS * n + i, mask=m, other=0)
        seq = tl.load(host + (ROWS + 1) * n + i, mask=m, other=0)
    return row, prefix, seq, generation


@helper
def _fill_tile(
    start, num_tokens, num_live, out, ids, head, host, sums, n, rounds, page_size,
    states, holder_row, holder_gen, table, row_stride, column_stride,
    ROWS: tl.constexpr, DECODE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Slots of the tokens from `start` on; zeros, and nothing else, from `num_live` on."""
    t = start + tl.arange(0, BLOCK).to(tl.int64)
    inside = t < num_tokens
    live = t < num_live
    if DECODE:
        i = t
    else:
        i = search(sums, n, rounds, t, live)
    before = tl.load(sums + i, mask=live)
    rank = tl.load(sums + n + i, mask=live)
    offset = tl.load(sums + 2 * n + i, mask=live)
    half_page = tl.load(sums + 3 * n + i, mask=live)
    at = t - before + offset
    page_at = at // page_size
    in_page = at - page_at * page_size
    continues = (page_at == 0) & (offset > 0)
    fresh = live & ~continues
    new_page = tl.load(ids + head + rank + page_at, mask=fresh)
    page = tl.where(continues, half_page, new_page)
    slot = tl.where(live, page * page_size + in_page, 0)
    tl.store(out + t, slot, mask=inside)
    opens = fresh & (in_page == 0)
    tl.store(states + page, OWNED, mask=opens)
    if ROWS:
        row, prefix, _, generation = _lengths(host, n, i, live, ROWS, DECODE)
        tl.store(holder_row + page, row.to(tl.int32), mask=opens)
        tl.store(holder_gen + page, generation, mask=opens)
        position = prefix + t - before
        to = row * row_stride + position * column_stride
        tl.store(table + to, slot.to(tl.int32), mask=live)


@helper
def _differing(
    prefix_lens, seq_lens, rows, host, n, sums, ROWS: tl.constexpr, DECODE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Keys of requests whose numbers aren't the host's; these are left in `sums`.

    In a loop of its own, because together with what follows it needs more scalar registers than
    an AMD GPU has.
    """
    keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        m = i < n
        row, prefix, end, _ = _lengths(host, n, i, m, ROWS, DECODE)
        found_end = tl.load(seq_lens + i, mask=m).to(tl.int64)
        differs = found_end != end
        if DECODE == 0:
            found_prefix = tl.load(prefix_lens + i, mask=m).to(tl.int64)
            differs = differs | (found_prefix != prefix)
        if ROWS:
            found_row = tl.load(rows + i, mask=m).to(tl.int64)
            differs = differs | (found_row != row)
        differs = differs & m
        tl.store(sums + 4 * n + i, found_end, mask=differs)
        if DECODE == 0:
            tl.store(sums + 5 * n + i, found_prefix, mask=differs)
        if ROWS:
            tl.store(sums + 6 * n + i, found_row, mask=differs)
        keys = tl.minimum(keys, fault(differs, BAD_LENGTHS, i))
    return keys


@helper
def _misplaced(
    last, page, offset, prefix, row, generation, i, m, page_size, num_pages, states, holder_row,
    holder_gen, ROWS: tl.constexpr,
):  # fmt: skip
    """Whether `last`, of `page`, isn't where a prefix can end."""
    entry = clip(page, num_pages)
    half = offset > 0
    state = tl.load(states + entry, mask=half, other=OWNED)
    # A negative last has a remainder that isn't positive. Where the offset isn't 0 its page isn't
    # owned; where it is 0, only a remainder of -1 (or of a page size of 1) fits.
    after = last - page * page_size + 1
    bad = (tl.where(after == page_size, 0, after) != offset) | (state != OWNED)
    bad = bad | ((prefix == 0) & (last != -1))
    if ROWS:
        # An entry never written is 0: its page is the reserved one.
        bad = bad | ((prefix > 0) & (last < page_size))
        holder = tl.load(holder_row + entry, mask=half, other=0).to(tl.int64)
        since = tl.load(holder_gen + entry, mask=half)
        bad = bad | ((holder != 0) & ((holder != row) | (since != generation)))
    return bad & m


@kernel
def plan(
    prefix_lens, seq_lens, last_loc, rows, table, row_stride: int, column_stride: int,
    host, n: int, rounds: int, sums, out, fused_tokens: int, ids, head: int,
    page_size: int, num_pages: int, states, holder_row, holder_gen, claim, record,
    seq: int, validate: int,
    ROWS: tl.constexpr, DECODE: tl.constexpr, FUSED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: checks, claims, verdict, prefix sums; fills the first `fused_tokens`."""
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    num_live = tl.full((), 0, tl.int64)
    if tl.load(record) == 0:
        keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
        if validate != 0:
            keys = _differing(prefix_lens, seq_lens, rows, host, n, sums, ROWS, DECODE, BLOCK)
        # New tokens and new pages before a tile, in one sum: pools have less than 2^31 slots.
        carry = tl.full((), 0, tl.int64)
        for start in range(0, n, BLOCK):
            i = start + lanes
            m = i < n
            row, prefix, end, generation = _lengths(host, n, i, m, ROWS, DECODE)
            last = _last_loc(last_loc, table, row, prefix, row_stride, column_stride, i, m, ROWS)
            tokens = end - prefix
            offset = prefix % page_size
            half = offset > 0
            page = last // page_size
            claims = half & (tokens > 0)
            opened = (offset + tokens + (page_size - 1)) // page_size - half
            both = tokens * KIND + opened
            before = carry + tl.cumsum(both, 0) - both
            if start + BLOCK < n:
                carry += tl.sum(both, 0)
            first = before >> 32
            if validate != 0:
                bad = _misplaced(
                    last, page, offset, prefix, row, generation, i, m, page_size, num_pages,
                    states, holder_row, holder_gen, ROWS,
                )  # fmt: skip
                keys = tl.minimum(keys, fault(bad, BAD_LAST_LOC, i))
                # A page with a fault needs no claim: the fault comes before any `Duplicate`.
                claims = claims & ~bad
                clash = claims & claim_pages(claim + page, i, claims)
                keys = tl.minimum(keys, tl.where(clash, CLASH, NO_FAULT))
                first = tl.where(bad, last, first)
            tl.store(sums + i, first, mask=m)
            tl.store(sums + n + i, (before & (KIND - 1)) - half, mask=m)
            tl.store(sums + 2 * n + i, offset, mask=m)
            tl.store(sums + 3 * n + i, tl.where(claims, page, 0), mask=m)
        key = tl.min(keys, 0)
        tl.debug_barrier()
        if validate != 0:
            if key == CLASH:
                for start in range(0, n, BLOCK):
                    i = start + lanes
                    page = tl.load(sums + 3 * n + i, mask=i < n, other=0)
                    first = tl.load(claim + page, mask=page > 0, other=-1, cache_modifier=".cg")
                    twice = (first != i) & (first >= 0)
                    keys = tl.minimum(keys, fault(twice, DUPLICATE, i))
                key = tl.min(keys, 0)
            if key != NO_FAULT:
                _report(
                    key, host, n, sums, page_size, num_pages, states, holder_row, holder_gen,
                    claim, record, seq, ROWS, DECODE,
                )  # fmt: skip
                tl.debug_barrier()
            for start in range(0, n, BLOCK):
                i = start + lanes
                page = tl.load(sums + 3 * n + i, mask=i < n, other=0)
                tl.store(claim + page, NO_CLAIM, mask=page > 0)
        num_live = tl.where(key == NO_FAULT, fused_tokens, 0)
    if FUSED:
        for start in range(0, fused_tokens, BLOCK):
            _fill_tile(
                start, fused_tokens, num_live, out, ids, head, host, sums, n, rounds, page_size,
                states, holder_row, holder_gen, table, row_stride, column_stride,
                ROWS, DECODE, BLOCK,
            )  # fmt: skip


@helper
def _report(
    key, host, n, sums, page_size, num_pages, states, holder_row, holder_gen, claim, record, seq,
    ROWS: tl.constexpr, DECODE: tl.constexpr,
):  # fmt: skip
    """Fill the record for the fault of `key`, from what was left in `sums`."""
    i = key & (KIND - 1)
    extra = i * 0
    if (key >> 32) == BAD_LENGTHS:
        _, prefix, end, _ = _lengths(host, n, i, i >= 0, ROWS, DECODE)
        found_end = tl.load(sums + 4 * n + i)
        found_prefix = found_end - 1
        if DECODE == 0:
            found_prefix = tl.load(sums + 5 * n + i)
        if ROWS:
            extra = tl.load(sums + 6 * n + i)
        write_record(record, seq, key, found_prefix, prefix, found_end, end, extra)
    else:
        last = tl.load(sums + i)
        if (key >> 32) == DUPLICATE:
            page = tl.load(sums + 3 * n + i)
            last = page * page_size + tl.load(sums + 2 * n + i) - 1
            extra = tl.load(claim + page, cache_modifier=".cg").to(tl.int64)
        report_page(
            key, last, extra, page_size, num_pages, states, holder_row, holder_gen, record, seq
        )


@kernel
def fill(
    out, num_tokens: int, ids, head: int, host, sums, n: int, rounds: int,
    page_size: int, states, holder_row, holder_gen, table, row_stride: int,
    column_stride: int, record,
    ROWS: tl.constexpr, DECODE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program per tile of output tokens, behind a `plan` of the same call."""
    num_live = tl.where(tl.load(record) == 0, num_tokens, 0)
    _fill_tile(
        tl.program_id(0).to(tl.int64) * BLOCK, num_tokens, num_live, out, ids, head, host,
        sums, n, rounds, page_size, states, holder_row, holder_gen, table, row_stride,
        column_stride, ROWS, DECODE, BLOCK,
    )  # fmt: skip


def place(
    pages: Pages,
    ids: Tensor,
    head: int,
    out: Tensor,
    *,
    seq_lens: Tensor,
    prefix_lens: Tensor | None = None,
    last_loc: Tensor | None = None,
    table: Tensor | None = None,
    rows: Tensor | None = None,
    host: Tensor,
    sums: Tensor,
    seq: int,
    validate: bool = True,
    fused_tokens: int = FUSED_TOKENS,
) -> None:
    """Slots for positions prefix..seq-1 of every request, into `out`; one or two launches.

    A decode where `prefix_lens` is None: prefix = seq - 1. Either `last_loc` is given, or `table`
    int32 [rows, width], any strides, and `rows`: then it is read from the table, the slots are
    written there, and new pages get the holder (row, generation).

    `ids` int64 [num_pages], free from `head` on. `out` int64 [number of new tokens]: its length
    is the count that the host's lengths add up to. Lengths, `last_loc` and `rows` [n], int32 or
    int64 each, contiguous. `host` int64 [k, n] on the device, as the host has them: row (with a
    table), prefix (unless a decode), seq, generation (with a table). `sums` int64, at least
    SCRATCH_ROWS * n elements, whatever they hold; the call after may reuse it. Nothing for n = 0.
    """
    n, num_tokens = seq_lens.shape[0], out.shape[0]
    if not n:
        return
    decodes, through_rows = prefix_lens is None, table is not None
    fused = num_tokens if FUSED and num_tokens <= fused_tokens else 0
    rounds = n.bit_length()
    # What a variant doesn't look at is given some pointer of fixed type.
    lines = host if table is None else table
    strides = lines.stride()
    plan[(1,)](
        host if prefix_lens is None else prefix_lens,
        seq_lens,
        host if last_loc is None else last_loc,
        host if rows is None else rows,
        lines, *strides, host, n, rounds, sums, out, fused, ids, head,
        pages.page_size, pages.num_pages, pages.states, pages.holder_row, pages.holder_gen,
        pages.claim, pages.record, seq, int(validate),
        ROWS=through_rows, DECODE=decodes, FUSED=FUSED, BLOCK=BLOCK, **OPTIONS,
    )  # fmt: skip
    if num_tokens > fused:
        fill[(triton.cdiv(num_tokens, BLOCK),)](
            out, num_tokens, ids, head, host, sums, n, rounds, pages.page_size, pages.states,
            pages.holder_row, pages.holder_gen, lines, *strides, pages.record,
            ROWS=through_rows, DECODE=decodes, BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip
