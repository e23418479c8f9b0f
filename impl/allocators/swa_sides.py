"""The sides of a sliding-window pair: how they are made, made smaller, and what can't be one.

Spec: `spec/swa_unified.md` §2.2, §2.10.
"""

from __future__ import annotations

from typing import Any

from impl import checks
from impl.allocators.paged import PagedTokenToKVPoolAllocator
from impl.allocators.token import TokenToKVPoolAllocator
from impl.errors import OutOfRange, PoolError, Unsupported
from impl.storage.swa import BaseSWAKVPool

Side = TokenToKVPoolAllocator | PagedTokenToKVPoolAllocator


def new_side(size: int, page_size: int, options: dict[str, Any]) -> Side:
    """A side of either family; where a page is a slot, that of single slots."""
    if page_size == 1:
        return TokenToKVPoolAllocator(size, **options)
    return PagedTokenToKVPoolAllocator(size, page_size, **options)


def smaller(value: Any, side: Side, name: str) -> int:
    """A size for a side that may shrink; raises as `SWAPair.resize`."""
    size = checks.pool_size(value, side.page_size, name)
    if size > side.size:
        raise OutOfRange(
            f"resize: {name} is {size}, there are {side.size} slots. A side can only shrink."
        )
    return size


def construction_errors(
    size: Any, size_swa: Any, page_size: Any, kvcache: Any
) -> list[PoolError | None]:
    """What host data says against a pair."""
    errors = checks.collected(
        lambda: checks.host_size(page_size, "page_size", least=1),
        lambda: checks.pool_size(size, page_size),
        lambda: checks.pool_size(size_swa, page_size, "size_swa"),
    )
    if kvcache is not None and not isinstance(kvcache, BaseSWAKVPool):
        errors.append(
            Unsupported(f"kvcache must be a BaseSWAKVPool, got {type(kvcache).__name__}.")
        )
    return errors
