"""What each part of the memory layer must do: plain Python, written from `spec/`, checked by eye.

No tensors and no speed, the standard library only, and nothing of the other houses.
"""

from reference.allocators import (
    BaseTokenToKVPoolAllocator,
    PagedTokenToKVPoolAllocator,
    SWATokenToKVPoolAllocator,
    TokenToKVPoolAllocator,
)
from reference.host.slots import HostSlots
from reference.hybrid_rows import HybridReqToTokenPool
from reference.ledger import Ledger
from reference.refusal import KINDS, Refused
from reference.rows import Handle, ReqToTokenPool
from reference.sizing import window_frontier
from reference.states import MambaPool, NGramPool, ShortConvPool
from reference.states.slots import MambaSlotAllocator

__all__ = [
    "KINDS",
    "BaseTokenToKVPoolAllocator",
    "Handle",
    "HostSlots",
    "HybridReqToTokenPool",
    "Ledger",
    "MambaPool",
    "MambaSlotAllocator",
    "NGramPool",
    "PagedTokenToKVPoolAllocator",
    "Refused",
    "ReqToTokenPool",
    "SWATokenToKVPoolAllocator",
    "ShortConvPool",
    "TokenToKVPoolAllocator",
    "window_frontier",
]
