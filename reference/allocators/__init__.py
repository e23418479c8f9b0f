"""The token allocators of `spec/core.md` §3 and §4."""

from reference.allocators.base import BaseTokenToKVPoolAllocator
from reference.allocators.paged import PagedTokenToKVPoolAllocator
from reference.allocators.token import TokenToKVPoolAllocator

__all__ = [
    "BaseTokenToKVPoolAllocator",
    "PagedTokenToKVPoolAllocator",
    "TokenToKVPoolAllocator",
]
