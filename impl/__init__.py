"""The memory layer of an LLM serving engine: request rows and KV slot allocators in torch."""

from impl.allocators.base import BaseTokenToKVPoolAllocator
from impl.allocators.paged import PagedTokenToKVPoolAllocator
from impl.allocators.swa import SWATokenToKVPoolAllocator
from impl.allocators.token import TokenToKVPoolAllocator
from impl.errors import PoolError
from impl.rows import Handle, ReqToTokenPool
from impl.sizing import window_frontier
from impl.storage.swa import BaseSWAKVPool, StoragelessSWAKVPool

__all__ = [
    "BaseSWAKVPool",
    "BaseTokenToKVPoolAllocator",
    "Handle",
    "PagedTokenToKVPoolAllocator",
    "PoolError",
    "ReqToTokenPool",
    "SWATokenToKVPoolAllocator",
    "StoragelessSWAKVPool",
    "TokenToKVPoolAllocator",
    "window_frontier",
]
