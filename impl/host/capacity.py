"""How many slots a host pool has. Spec: `spec/interleave_hisparse_host_prefix.md` §4.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from impl import checks
from impl.errors import BadLengths, NegativeSize, NotPageMultiple, OutOfRange, WrongDtype

GB = 10**9
# What a host keeps for everything else: 10 GiB.
KEPT_BYTES = 10 * 2**30


def host_capacity(
    device_tokens: int,
    page_size: int,
    size_per_token: int,
    *,
    ratio: float = 2.0,
    size_gb: float = 0,
    tokens: int | None = None,
    available_bytes: int | None = None,
) -> int:
    """The size of a host pool in slots, whole pages of `page_size`.

    `tokens`, where given, is the size. Otherwise as many as fit in `size_gb` (units of 1e9 bytes)
    or, where that is 0, `ratio` times `device_tokens`, which is the device pool's
    `host_capacity_tokens` or, where it has none, its size; and one page more, also when that
    number is whole pages. Raises `NegativeSize`, `WrongDtype`, `NotPageMultiple` for `tokens`,
    `OutOfRange` for more than `available_bytes`. O(1). Spec: §4.3.
    """
    device = checks.host_size(device_tokens, "device_tokens")
    page = checks.host_size(page_size, "page_size", 1)
    each = checks.host_size(size_per_token, "size_per_token", 1)
    if tokens is not None:
        size = checks.host_size(tokens, "tokens", 1)
        if size % page:
            raise NotPageMultiple(f"tokens {size} aren't whole pages of {page}. Round them.")
    else:
        wanted = _number(size_gb, "size_gb")
        raw = int(wanted * GB // each) if wanted else int(device * _number(ratio, "ratio"))
        size = (raw // page + 1) * page
    if available_bytes is not None and size * each > available_bytes:
        raise OutOfRange(
            f"a host pool of {size} tokens takes {size * each} bytes, {available_bytes} are "
            "available. Lower its size or its ratio."
        )
    return size


def host_shares(size_gb: float, pool_bytes: Sequence[int]) -> list[float]:
    """One budget of `size_gb` over pools, by the bytes of what each mirrors.

    Raises `NegativeSize`, `WrongDtype`, `BadLengths` where all are empty. O(pools). Spec: §4.3.
    """
    whole = _number(size_gb, "size_gb")
    weights = [checks.host_size(each, "the bytes of a pool") for each in pool_bytes]
    if not sum(weights):
        raise BadLengths("no pool has any bytes: there is nothing to share by.")
    return [whole * weight / sum(weights) for weight in weights]


def host_budget(free_bytes: int, ranks_per_host: int) -> int:
    """Bytes that one rank may take of the host's free memory; 0 if too little is free.

    `free_bytes`: what the host, or its control group, has left. Raises `NegativeSize`,
    `WrongDtype`. O(1). Spec: §4.3.
    """
    free = checks.host_size(free_bytes, "free_bytes")
    ranks = checks.host_size(ranks_per_host, "ranks_per_host", 1)
    return max(0, free - KEPT_BYTES) // ranks


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongDtype(f"{name} must be a number, got {type(value).__name__}.")
    if not 0 <= value < float("inf"):
        raise NegativeSize(f"{name} must be finite and at least 0, got {value}.")
    return value
