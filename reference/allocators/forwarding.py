"""Calls that an allocator passes on to the pool which holds the bytes (`spec/core.md` §4a)."""

from abc import abstractmethod
from typing import Any

from reference.allocators.segments import Ids
from reference.refusal import Fault, Refused, refuse_smallest


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
        """Forwarded to the pool (§4a), of slots that are out."""
        return self._pool_for(list(indices), once=False).get_cpu_copy(
            indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def load_cpu_copy(
        self,
        kv_cache_cpu: Any,
        indices: Ids,
        mamba_indices: Ids | None = None,
        req_pool_index: int | None = None,
    ) -> Any:
        """Forwarded to the pool (§4a), for slots that are out, each named once."""
        return self._pool_for(list(indices), once=True).load_cpu_copy(
            kv_cache_cpu, indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def _pool_for(self, slots: list[int], once: bool) -> Any:
        if self._kvcache is None:
            raise Refused("Unsupported")
        faults = self._dead(slots)
        named: set[int] = set()
        for index, slot in enumerate(slots if once else []):
            if slot in named:
                faults.append(("Duplicate", index))
            named.add(slot)
        refuse_smallest(faults)
        return self._kvcache

    @abstractmethod
    def _dead(self, slots: list[int]) -> list[Fault]:
        """Slots whose page nobody owns."""

    def translate_kv_indices_for_transfer(self, kv_indices: Ids) -> list[int]:
        """The identity on a static pool, as a fresh list (results own their storage)."""
        return list(kv_indices)

    def set_hicache_transfer_done_event(self, transfer_key: object, event: object) -> None:
        """Nothing waits here (§4a)."""
