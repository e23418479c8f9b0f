"""What all kernels share: how they are compiled, codes, and small device functions.

A load says what masked lanes get only where something depends on it.

Kernels run compiled and in Triton's interpreter (TRITON_INTERPRET=1). In the latter small
integer arguments are 32-bit whatever their annotation says, so products and sums that may pass
2^31 have a factor that is 64-bit by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from impl import errors
from impl.allocators import states
from impl.kernels.device.pages import UNCLAIMED

# Elements of a tile, in tests and on a device: large, since plans are one program each.
BLOCK = 1024
# Four elements a thread: with fewer warps registers spill. Left alone ptxas stops at 128 registers
# or at 64, and spills some, so that more programs fit on a core; there is only the one.
OPTIONS = {"num_warps": 8} if torch.version.hip else {"num_warps": 8, "maxnreg": 255}

NOT_CONSECUTIVE = tl.constexpr(errors.NotConsecutive.rank)
BAD_LENGTHS = tl.constexpr(errors.BadLengths.rank)
BAD_LAST_LOC = tl.constexpr(errors.BadLastLoc.rank)
OUT_OF_RANGE = tl.constexpr(errors.OutOfRange.rank)
RESERVED = tl.constexpr(errors.Reserved.rank)
NOT_OWNED = tl.constexpr(errors.NotOwned.rank)
DOUBLE_FREE = tl.constexpr(errors.DoubleFree.rank)
DUPLICATE = tl.constexpr(errors.Duplicate.rank)
TOO_MANY = tl.constexpr(errors.TooMany.rank)

NEVER = tl.constexpr(states.NEVER)
FREE = tl.constexpr(states.FREE)
STAGED = tl.constexpr(states.STAGED)
PARKED_SLOTS = tl.constexpr(states.PARKED_SLOTS)
OWNED = tl.constexpr(states.OWNED)

NO_CLAIM = tl.constexpr(UNCLAIMED)
# Faults are compared as kind * 2^32 + index; this is none.
NO_FAULT = tl.constexpr(2**63 - 1)
KIND = tl.constexpr(2**32)
# A `Duplicate` whose index isn't known yet: more than any with an index.
CLASH = tl.constexpr((errors.Duplicate.rank + 1) * 2**32 - 1)


def kernel(function: Callable[..., Any]) -> Any:
    """`triton.jit` without any specialisation of run-time arguments.

    Left alone, Triton compiles variants for integers that are 1 or multiples of 16 or need 64
    bits, and for aligned pointers: the first call that meets a new one would wait for a compiler.
    Arguments annotated as `int` are int64 whatever their value.
    """
    parameters = inspect.signature(function).parameters.values()
    names = [each.name for each in parameters if "constexpr" not in str(each.annotation)]
    for each in parameters:
        if each.annotation in (int, "int"):
            function.__annotations__[each.name] = tl.int64
    # Out of the way of triton's declared types, which know one form only.
    jit: Any = triton.jit
    return jit(function, do_not_specialize=names, do_not_specialize_on_alignment=names)


def helper(function: Callable[..., Any]) -> Any:
    """A device function that kernels call.

    The interpreter would patch all of triton.language anew for each call of one, which costs more
    than what it does: there it stays the Python function that it is.
    """
    return function if triton.knobs.runtime.interpret else triton.jit(function)


@helper
def floor_divide(value, by):
    """Quotient and remainder as Python has them; compiled code truncates."""
    quotient = value // by
    rest = value - quotient * by
    below = rest < 0
    return tl.where(below, quotient - 1, quotient), tl.where(below, rest + by, rest)


@helper
def clip(page, num_pages):
    """Ids below 1 name the reserved entry, ids beyond the pool the last."""
    return tl.minimum(tl.maximum(page, 0), num_pages + 1)


@helper
def fault(wrong, kind, index):
    """The key of a fault of this kind at `index` (int64) where `wrong`."""
    return tl.where(wrong, index + kind * KIND, NO_FAULT)


@helper
def claim_pages(claims, index, active):
    """Claim pages for the smallest index each, and say who came to one that was claimed already.

    Whoever clashes may have the smaller index. The answer is only there when the claims are: a
    reduction of it orders them before what follows, on any device.
    """
    before = tl.atomic_min(claims, index.to(tl.int32), mask=active, sem="relaxed")
    return before != NO_CLAIM


@helper
def page_fault(wrong, page, state, num_pages, index):
    """The key of what is wrong with a page that isn't owned, where `wrong`."""
    kind = tl.where(state == NEVER, NOT_OWNED, DOUBLE_FREE)
    kind = tl.where(page == 0, RESERVED, kind)
    kind = tl.where((page < 0) | (page > num_pages), OUT_OF_RANGE, kind)
    return fault(wrong, kind.to(tl.int64), index)


@helper
def search(starts, count, rounds, wanted, active):
    """The last of `count` ascending `starts` that is at most `wanted` (the first always is).

    `rounds` is the number of bits of `count`.
    """
    found = wanted * 0
    step = tl.full((), 1, tl.int64) << rounds
    for _ in range(rounds):
        step = step >> 1
        further = found + step
        inside = active & (further < count)
        start = tl.load(starts + further, mask=inside)
        found = tl.where(inside & (start <= wanted), further, found)
    return found


@helper
def write_record(record, seq, key, named, holder_row, holder_gen, state, extra):
    """Fill the error record with the fault of `key`."""
    tl.store(record + 1, key >> 32)
    tl.store(record + 2, key & (KIND - 1))
    tl.store(record + 3, named)
    tl.store(record + 4, holder_row)
    tl.store(record + 5, holder_gen)
    tl.store(record + 6, state)
    tl.store(record + 7, extra)
    tl.store(record, seq)


@helper
def report_page(
    key, named, extra, page_size, num_pages, states, holder_row, holder_gen, record, seq
):
    """Fill the error record with the fault of `key`, and what is known of the page `named`."""
    page, _ = floor_divide(named, page_size)
    entry = clip(page, num_pages)
    write_record(
        record, seq, key, named, tl.load(holder_row + entry), tl.load(holder_gen + entry),
        tl.load(states + entry), extra,
    )  # fmt: skip
