"""The buffers of a KV pool as bytes: where the row of a slot lies in each.

Everything that concerns all of a pool's buffers alike (move, host copies, transfers, sizes,
snapshots) is written once, over these. Spec: `spec/pools_states_sizing.md` §7, §10.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch

_WIDTHS = (torch.int64, torch.int32, torch.int16, torch.uint8)


@dataclass(frozen=True)
class KVBuffer:
    """One buffer of one layer; the row of slot s is `rows[s // per_group, s % per_group]`.

    `name` says what it holds ("k", "v", "latent", "index_k", "index_scale"), `layer` is a global
    layer id. `rows` are the widest words [groups, per_group, n] that a row and its place allow, on
    the memory of the pool: whole rows of it are moved, whatever they mean.
    """

    name: str
    layer: int
    rows: torch.Tensor
    #: the tensor [slots, …] that it lies on, where that has a row for each slot
    tensor: torch.Tensor | None = None

    @cached_property
    def per_group(self) -> int:
        """Slots whose rows lie together, at one distance from each other."""
        return self.rows.shape[1]

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a slot's row."""
        return self.rows.shape[2] * self.rows.element_size()

    def part(self, offset: int, size: int) -> KVBuffer:
        """`size` bytes of every row, from byte `offset` on, as a buffer of their own. O(1)."""
        if (offset, size) == (0, self.row_bytes):
            return self
        raw = self.rows.view(torch.uint8)[:, :, offset : offset + size]
        return grouped(self.name, self.layer, raw)

    def gather(self, slots: torch.Tensor) -> torch.Tensor:
        """The rows of slots int64 [k], words [k, n] in storage of their own. O(bytes)."""
        if self._whole is not None:
            rows = self._whole[self._places(slots.numpy())].view(f"i{self.rows.itemsize}")
            return torch.from_numpy(rows.reshape(-1, self.rows.shape[2])).view(self.rows.dtype)
        return self.rows[self._places(slots)]

    def scatter(self, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """Write words [k, n] into the rows of distinct slots int64 [k]. O(bytes)."""
        if self._whole is not None:
            whole = rows.numpy().view(self._whole.dtype)
            self._whole[self._places(slots.numpy())] = whole[:, 0]
        else:
            self.rows[self._places(slots)] = rows

    def _places(self, slots: Any) -> tuple[Any, Any]:
        if self.per_group == 1:
            return slots, 0
        return slots // self.per_group, slots % self.per_group

    @cached_property
    def _whole(self) -> np.ndarray[Any, Any] | None:
        """On a CPU: whole rows as elements [groups, per_group], moved at a tenth of the cost."""
        if self.rows.device.type != "cpu" or not self.rows.numel():
            return None
        whole: np.ndarray[Any, Any] = self.rows.numpy().view(f"V{self.row_bytes}")[:, :, 0]
        return whole

    def __getstate__(self) -> dict[str, Any]:
        # a copy looks at its own memory
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def plain(name: str, layer: int, tensor: torch.Tensor) -> KVBuffer:
    """The buffer on a contiguous tensor [slots, …], a row for each slot."""
    rows = grouped(name, layer, tensor.view(torch.uint8).view(tensor.shape[0], 1, -1)).rows
    return KVBuffer(name, layer, rows, tensor)


def grouped(name: str, layer: int, rows: torch.Tensor) -> KVBuffer:
    """The buffer on bytes [groups, per_group, n], contiguous in their last axis."""
    steps = [rows.shape[2], rows.stride(0), rows.storage_offset()]
    if rows.shape[1] > 1:
        steps.append(rows.stride(1))
    width = next(each for each in _WIDTHS if all(step % each.itemsize == 0 for step in steps))
    return KVBuffer(name, layer, rows.view(width))
