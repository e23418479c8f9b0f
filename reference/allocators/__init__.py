"""The token allocators of `spec/core.md` §3 and §4, and pairs of them."""

from reference.allocators.base import BaseTokenToKVPoolAllocator
from reference.allocators.paged import PagedTokenToKVPoolAllocator
from reference.allocators.swa import SWATokenToKVPoolAllocator
from reference.allocators.token import TokenToKVPoolAllocator

__all__ = [
    "BaseTokenToKVPoolAllocator",
    "PagedTokenToKVPoolAllocator",
    "SWATokenToKVPoolAllocator",
    "TokenToKVPoolAllocator",
]
