"""Calls that an allocator passes on to the pool which holds the bytes (`spec/core.md` §4a)."""

from typing import Any

from reference.allocators.segments import Ids
from reference.refusal import Refused


class KVCacheForwarding:
    """`kvcache` is the pool, or None: then there is nobody to pass a copy on to."""

    def __init__(self, kvcache: Any) -> None:
        self._kvcache = kvcache

    def get_kvcache(self) -> Any:
        """The pool given to the constructor."""
        return self._kvcache

    def get_cpu_copy(
        self, indices: Ids, mamba_indices: Ids | None = None, req_pool_index: int | None = None
    ) -> Any:
        """Forwarded to the pool (§4a)."""
        return self._pool().get_cpu_copy(
            indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def load_cpu_copy(
        self,
        kv_cache_cpu: Any,
        indices: Ids,
        mamba_indices: Ids | None = None,
        req_pool_index: int | None = None,
    ) -> Any:
        """Forwarded to the pool (§4a)."""
        return self._pool().load_cpu_copy(
            kv_cache_cpu, indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def _pool(self) -> Any:
        if self._kvcache is None:
            raise Refused("Unsupported")
        return self._kvcache

    def translate_kv_indices_for_transfer(self, kv_indices: Ids) -> list[int]:
        """The identity on a static pool, as a fresh list (results own their storage)."""
        return list(kv_indices)

    def set_hicache_transfer_done_event(self, transfer_key: object, event: object) -> None:
        """Nothing waits here (§4a)."""
