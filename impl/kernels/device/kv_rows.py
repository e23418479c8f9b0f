"""Rows of KV buffers written and moved by slots; in torch the same is `impl.kernels.kv_rows`.

A store is one launch for all of its parts, a move one for all buffers of a pool. Whoever writes
has looked at all slots of the call before: with a fault nobody writes, and the record says why.
Offsets are of 64 bits: slots and rows both are. Spec: `spec/core.md` §7, §8,
`spec/pools_states_sizing.md` §8.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from impl.kernels.kv_rows import Part, one, words_like
from impl.storage.buffers import KVBuffer

Tensor = torch.Tensor
_RESERVED = tl.constexpr(states.RESERVED)
# Lanes of a program, and columns: together four elements for each thread.
ROWS, COLUMNS = 4, 256
# Of a store at most: about as many as a large device runs at once.
PROGRAMS = 512
#: what is stored, of types that aren't bytes
_STORED = {
    torch.bfloat16: torch.int16, torch.float16: torch.float16, torch.float32: torch.float32,
}  # fmt: skip
# Of a tile that is moved: rows, words.
_LANES, _WORDS = 32, 32

#: how values become what is stored: bits of exponent and of fraction, bias, the largest code, NaN
RAW, PLAIN, BFLOAT16, E4M3FN, E5M2, E4M3FNUZ = range(6)
_RAW, _PLAIN, _BFLOAT16 = (tl.constexpr(each) for each in (RAW, PLAIN, BFLOAT16))
_E4M3FN, _E5M2 = tl.constexpr(E4M3FN), tl.constexpr(E5M2)
FORMATS = {
    torch.bfloat16: BFLOAT16, torch.float16: PLAIN, torch.float32: PLAIN,
    torch.float8_e4m3fn: E4M3FN, torch.float8_e5m2: E5M2, torch.float8_e4m3fnuz: E4M3FNUZ,
}  # fmt: skip


@helper
def _to_bfloat16(x):
    """The bits of float32 values rounded to nearest, ties to even."""
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where(x == x, rounded, (bits >> 16) | 0x40).to(tl.int16)


@helper
def _to_fp8(x, FRACTION: tl.constexpr, BIAS: tl.constexpr, MOST: tl.constexpr, NAN: tl.constexpr,
            SIGNED_ZERO: tl.constexpr):  # fmt: skip
    """The codes of float32 values, nearest, ties to even, clamped to the largest finite one."""
    bits = x.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 0x80
    size = bits & 0x7FFFFFFF
    magnitude = size.to(tl.float32, bitcast=True)
    # normal: drop what the fraction doesn't hold, and move the exponent
    dropped: tl.constexpr = 23 - FRACTION
    normal = (size + ((1 << (dropped - 1)) - 1) + ((size >> dropped) & 1)) >> dropped
    normal = normal - ((127 - BIAS) << FRACTION)
    # subnormal: a whole number of the smallest steps; adding 2^23 rounds to whole numbers
    steps = magnitude * tl.full((), 2.0 ** (BIAS - 1 + FRACTION), tl.float32)
    whole = (steps + 8388608.0).to(tl.int32, bitcast=True) & 0x7FFFFF
    code = tl.where(size < ((128 - BIAS) << 23), whole, normal)
    code = tl.minimum(code, MOST)
    if SIGNED_ZERO:
        code = code | sign
        nan = sign | NAN
    else:
        code = tl.where(code > 0, code | sign, code)
        nan = sign * 0 + NAN
    return tl.where(x == x, code, nan).to(tl.uint8)


@helper
def _from_bfloat16(bits):
    """Float32 values of bits: some interpreters have subnormal ones wrong."""
    return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@helper
def _values(source, at, m, scale, FORMAT: tl.constexpr, BITS: tl.constexpr, SCALED: tl.constexpr):
    """What is stored for the values at some places, of which bfloat16 ones come as `BITS`."""
    value = tl.load(source + at, mask=m, other=0)
    stored = value
    if FORMAT != _RAW:
        x = _from_bfloat16(value) if BITS else value.to(tl.float32)
        if SCALED:
            x = tl.div_rn(x, tl.zeros_like(x) + tl.load(scale))
            # the quotient is of the values' type
            if BITS:
                x = _from_bfloat16(_to_bfloat16(x))
            else:
                x = x.to(value.dtype).to(tl.float32)
        if FORMAT == _PLAIN:
            stored = x
        elif FORMAT == _BFLOAT16:
            stored = _to_bfloat16(x)
        elif FORMAT == _E4M3FN:
            stored = _to_fp8(x, 3, 7, 0x7E, 0x7F, True)
        elif FORMAT == _E5M2:
            stored = _to_fp8(x, 2, 15, 0x7B, 0x7F, True)
        else:
            stored = _to_fp8(x, 3, 8, 0x7F, 0x80, False)
    return stored


@helper
def _named(i, m, loc, limits, steps, first, LIMITED: tl.constexpr):
    """The slots of lanes; below `first` where nothing is to be written."""
    slot = tl.load(loc + i, mask=m, other=0).to(tl.int64)
    if LIMITED:
        row = i // steps
        limit = tl.load(limits + row, mask=m, other=0).to(tl.int64)
        slot = tl.where(i - row * steps < limit, slot, first - 1)
    return tl.where(m, slot, first - 1)


@helper
def _offset(slot, group_step, step, per_group):
    """Where the rows of slots begin in a buffer, in its words."""
    group = slot // per_group
    return group * group_step + (slot - group * per_group) * step


@kernel
def store_rows(
    a, a_step: int, a_width: int, a_out, a_group: int, a_row: int, a_per: int, a_scale,
    b, b_step: int, b_width: int, b_out, b_group: int, b_row: int, b_per: int, b_scale,
    loc, limits, steps: int, count: int, first: int, end: int, record, seq: int,
    FORMAT: tl.constexpr, BITS: tl.constexpr, A_SCALED: tl.constexpr, B_SCALED: tl.constexpr,
    LIMITED: tl.constexpr, CHECKED: tl.constexpr, LANES: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A program for some tiles of lanes and one of columns; a second part may have no width.

    Each program looks at all slots, so that more programs than a device runs at once cost more.
    """
    clear = tl.load(record) == 0
    if CHECKED:
        keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK).to(tl.int64)
            slot = _named(i, i < count, loc, limits, steps, first, LIMITED)
            keys = tl.minimum(keys, fault(slot >= end, OUT_OF_RANGE, i))
        key = tl.min(keys, 0)
        if clear & (key != NO_FAULT):
            if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
                i = key & (KIND - 1)
                named = _named(i, i >= 0, loc, limits, steps, first, LIMITED)
                write_record(record, seq, key, named, 0, 0, _RESERVED, 0)
        clear = clear & (key == NO_FAULT)
    at = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)
    # nobody, where something is wrong; with a scalar in it a mask would be none to an interpreter
    lanes = tl.where(clear, count, 0)
    for start in range(tl.program_id(0) * LANES, lanes, tl.num_programs(0) * LANES):
        i = start + tl.arange(0, LANES).to(tl.int64)
        slot = _named(i, i < count, loc, limits, steps, first, LIMITED)
        live = (slot >= first) & (slot < end)
        to = tl.where(live, slot, 0)
        m = live[:, None] & (at < a_width)[None, :]
        value = _values(a, i[:, None] * a_step + at[None, :], m, a_scale, FORMAT, BITS, A_SCALED)
        tl.store(a_out + _offset(to, a_group, a_row, a_per)[:, None] + at[None, :], value, mask=m)
        m = live[:, None] & (at < b_width)[None, :]
        value = _values(b, i[:, None] * b_step + at[None, :], m, b_scale, FORMAT, BITS, B_SCALED)
        tl.store(b_out + _offset(to, b_group, b_row, b_per)[:, None] + at[None, :], value, mask=m)


@helper
def _moved(i, m, source, target):
    """Where lanes read and where they write."""
    read = tl.load(source + i, mask=m, other=0).to(tl.int64)
    write = tl.load(target + i, mask=m, other=0).to(tl.int64)
    return read, write


@helper
def _claimable(write, first, end):
    """Whether targets are no padding, and of the pool."""
    return (write >= first) & (write < end)


@kernel
def check_moves(
    source, target, count: int, first: int, end: int, claim, record, seq: int, BLOCK: tl.constexpr
):
    """One program: `OutOfRange`, `Reserved`, `Duplicate`, the smallest of them in the record."""
    if tl.load(record) == 0:
        keys = tl.full((BLOCK,), NO_FAULT, tl.int64)
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK).to(tl.int64)
            m = i < count
            read, write = _moved(i, m, source, target)
            keys = tl.minimum(keys, fault(m & ((read >= end) | (write >= end)), OUT_OF_RANGE, i))
            keys = tl.minimum(keys, fault(m & (write >= first) & (read < first), RESERVED, i))
            writes = m & _claimable(write, first, end)
            clash = writes & claim_pages(claim + tl.where(writes, write, 0), i, writes)
            keys = tl.minimum(keys, tl.where(clash, CLASH, NO_FAULT))
        key = tl.min(keys, 0)
        if key == CLASH:
            for start in range(0, count, BLOCK):
                i = start + tl.arange(0, BLOCK).to(tl.int64)
                m = i < count
                read, write = _moved(i, m, source, target)
                writes = m & _claimable(write, first, end)
                place = claim + tl.where(writes, write, 0)
                other = tl.load(place, mask=writes, other=NO_CLAIM, cache_modifier=".cg")
                keys = tl.minimum(keys, fault(writes & (other < i), DUPLICATE, i))
            key = tl.min(keys, 0)
        if key != NO_FAULT:
            i = key & (KIND - 1)
            read, write = _moved(i, i >= 0, source, target)
            kind = key >> 32
            named = tl.where((kind == DUPLICATE) | (write >= end), write, read)
            earlier = i * 0
            if kind == DUPLICATE:
                earlier = tl.load(claim + write, cache_modifier=".cg").to(tl.int64)
            write_record(record, seq, key, named, 0, 0, _RESERVED, earlier)
        tl.debug_barrier()
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK).to(tl.int64)
            read, write = _moved(i, i < count, source, target)
            writes = (i < count) & _claimable(write, first, end)
            tl.store(claim + tl.where(writes, write, 0), NO_CLAIM, mask=writes)


@helper
def _places(line, slot, columns, words):
    """Where columns of slots' rows lie in the buffer that a line describes."""
    offset = _offset(slot, tl.load(line + 2), tl.load(line + 1), tl.load(line + 3))
    return tl.load(line).to(words.dtype) + offset[:, None] + columns[None, :]


@kernel
def move_slots(
    lines, words, scratch, source, target, count: int, first: int, end: int, tiles: int, record,
    LANES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """A program for each tile of each buffer's rows: all that it moves is read before it writes.

    `lines` int64 [buffers, 5]: address, distance of slots, of groups, slots of a group, words of
    a row, in words of the type that `words` has. `scratch` has a place for each that is moved.
    """
    # nobody, where something is wrong
    moved = tl.where(tl.load(record) == 0, count, 0)
    program = tl.program_id(0).to(tl.int64)
    buffer = program // tiles
    line = lines + buffer * 5
    columns = (program - buffer * tiles) * WORDS + tl.arange(0, WORDS).to(tl.int64)
    wide = (columns < tl.load(line + 4))[None, :]
    kept = scratch + program * count * WORDS
    for start in range(0, count, LANES):
        i = start + tl.arange(0, LANES).to(tl.int64)
        read, write = _moved(i, i < count, source, target)
        live = (i < moved) & _claimable(write, first, end) & _claimable(read, first, end)
        m = live[:, None] & wide
        value = tl.load(_places(line, tl.where(live, read, 0), columns, words), mask=m, other=0)
        tl.store(kept + i[:, None] * WORDS + tl.arange(0, WORDS)[None, :], value, mask=m)
    tl.debug_barrier()
    for start in range(0, count, LANES):
        i = start + tl.arange(0, LANES).to(tl.int64)
        read, write = _moved(i, i < count, source, target)
        live = (i < moved) & _claimable(write, first, end) & _claimable(read, first, end)
        m = live[:, None] & wide
        value = tl.load(kept + i[:, None] * WORDS + tl.arange(0, WORDS)[None, :], mask=m, other=0)
        tl.store(_places(line, tl.where(live, write, 0), columns, words), value, mask=m)


def store(
    parts: Sequence[Part], loc: Tensor, limits: Tensor | None, *, first: int, end: int,
    record: Tensor, seq: int, validate: bool,
) -> None:  # fmt: skip
    """Write the values of one part or two, of one type, to slots `loc`; one launch."""
    count = loc.shape[0]
    if not count:
        return
    raw = parts[0].values.dtype == parts[0].dtype
    ready = [_ready(part, raw) for part in parts]
    if len(ready) == 1:
        values, rows, scale = ready[0]
        ready.append((values[:, :0], rows, scale))
    (a, a_out, a_scale), (b, b_out, b_scale) = ready
    width = max(a.shape[1], b.shape[1])
    columns = max(1, triton.cdiv(width, COLUMNS))
    rows = min(triton.cdiv(count, ROWS), max(1, PROGRAMS // columns))
    store_rows[(rows, columns)](
        a, a.stride(0), a.shape[1], a_out, a_out.stride(0), a_out.stride(1), a_out.shape[1],
        record if a_scale is None else a_scale,
        b, b.stride(0), b.shape[1], b_out, b_out.stride(0), b_out.stride(1), b_out.shape[1],
        record if b_scale is None else b_scale,
        loc, loc if limits is None else limits,
        1 if limits is None else count // limits.shape[0], count, first, end, record, seq,
        FORMAT=RAW if raw else FORMATS[parts[0].dtype],
        BITS=parts[0].values.dtype is torch.bfloat16,
        A_SCALED=a_scale is not None, B_SCALED=b_scale is not None, LIMITED=limits is not None,
        CHECKED=validate, LANES=ROWS, COLUMNS=COLUMNS, BLOCK=BLOCK, **OPTIONS,
    )  # fmt: skip


def _ready(part: Part, raw: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Values [n, w], the rows [groups, slots, …] that they go to, the scale as float32 [1]."""
    values = part.values.flatten(1)
    rows = part.buffer.part(part.offset, values.shape[1] * part.dtype.itemsize).rows
    if raw:
        return words_like(values, rows), rows, None
    values = values.contiguous()
    if values.dtype is torch.bfloat16:
        values = values.view(torch.int16)
    scale = None if part.scale is None else one(part.scale, values.device)
    return values, rows.view(_STORED.get(part.dtype, torch.uint8)), scale


def move(
    buffers: Sequence[KVBuffer], source: Tensor, target: Tensor, *, first: int, end: int,
    claim: Tensor, record: Tensor, seq: int, validate: bool,
) -> None:  # fmt: skip
    """In all buffers row `source[i]` under slot `target[i]`; a launch, and one for the checks."""
    count = source.shape[0]
    if not count or not buffers:
        return
    if validate:
        check_moves[(1,)](
            source, target, count, first, end, claim, record, seq, BLOCK=BLOCK, **OPTIONS
        )
    table, words, tiles = _table(buffers, source.device)
    scratch = torch.empty(
        (len(buffers) * tiles, count, _WORDS), dtype=words.dtype, device=source.device
    )
    move_slots[(len(buffers) * tiles,)](
        table, words, scratch, source, target, count, first, end, tiles, record,
        LANES=_LANES, WORDS=_WORDS, **OPTIONS,
    )  # fmt: skip


def _table(buffers: Sequence[KVBuffer], device: torch.device) -> tuple[Tensor, Tensor, int]:
    """The table of `move_slots`, a tensor of its words, and the tiles of the longest row."""
    words = min((each.rows for each in buffers), key=lambda rows: rows.element_size())
    lines = []
    for rows in (each.rows.view(words.dtype) for each in buffers):
        group_step, step, _ = rows.stride()
        lines.append([rows.data_ptr(), step, group_step, rows.shape[1], rows.shape[2]])
    table = torch.tensor(lines)
    if device.type == "cuda":
        table = table.pin_memory()
    longest = max(line[4] for line in lines)
    return table.to(device, non_blocking=True), words, triton.cdiv(longest, _WORDS)
