"""How many slots a host pool has (`interleave_hisparse_host_prefix.md` §4.3)."""

from collections.abc import Sequence
from fractions import Fraction

from reference.refusal import Refused


def host_capacity(
    device_tokens: int,
    page_size: int,
    size_per_token: int,
    ratio: Fraction,
    size_gb: Fraction,
    tokens: int | None,
    available_bytes: int | None,
) -> int:
    """What is asked for in whole pages, and one page more."""
    if tokens is not None:
        if tokens < 1:
            raise Refused("NegativeSize")
        if tokens % page_size:
            raise Refused("NotPageMultiple")
        size = tokens
    else:
        if size_gb > 0:
            raw = int(size_gb * 1_000_000_000 / size_per_token)
        else:
            raw = int(device_tokens * ratio)
        # the fewest whole pages that hold more than that
        size = -(-(raw + 1) // page_size) * page_size
    if available_bytes is not None and size * size_per_token > available_bytes:
        raise Refused("OutOfRange")
    return size


def host_shares(size_gb: Fraction, pool_bytes: Sequence[int]) -> list[Fraction]:
    """Each pool's part of one budget, by the bytes that it mirrors."""
    if sum(pool_bytes) == 0:
        raise Refused("BadLengths")
    return [size_gb * Fraction(each, sum(pool_bytes)) for each in pool_bytes]


def host_budget(free_bytes: int, ranks_per_host: int) -> int:
    """What is free beyond 10 GiB, for one of the ranks."""
    spare = free_bytes - 10 * 1024**3
    return spare // ranks_per_host if spare > 0 else 0
