"""What an engine also asks of its allocator, passed on to the pool of the bytes. Spec: §4a."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from impl import checks
from impl.errors import Unsupported


class KVCacheForwarding(ABC):
    """`_kvcache` is the pool, or None: then there is nobody to pass a copy on to."""

    _kvcache: Any
    device: torch.device

    @abstractmethod
    def _enter(self) -> None:
        """Before every public call: what an earlier one deferred is raised."""

    def get_kvcache(self) -> Any:
        """The pool given as `kvcache`. Spec: §4a."""
        return self._kvcache

    def get_cpu_copy(
        self, indices: torch.Tensor, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> Any:
        """The `kvcache`'s copy of `indices` on the host; `Unsupported` without one. Spec: §4a."""
        return self._require_kvcache("get_cpu_copy").get_cpu_copy(
            indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def load_cpu_copy(
        self,
        kv_cache_cpu: Any,
        indices: torch.Tensor,
        mamba_indices: Any = None,
        req_pool_index: Any = None,
    ) -> Any:
        """Has the `kvcache` write a host copy back; `Unsupported` without one. Spec: §4a."""
        return self._require_kvcache("load_cpu_copy").load_cpu_copy(
            kv_cache_cpu, indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def _require_kvcache(self, call: str) -> Any:
        self._enter()
        if self._kvcache is None:
            raise Unsupported(f"{call}: there is no pool to copy. Construct with kvcache=.")
        return self._kvcache

    def translate_kv_indices_for_transfer(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """A copy of `kv_indices`: on static pools every id is physical. Spec: §4a."""
        self._enter()
        checks.require_ids(kv_indices, "kv_indices", self.device)
        return kv_indices.clone()

    def set_hicache_transfer_done_event(  # noqa: B027 (a pool with a host tier overrides it)
        self, transfer_key: Any, event: Any
    ) -> None:
        """Nothing on static pools: they don't wait for host-tier transfers. Spec: §4a."""
