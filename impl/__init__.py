"""The memory layer of an LLM serving engine: request rows, KV slots, state pools; in torch."""

from impl.allocators.base import BaseTokenToKVPoolAllocator
from impl.allocators.paged import PagedTokenToKVPoolAllocator
from impl.allocators.swa import SWATokenToKVPoolAllocator
from impl.allocators.token import TokenToKVPoolAllocator
from impl.errors import PoolError
from impl.host.capacity import host_budget, host_capacity, host_shares
from impl.host.decls import HostPoolDecl
from impl.host.gate import LayerGate
from impl.host.pool import HostKVPool, HostStatePool
from impl.host.slots import HostSlots
from impl.host.transfers import Backup, Load
from impl.hybrid_rows import HybridReqToTokenPool
from impl.rows import Handle, ReqToTokenPool
from impl.sizing import window_frontier
from impl.states.mamba import MambaPool
from impl.states.ngram import NGramPool
from impl.states.short_conv import ShortConvPool
from impl.states.slots import MambaSlotAllocator
from impl.storage.swa import BaseSWAKVPool, StoragelessSWAKVPool

__all__ = [
    "Backup",
    "BaseSWAKVPool",
    "BaseTokenToKVPoolAllocator",
    "Handle",
    "HostKVPool",
    "HostPoolDecl",
    "HostSlots",
    "HostStatePool",
    "HybridReqToTokenPool",
    "LayerGate",
    "Load",
    "MambaPool",
    "MambaSlotAllocator",
    "NGramPool",
    "PagedTokenToKVPoolAllocator",
    "PoolError",
    "ReqToTokenPool",
    "SWATokenToKVPoolAllocator",
    "ShortConvPool",
    "StoragelessSWAKVPool",
    "TokenToKVPoolAllocator",
    "host_budget",
    "host_capacity",
    "host_shares",
    "window_frontier",
]
