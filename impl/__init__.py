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
from impl.storage.dsa import DSATokenToKVPool
from impl.storage.hybrid_linear import HybridLinearKVPool
from impl.storage.mha import MHATokenToKOnlyPool, MHATokenToKVPool
from impl.storage.mla import MLATokenToKVPool
from impl.storage.swa import BaseSWAKVPool, StoragelessSWAKVPool
from impl.storage.swa_kv import SWAKVPool
from impl.storage.write_loc import KVWriteLoc

__all__ = [
    "Backup",
    "BaseSWAKVPool",
    "BaseTokenToKVPoolAllocator",
    "DSATokenToKVPool",
    "Handle",
    "HostKVPool",
    "HostPoolDecl",
    "HostSlots",
    "HostStatePool",
    "HybridLinearKVPool",
    "HybridReqToTokenPool",
    "KVWriteLoc",
    "LayerGate",
    "Load",
    "MHATokenToKOnlyPool",
    "MHATokenToKVPool",
    "MLATokenToKVPool",
    "MambaPool",
    "MambaSlotAllocator",
    "NGramPool",
    "PagedTokenToKVPoolAllocator",
    "PoolError",
    "ReqToTokenPool",
    "SWAKVPool",
    "SWATokenToKVPoolAllocator",
    "ShortConvPool",
    "StoragelessSWAKVPool",
    "TokenToKVPoolAllocator",
    "host_budget",
    "host_capacity",
    "host_shares",
    "window_frontier",
]
