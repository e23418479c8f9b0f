"""Rows of state tensors set, moved and collected by their ids: one launch for each tensor.

`check` is a launch of one program before them: it looks at the ids of a call, and what it writes
in the record keeps the launches behind it from doing anything. Rows are counted in words, see
`impl.kernels.slot_moves`, the same in torch. Spec: `spec/pools_states_sizing.md` §3, §5.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from impl.allocators import states
from impl.kernels.device.common import (
    BLOCK,
    CLASH,
    DUPLICATE,
    KIND,
    NO_CLAIM,
    NO_FAULT,
    OPTIONS,
    OUT_OF_RANGE,
    RESERVED,
    claim_pages,
    fault,
    helper,
    kernel,
    write_record,
)

Tensor = torch.Tensor
_RESERVED = tl.constexpr(states.RESERVED)


@helper
def _pair(i, m, source, target, keep, FROM: tl.constexpr, TO: tl.constexpr):
    """Lane `i`: where it reads, where it writes; a lane of neither, or not of `m`, is padding."""
    read = i * 0 + keep
    if FROM:
        read = tl.load(source + i, mask=m, other=keep).to(tl.int64)
    write = i * 0 + keep
    if TO:
        write = tl.load(target + i, mask=m, other=keep).to(tl.int64)
    return read, write


@helper
def _is_row(row, last):
    return (row >= 0) & (row <= last)


@helper
def _inside(row, last):
    """Ids that aren't rows name the first: it is there."""
    return tl.where(_is_row(row, last), row, 0)


@helper
def _claims(read, write, last, keep, claim):
    """Who claimed what a lane writes and what it reads; nobody where it is padding.

    Of an id that is no row it says anything: that is the smaller fault.
    """
    writes = write != keep
    other = tl.load(claim + _inside(write, last), mask=writes, other=NO_CLAIM, cache_modifier=".cg")
    taken = tl.load(claim + _inside(read, last), mask=writes, other=NO_CLAIM, cache_modifier=".cg")
    return other.to(tl.int64), taken.to(tl.int64)


@kernel
def check_ids(
    source, target, count: int, last: int, keep: int, claim, record, seq: int,
    FROM: tl.constexpr, TO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: `OutOfRange`, `Reserved`, `Duplicate`, the smallest of them in the record."""
    if tl.load(record) == 0:
        keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK).to(tl.int64)
            read, write = _pair(i, i < count, source, target, keep, FROM, TO)
            good = _is_row(read, last) & _is_row(write, last)
            keys = tl.minimum(keys, fault(good == 0, OUT_OF_RANGE, i))
            if FROM and TO:
                keys = tl.minimum(keys, fault((read == keep) & (write != keep), RESERVED, i))
            if TO:
                # an id that is no row is the smaller fault, whoever it clashes with
                writes = write != keep
                clash = writes & claim_pages(claim + _inside(write, last), i, writes)
                keys = tl.minimum(keys, tl.where(clash, CLASH, NO_FAULT))
        key = tl.min(keys, 0)
        if TO:
            # nothing reads that key here, so no reduction orders the claims before this
            tl.debug_barrier()
            for start in range(0, count, BLOCK):
                i = start + tl.arange(0, BLOCK).to(tl.int64)
                read, write = _pair(i, i < count, source, target, keep, FROM, TO)
                other, taken = _claims(read, write, last, keep, claim)
                twice = other < i
                if FROM:
                    twice = twice | (taken != NO_CLAIM)
                keys = tl.minimum(keys, fault(twice, DUPLICATE, i))
            key = tl.min(keys, 0)
        if key != NO_FAULT:
            i = key & (KIND - 1)
            read, write = _pair(i, i >= 0, source, target, keep, FROM, TO)
            named = tl.where(_is_row(write, last), read, write)
            earlier = i * 0
            if (key >> 32) == DUPLICATE:
                other, taken = _claims(read, write, last, keep, claim)
                named = tl.where(other < i, write, read)
                earlier = tl.where(other < i, other, taken)
            write_record(record, seq, key, named, 0, 0, _RESERVED, earlier)
        if TO:
            tl.debug_barrier()
            for start in range(0, count, BLOCK):
                i = start + tl.arange(0, BLOCK).to(tl.int64)
                read, write = _pair(i, i < count, source, target, keep, FROM, TO)
                tl.store(claim + _inside(write, last), NO_CLAIM, mask=write != keep)


@helper
def _lane(num_words, count, BLOCK: tl.constexpr):
    """Of a program: the layer, the lane, and its words."""
    tiles = tl.cdiv(num_words, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    rest = program // tiles
    word = (program - rest * tiles) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    layer = rest // count
    return layer, rest - layer * count, word


@kernel
def fill_rows(
    words, layer_stride: int, row_stride: int, num_words: int, target, count: int, last: int,
    keep: int, word: int, record, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program for each tile of a row that is named, in each layer."""
    layer, i, at = _lane(num_words, count, BLOCK)
    row = tl.load(target + i).to(tl.int64)
    go = (tl.load(record) == 0) & (row != keep) & _is_row(row, last)
    to = words + layer * layer_stride + _inside(row, last) * row_stride + at
    tl.store(to, at * 0 + word, mask=at < tl.where(go, num_words, 0))


@kernel
def move_rows(
    out, out_layer: int, out_row: int, words, layer_stride: int, row_stride: int, num_words: int,
    source, target, count: int, last: int, keep: int, record,
    FROM: tl.constexpr, TO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From row `source[i]` of `words` to row `target[i]` of `out`; without ids it is row i.

    What is refused is filled with zeros where lanes are rows of `out`.
    """
    layer, i, at = _lane(num_words, count, BLOCK)
    go = tl.load(record) == 0
    read, write = i, i
    if FROM:
        named = tl.load(source + i).to(tl.int64)
        go = go & _is_row(named, last)
        read = _inside(named, last)
    written = num_words
    if TO:
        named = tl.load(target + i).to(tl.int64)
        go = go & (named != keep) & _is_row(named, last)
        write = _inside(named, last)
        written = tl.where(go, num_words, 0)
    live = at < tl.where(go, num_words, 0)
    value = tl.load(words + layer * layer_stride + read * row_stride + at, mask=live, other=0)
    tl.store(out + layer * out_layer + write * out_row + at, value, mask=at < written)


def check(
    source: Tensor | None, target: Tensor | None, *, last: int, keep: int, claim: Tensor,
    record: Tensor, seq: int,
) -> None:  # fmt: skip
    """Look at the ids of call `seq`, 0..last; one launch. `claim` int32 [last + 1] at rest."""
    given = target if source is None else source
    assert given is not None
    if given.shape[0]:
        check_ids[(1,)](
            given if source is None else source, given if target is None else target,
            given.shape[0], last, keep, claim, record, seq,
            FROM=source is not None, TO=target is not None, BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip


def fill(rows: Tensor, target: Tensor, word: int, *, keep: int, record: Tensor) -> None:
    """Set the named rows of words [layers, rows, n]; one launch, none for nothing."""
    layers, num_rows, num_words = rows.shape
    programs = layers * target.shape[0] * triton.cdiv(num_words, BLOCK)
    if programs:
        fill_rows[(programs,)](
            rows, rows.stride(0), rows.stride(1), num_words, target, target.shape[0], num_rows - 1,
            keep, word, record, BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip


def move(
    out: Tensor, rows: Tensor, source: Tensor | None, target: Tensor | None, *, last: int,
    keep: int, record: Tensor,
) -> None:  # fmt: skip
    """Words of `rows` [layers, …, n] into `out`, of as many or longer rows; one launch."""
    given = target if source is None else source
    assert given is not None
    layers, _, num_words = rows.shape
    count = given.shape[0]
    programs = layers * count * triton.cdiv(num_words, BLOCK)
    if programs:
        move_rows[(programs,)](
            out, out.stride(0), out.stride(1), rows, rows.stride(0), rows.stride(1), num_words,
            given if source is None else source, given if target is None else target,
            count, last, keep, record,
            FROM=source is not None, TO=target is not None, BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip
