"""The memory layer of an LLM serving engine: request rows and KV slot allocators in torch."""

from impl.allocators.base import BaseTokenToKVPoolAllocator
from impl.allocators.paged import PagedTokenToKVPoolAllocator
from impl.allocators.token import TokenToKVPoolAllocator
from impl.errors import PoolError
from impl.hybrid_rows import HybridReqToTokenPool
from impl.rows import Handle, ReqToTokenPool
from impl.states.slots import MambaSlotAllocator

__all__ = [
    "BaseTokenToKVPoolAllocator",
    "Handle",
    "HybridReqToTokenPool",
    "MambaSlotAllocator",
    "PagedTokenToKVPoolAllocator",
    "PoolError",
    "ReqToTokenPool",
    "TokenToKVPoolAllocator",
]
