"""What a KV pool of full and sliding-window layers offers its allocator.

Spec: `spec/swa_unified.md` §2.8, §2.12 and `spec/pools_states_sizing.md` §12.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

from impl import checks
from impl.errors import OutOfRange, Unsupported

BufferInfos = tuple[list[int], list[int], list[int]]


class BaseSWAKVPool(ABC):
    """Two sub-pools; the allocator owns the map between their slots, and the pool reads it.

    `swa_kv_pool` is the sub-pool of the window layers. `swa_req_ring_size`: tokens of a ring, where
    each request row has one instead of window slots. `request_window`: window rows of requests,
    where there is no map. `swa_uses_full_indices`: the window layers are addressed by full slots.
    """

    swa_kv_pool: Any = None
    swa_req_ring_size: int | None = None
    request_window: Any = None
    swa_uses_full_indices: ClassVar[bool] = False

    @abstractmethod
    def register_mapping(self, full_to_swa_index_mapping: torch.Tensor) -> None:
        """Take the allocator's map, int64 [slots + 1]: to be read, never written. §2.2."""

    @abstractmethod
    def translate_loc_from_full_to_swa(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """Window slots int64 [k] of full slots [k]: 0 for none, -1 for -1. O(k). §2.4."""

    @abstractmethod
    def get_state_buf_infos(self) -> BufferInfos:
        """Addresses, bytes and item sizes of the window side's buffers, for a transfer. §12."""


class StoragelessSWAKVPool(BaseSWAKVPool):
    """A pool of no bytes: it knows the map, and whether windows are rings, and nothing else.

    For books without storage: tests, simulations. Raises `NegativeSize`, `WrongDtype`.
    """

    def __init__(self, *, swa_req_ring_size: int | None = None) -> None:
        if swa_req_ring_size is not None:
            swa_req_ring_size = checks.host_size(swa_req_ring_size, "swa_req_ring_size", least=1)
        self.swa_req_ring_size = swa_req_ring_size
        self._mapping: torch.Tensor | None = None

    def register_mapping(self, full_to_swa_index_mapping: torch.Tensor) -> None:
        self._mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """As the contract says; `Unsupported` before an allocator has registered its map.

        Raises `OutOfRange`, `WrongDtype`, `WrongDevice`, `WrongShape`.
        """
        if self._mapping is None:
            raise Unsupported("translate: no map is registered. Give the pool to an allocator.")
        return translated(self._mapping, kv_indices)

    def get_state_buf_infos(self) -> BufferInfos:
        """Empty: there are no buffers."""
        return [], [], []


def translated(mapping: torch.Tensor, kv_indices: torch.Tensor) -> torch.Tensor:
    """The entries of `mapping` at slots from -1 on; `OutOfRange` for others. O(ids)."""
    checks.require_ids(kv_indices, "kv_indices", mapping.device)
    last = mapping.shape[0] - 2
    if kv_indices.shape[0]:
        least, most = torch.stack(kv_indices.aminmax()).tolist()
        if least < -1 or most > last:
            raise OutOfRange(
                f"slots {least}..{most} aren't within -1..{last}. Translate slots only."
            )
    return mapping[kv_indices]
