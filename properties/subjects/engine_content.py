"""What the KV of a token is in the small engine: numbers that say whose it is, and their codes.

All numbers are exact in every type that a pool may store. Pages that nobody has hold poison: no
such number, in most types none at all.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from properties.subjects.engine_parts import NOISE, Token
from reference.storage.floats import encode, size_bytes

Row = list[int]
#: names of a pool's buffers, in each layer
PARTS = {"mha": ("k", "v"), "mla": ("latent",)}
#: what is different for tokens, layers and parts that are different, mostly
_PRIMES = (7919, 104_729, 1_299_709, 15_485_863)
_DIGITS = 16


@cache
def numbers(token: Token, layer: int, part: int, width: int) -> tuple[float, ...]:
    """`width` numbers in 1..14, two bits of fraction; of padded lanes none."""
    if token == NOISE:
        return (float("nan"),) * width
    terms = zip((*token, layer, part), _PRIMES, strict=True)
    mixed = sum((each + 1) * prime for each, prime in terms)
    mixed = (mixed ^ mixed >> 7) * 2_654_435_761 >> 5
    digits = [mixed // _DIGITS**at % _DIGITS for at in range(width)]
    return tuple((4 + digit % 4) / 4 * 2 ** (digit // 4) for digit in digits)


@cache
def codes(token: Token, layer: int, part: int, width: int, dtype: str) -> Row:
    """The same as codes of a type; nobody changes the list."""
    return [encode(number, dtype) for number in numbers(token, layer, part, width)]


def poison(config: Any) -> Row:
    """What pages hold that nobody has: all bits but the sign."""
    return [(1 << (8 * size_bytes(config.dtype) - 1)) - 1] * config.row_width


def source_of(dtype: str) -> str:
    """The type that values come in: fp8 is made by the pool."""
    return "bfloat16" if dtype.startswith("float8") else dtype
