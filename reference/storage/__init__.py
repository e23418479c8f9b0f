"""Pools of KV: what lies under each slot, as codes (`spec/pools_states_sizing.md` §7 to §13)."""

from reference.storage.base import KVWriteLoc
from reference.storage.hybrid import HybridLinearKVPool, SWAKVPool
from reference.storage.mha import MHATokenToKOnlyPool, MHATokenToKVPool
from reference.storage.mla import DSATokenToKVPool, MLATokenToKVPool

__all__ = [
    "DSATokenToKVPool",
    "HybridLinearKVPool",
    "KVWriteLoc",
    "MHATokenToKOnlyPool",
    "MHATokenToKVPool",
    "MLATokenToKVPool",
    "SWAKVPool",
]
