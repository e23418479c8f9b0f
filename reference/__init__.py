"""What each part of the memory layer must do: plain Python, written from `spec/`, checked by eye.

No tensors and no speed, the standard library only, and nothing of the other houses.
"""

from reference.allocators import (
    BaseTokenToKVPoolAllocator,
    PagedTokenToKVPoolAllocator,
    SWATokenToKVPoolAllocator,
    TokenToKVPoolAllocator,
)
from reference.ledger import Ledger
from reference.refusal import KINDS, Refused
from reference.rows import Handle, ReqToTokenPool
from reference.sizing import window_frontier

__all__ = [
    "KINDS",
    "BaseTokenToKVPoolAllocator",
    "Handle",
    "Ledger",
    "PagedTokenToKVPoolAllocator",
    "Refused",
    "ReqToTokenPool",
    "SWATokenToKVPoolAllocator",
    "TokenToKVPoolAllocator",
    "window_frontier",
]
