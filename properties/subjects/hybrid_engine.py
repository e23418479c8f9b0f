"""What an engine does around the rows of hybrid models, where the rows leave it to their callers.

Prefix hits, the deferred work of a first extend, tracking, and the end of a request that tracks
nothing, on records with tensors. Legal use alone. Spec: `spec/pools_states_sizing.md` §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl.sizing import slots_needed

#: what it does
CALLS = (
    "cow_mamba_state", "collect_deferred_mamba", "donate_mamba_state", "mamba_lazy_prealloc",
    "mamba_lazy_undo_prealloc", "mamba_track_boundary", "mamba_checkpoint", "slots_needed",
)  # fmt: skip


class Engine:
    """The caller of some rows, which have a slot allocator and maps."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.slots = rows.mamba_allocator
        self.slots_needed = slots_needed

    def cow_mamba_state(self, req: Any, src_index: torch.Tensor) -> torch.Tensor | None:
        kv = req.kv
        if kv.mamba_pool_idx is None:
            taken = self.slots.alloc(1)
            if taken is None:
                return None
            kv.mamba_pool_idx = taken[0].clone()
            if kv.req_pool_idx is not None:
                self.rows.req_index_to_mamba_index_mapping[kv.req_pool_idx] = kv.mamba_pool_idx
                if self.rows.enable_mamba_extra_buffer:
                    tracks = self.rows.req_index_to_mamba_ping_pong_track_buffer_mapping
                    tracks[kv.req_pool_idx] = -1
        kv.mamba_cow_src_index, kv.mamba_needs_clear = src_index.clone(), False
        found: torch.Tensor = kv.mamba_pool_idx.reshape(1).clone()
        return found

    def collect_deferred_mamba(self, reqs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        work: tuple[list[torch.Tensor], ...] = ([], [], [])
        for kv in (req.kv for req in reqs):
            own = kv.mamba_pool_idx.reshape(1)
            if kv.mamba_cow_src_index is not None:
                work[1].append(kv.mamba_cow_src_index)
                work[2].append(own)
            elif kv.mamba_needs_clear:
                work[0].append(own)
            kv.mamba_cow_src_index, kv.mamba_needs_clear = None, False
        none = torch.empty(0, dtype=torch.int64)
        return tuple(torch.cat([none, *each]) for each in work)

    def donate_mamba_state(self, req: Any) -> torch.Tensor:
        donated: torch.Tensor = req.kv.mamba_pool_idx.reshape(1).clone()
        forget(req.kv)
        return donated

    def mamba_lazy_prealloc(self, req: Any) -> bool:
        kv = req.kv
        other = self.rows.get_mamba_ping_pong_other_idx(kv.mamba_next_track_idx)
        if not kv.mamba_ping_pong_empty[other]:
            return True
        taken = self.slots.alloc(1)
        if taken is None:
            kv.mamba_last_track_seqlen = None
            return False
        self.rows.set_mamba_ping_pong_slot(req, other, taken[0])
        kv.mamba_next_track_idx = other
        return True

    def mamba_lazy_undo_prealloc(self, req: Any) -> None:
        kv = req.kv
        if not any(kv.mamba_ping_pong_empty):
            place = kv.mamba_next_track_idx
            self._drop(req, place)
            kv.mamba_next_track_idx = self.rows.get_mamba_ping_pong_other_idx(place)

    def mamba_track_boundary(self, req: Any, seq_len: int) -> None:
        kv, written = req.kv, req.kv.mamba_next_track_idx
        other = self.rows.get_mamba_ping_pong_other_idx(written)
        lazy = self.rows.enable_mamba_extra_buffer_lazy
        if lazy and not kv.mamba_ping_pong_empty[other]:
            self._drop(req, other)
        turns = other != written and not lazy
        kv.mamba_prev_track_seqlen = kv.mamba_last_track_seqlen if turns else None
        kv.mamba_last_track_seqlen, kv.mamba_last_track_idx = seq_len, written
        kv.mamba_next_track_idx = other if turns else written

    def _drop(self, req: Any, place: int) -> None:
        self.slots.free(req.kv.mamba_ping_pong_track_buffer[place : place + 1].clone())
        self.rows.set_mamba_ping_pong_slot(req, place, -1)

    def mamba_checkpoint(self, req: Any, key_len: int) -> tuple[int, int] | None:
        kv = req.kv
        last = kv.mamba_last_track_idx
        places = (last, self.rows.get_mamba_ping_pong_other_idx(last))
        lengths = (kv.mamba_last_track_seqlen, kv.mamba_prev_track_seqlen)
        for length, place in zip(lengths, places, strict=True):
            if length is not None and length <= key_len:
                return length, place
        return None


def forget(kv: Any) -> None:
    """A request without buffers has no state any more, and nothing is planned for one."""
    kv.mamba_pool_idx, kv.mamba_cow_src_index, kv.mamba_needs_clear = None, None, False
