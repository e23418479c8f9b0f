"""The numbers that KV is stored as: codes, what they mean, and the nearest code of a number.

A code is an int of the type's bits. NaN is one code for each type, whatever its sign and payload,
because no two machines agree on them. Spec: `spec/core.md` §8.
"""

import math
from functools import cache
from typing import NamedTuple


class Float(NamedTuple):
    """A binary type: bits of exponent and of fraction, and what its largest codes mean."""

    exponent: int
    fraction: int
    bias: int
    #: whether it has infinities
    infinite: bool
    #: the largest finite code without a sign
    most: int
    #: the code that stands for every NaN
    nan: int
    #: whether numbers beyond the largest become the largest
    clamped: bool

    @property
    def bits(self) -> int:
        """Bits of a code, sign included."""
        return 1 + self.exponent + self.fraction


TYPES = {
    "float32": Float(8, 23, 127, True, 0x7F7FFFFF, 0x7FC00000, False),
    "bfloat16": Float(8, 7, 127, True, 0x7F7F, 0x7FC0, False),
    "float16": Float(5, 10, 15, True, 0x7BFF, 0x7E00, False),
    "float8_e4m3fn": Float(4, 3, 7, False, 0x7E, 0x7F, True),
    "float8_e5m2": Float(5, 2, 15, True, 0x7B, 0x7F, True),
    "float8_e4m3fnuz": Float(4, 3, 8, False, 0x7F, 0x80, True),
}


def size_bytes(dtype: str) -> int:
    """Bytes of a number; a byte is a byte."""
    return 1 if dtype == "uint8" else TYPES[dtype].bits // 8


def decode(code: int, dtype: str) -> float:
    """What a code means."""
    kind = TYPES[dtype]
    sign, size = code >> (kind.bits - 1), code & ((1 << (kind.bits - 1)) - 1)
    if dtype == "float8_e4m3fnuz" and code == kind.nan:
        return math.nan
    if size > kind.most:
        if kind.infinite and size == kind.most + 1:
            return -math.inf if sign else math.inf
        return math.nan
    exponent, fraction = size >> kind.fraction, size & ((1 << kind.fraction) - 1)
    if exponent:
        value = math.ldexp((1 << kind.fraction) + fraction, exponent - kind.bias - kind.fraction)
    else:
        value = math.ldexp(fraction, 1 - kind.bias - kind.fraction)
    return -value if sign else value


@cache
def plain(code: int, dtype: str) -> int:
    """The code that stands for it: every NaN is one."""
    return TYPES[dtype].nan if math.isnan(decode(code, dtype)) else code


def encode(value: float, dtype: str) -> int:
    """The nearest code, of two equally near the even one; fp8 types never go beyond the largest."""
    kind = TYPES[dtype]
    if math.isnan(value):
        return kind.nan
    sign = (1 if math.copysign(1.0, value) < 0 else 0) << (kind.bits - 1)
    size = _nearest(abs(value), kind)
    if size > kind.most and kind.clamped:
        size = kind.most
    if size == 0 and not kind.infinite and dtype == "float8_e4m3fnuz":
        return 0  # there is one zero: the other one's code is NaN
    return sign | size


def _nearest(size: float, kind: Float) -> int:
    """The code of a number from 0 on, which may be one beyond the largest: infinity."""
    if math.isinf(size):
        return kind.most + 1
    least = 1 - kind.bias
    exponent = max(math.frexp(size)[1] - 1, least) if size else least
    # in steps of the fraction's last bit; Python's round takes the even one of two
    steps = round(math.ldexp(size, kind.fraction - exponent))
    code = steps + ((exponent - least) << kind.fraction)
    return min(code, kind.most + 1)


def divided(code: int, dtype: str, scale: float) -> int:
    """The code of a number divided by a float32 scale: as float32, then as the type (§8)."""
    value = decode(code, dtype)
    by = decode(encode(scale, "float32"), "float32")
    if by == 0:
        wrong = math.isnan(value) or value == 0
        quotient = math.nan if wrong else math.copysign(math.inf, value) * math.copysign(1.0, by)
    elif math.isinf(value) and math.isinf(by):
        quotient = math.nan
    else:
        quotient = value / by
    as_float32 = decode(encode(quotient, "float32"), "float32")
    kind = TYPES[dtype]
    if kind.clamped:
        raise AssertionError("fp8 values aren't scaled")
    return encode(as_float32, dtype)


@cache
def converted(code: int, source: str, dtype: str, scale: float | None) -> int:
    """The code that a value of type `source` is stored as; its own where the types agree."""
    if source == dtype:
        return code
    if scale is not None:
        code = divided(code, source, scale)
    return encode(decode(code, source), dtype)
