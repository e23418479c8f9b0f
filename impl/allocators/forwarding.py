"""What an engine also asks of its allocator, passed on to the pool of the bytes. Spec: §4a."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from impl import checks
from impl.allocators import faults
from impl.allocators.book import Book
from impl.errors import Duplicate, NotOwned, OutOfRange, PoolError, Reserved, Unsupported, refuse

#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    OutOfRange: "Copy slots that this pool issued",
    Reserved: "Drop padding before the call: no request's KV is there",
    NotOwned: "Copy before the slots are freed, and load into slots that are allocated first",
    Duplicate: "Name each slot once per load",
}


class KVCacheForwarding(ABC):
    """`_kvcache` is the pool, or None: then there is nobody to pass a copy on to.

    Only the allocator knows whose a slot is, so it looks at the slots of a copy before it asks.
    """

    _kvcache: Any
    device: torch.device

    @property
    @abstractmethod
    def _owners(self) -> Book:
        """The book of the slots that callers see."""

    def _enter(self) -> None:
        """Before every public call: what an earlier one deferred is raised."""
        self._owners.enter()

    def get_kvcache(self) -> Any:
        """The pool given as `kvcache`. Spec: §4a."""
        return self._kvcache

    def get_cpu_copy(
        self, indices: torch.Tensor, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> Any:
        """The `kvcache`'s copy of slots `indices`, int32 or int64 [k], on the host.

        Waits for earlier calls. Raises what they deferred, `OutOfRange`, `Reserved` and `NotOwned`
        for a slot whose page isn't out, `WrongDtype`, `WrongDevice`, `WrongShape`, and as the pool;
        `Unsupported` without one. O(k), and the pool's. Spec: §4a, IH §4.8.
        """
        pool = self._require_kvcache("get_cpu_copy", indices, once=False)
        return pool.get_cpu_copy(
            indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def load_cpu_copy(
        self,
        kv_cache_cpu: Any,
        indices: torch.Tensor,
        mamba_indices: Any = None,
        req_pool_index: Any = None,
    ) -> Any:
        """Has the `kvcache` write a host copy under slots `indices`, int32 or int64 [k].

        Raises as `get_cpu_copy`, and `Duplicate` for a slot named twice, before the pool is asked.
        O(k log k), and the pool's. Spec: §4a, IH §4.8.
        """
        pool = self._require_kvcache("load_cpu_copy", indices, once=True)
        return pool.load_cpu_copy(
            kv_cache_cpu, indices, mamba_indices=mamba_indices, req_pool_index=req_pool_index
        )

    def _require_kvcache(self, call: str, indices: torch.Tensor, *, once: bool) -> Any:
        """The pool, for slots that are out; the call waits anyway, so all before it is settled."""
        self._enter()
        if self._kvcache is None:
            raise Unsupported(f"{call}: there is no pool to copy. Construct with kvcache=.")
        checks.require_ids(indices, "indices", self.device)
        book = self._owners
        book.check()
        if book.validate:
            ids = book.arrays.ids(indices)
            pages = ids // book.page_size
            truths = [book.states.owned(pages), *([book.arrays.once(ids)] if once else [])]
            if not book.arrays.all_hold(truths):
                named = ids.tolist()
                found = faults.of_dead(named, book.states.look(pages).tolist())
                found += faults.twice(named) if once else []
                refuse(call, found, ADVICE)
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
