"""Requests of a hybrid model with rows and state slots, for tables of calls that are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from impl import HybridReqToTokenPool
from properties.subjects.state_records import PLAIN, SLOTS, Record

SIZE = 10
LAZY = {"enable_mamba_extra_buffer_lazy": True}
UNTRACKED = {"enable_mamba_extra_buffer": False}


class Scene:
    """Two requests with rows 2 and 3, one in the queue, one that has nothing; a slot of the cache.

    In pairs their slots are (1; 2, 3), (4; 5, 6) and (8), the cache's is 7, 9 has come back, 10
    was never issued. The first has tracked 8 tokens.
    """

    def __init__(self, **options: Any) -> None:
        chosen = {"mamba_size": SIZE, "enable_mamba_extra_buffer": True, **options}
        self.pool = HybridReqToTokenPool(3, 4, device="cpu", mamba_layer_ids=(1, 3), **chosen)
        self.first, self.other, self.queued, self.fresh = (
            SimpleNamespace(kv=Record()) for _ in range(4)
        )
        self.slots = self.pool.mamba_allocator
        assert self.pool.alloc([self.first, self.other]) == [2, 3]
        self.node = self.taken()
        assert self.pool.cow_mamba_state(self.queued, self.node) is not None
        self.slots.free(self.taken())
        if self.pool.track_width:
            self.pool.mamba_track_boundary(self.first, 8)

    @property
    def kv(self) -> Any:
        """The record of the first request."""
        return self.first.kv

    def taken(self) -> torch.Tensor:
        found = self.slots.alloc(1)
        assert found is not None
        return found

    def shown(self) -> Any:
        requests = (self.first, self.other, self.queued, self.fresh)
        names = ("req_pool_idx", *SLOTS, *PLAIN)
        records = [[_plain(getattr(each.kv, name)) for name in names] for each in requests]
        return self.pool.snapshot(), records

    def settle(self) -> None:
        """Nothing is deferred."""

    def recover(self) -> None:
        """Nothing to recover from."""

    def audit(self) -> list[str]:
        return self.pool.audit()


def _plain(value: Any) -> Any:
    """What a record holds, copied; a tensor with its type."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    return list(value) if isinstance(value, list) else value
