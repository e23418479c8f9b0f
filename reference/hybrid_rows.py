"""Request rows of hybrid models: a row and state slots for each (`pools_states_sizing.md` §4)."""

from collections.abc import Sequence
from typing import Any

from reference.refusal import Fault, Refused, as_int, refuse_smallest
from reference.states.tracking import EMPTY, TrackedRows

Deferred = tuple[list[int], list[int], list[int]]
"""Slots to clear, slots to copy from, slots to copy to."""


class HybridReqToTokenPool(TrackedRows):
    """Rows `1..size`, state slots `1..mamba_size`; a request takes both in one step."""

    held_states: dict[int, list[int]]  # row → the slots that its request has

    def __init__(
        self,
        size: int,
        max_context_len: int,
        *,
        mamba_layer_ids: Sequence[int] = (),
        **options: Any,
    ) -> None:
        super().__init__(size, max_context_len, **options)
        self.mamba_map = {layer: place for place, layer in enumerate(mamba_layer_ids)}

    def mamba2_layer_index(self, layer_id: int) -> int:
        """Where the states of a layer stand among those of all layers that have one."""
        layer = as_int(layer_id)
        if layer is None:
            raise Refused("WrongDtype")
        if layer not in self.mamba_map:
            raise Refused("OutOfRange")
        return self.mamba_map[layer]

    def clear(self) -> None:
        """The initial state; generations, records and bytes stay."""
        super().clear()
        self.held_states = {}

    # --- hand-out ---

    def alloc(self, reqs: Sequence[Any]) -> list[int] | None:
        """The row of every request; who lacks a row, a state or a buffer gets it. All or none."""
        reqs = list(reqs)
        refuse_smallest(self._request_faults(reqs) + _record_faults(reqs))
        rowless = [req for req in reqs if req.kv.req_pool_idx is None]
        if len(rowless) > len(self.free_slots) or not self._has_slots(reqs):
            return None
        refuse_smallest(self._state_faults(reqs))
        rows = super().alloc(reqs)
        if rows is None or not self._has_slots(reqs):  # a hook on the rows took some
            for req in rowless:
                super().free(req)
            return None
        for req in reqs:
            self._give_slots(req)
            self._write_maps(req)
        return rows

    def _has_slots(self, reqs: list[Any]) -> bool:
        """Whether the slots suffice: single ones may come from the open group (§2)."""
        parked, free = len(self.mamba_allocator.parked), self.mamba_allocator.available_size()
        for req in reqs:
            for count in self._slots_lacking(req):
                if count == 1 and parked > 0:
                    parked -= 1
                else:
                    free -= count
        return free >= 0

    def _slots_lacking(self, req: Any) -> list[int]:
        """How many slots are taken at a time: for the state, then for the buffer."""
        counts = []
        if req.kv.mamba_pool_idx is None:
            counts.append(1)
        if self.num_places > 0 and req.kv.mamba_ping_pong_track_buffer is None:
            counts.append(self.mamba_initial_tracking_slots)
        return counts

    def _give_slots(self, req: Any) -> None:
        kv = req.kv
        if kv.mamba_pool_idx is None:
            kv.mamba_pool_idx = self._take(1)[0]
            kv.mamba_needs_clear = True
        if self.num_places == 0 or kv.mamba_ping_pong_track_buffer is not None:
            return
        slots = self._take(self.mamba_initial_tracking_slots)
        num_empty = self.num_places - len(slots)
        kv.mamba_ping_pong_track_buffer = slots + [EMPTY] * num_empty
        kv.mamba_ping_pong_empty = [False] * len(slots) + [True] * num_empty
        kv.mamba_next_track_idx = 0
        kv.mamba_last_track_idx = 0 if self.lazy else self._other(0)
        kv.mamba_last_track_seqlen = None
        kv.mamba_prev_track_seqlen = None

    def _take(self, count: int) -> list[int]:
        slots = self.mamba_allocator.alloc(count)
        assert slots is not None, "they were counted"
        return slots

    def _write_maps(self, req: Any) -> None:
        row = req.kv.req_pool_idx
        self.mapping[row] = req.kv.mamba_pool_idx
        buffer = req.kv.mamba_ping_pong_track_buffer
        self.track_mapping[row] = [EMPTY] * self.num_places if buffer is None else list(buffer)
        self.held_states[row] = slots_of(req)

    def _set(self, req: Any, idx: int, slot: int) -> None:
        super()._set(req, idx, slot)
        self.held_states[req.kv.req_pool_idx] = slots_of(req)

    def _state_faults(self, reqs: list[Any]) -> list[Fault]:
        """Slots that requests bring along: out, and nobody else's in the batch."""
        faults: list[Fault] = []
        seen: list[int] = []
        for index, req in enumerate(reqs):
            slots = slots_of(req)
            faults += [(kind, index) for kind, _ in self.mamba_allocator.slot_faults(slots)]
            if any(slot in seen for slot in slots):
                faults.append(("Duplicate", index))
            seen += slots
        return faults

    # --- prefix hits, deferred work ---

    def cow_mamba_state(self, req: Any, src_index: list[int]) -> list[int] | None:
        """The state will be copied from this slot; who has none yet gets one, if one is free."""
        kv, faults = req.kv, _record_faults([req])
        if kv.req_pool_idx is not None and (kind := self._row_fault(kv.req_pool_idx)) is not None:
            faults.append((kind, 0))
        if len(src_index) != 1:
            faults.append(("WrongShape", 0))
        refuse_smallest(faults)
        fresh = kv.mamba_pool_idx is None
        if fresh and not (self.mamba_allocator.parked or self.mamba_allocator.available_size()):
            return None
        values = self.mamba_allocator.slot_faults(src_index)
        if src_index[0] in slots_of(req):
            values.append(("Duplicate", 0))
        refuse_smallest(values)
        if fresh:
            kv.mamba_pool_idx = self._take(1)[0]
            if kv.req_pool_idx is not None:
                self._write_maps(req)
        kv.mamba_cow_src_index = src_index[0]
        kv.mamba_needs_clear = False
        return [kv.mamba_pool_idx]

    def collect_deferred_mamba(self, reqs: Sequence[Any]) -> Deferred:
        """What the first extend does: a copy, or a clear, or nothing; and only once."""
        reqs = list(reqs)
        stateless = [i for i, req in enumerate(reqs) if req.kv.mamba_pool_idx is None]
        refuse_smallest(_record_faults(reqs) + [("NotOwned", index) for index in stateless])
        clear, src, dst = [], [], []
        for req in reqs:
            if req.kv.mamba_cow_src_index is not None:
                src.append(req.kv.mamba_cow_src_index)
                dst.append(req.kv.mamba_pool_idx)
            elif req.kv.mamba_needs_clear:
                clear.append(req.kv.mamba_pool_idx)
            req.kv.mamba_cow_src_index = None
            req.kv.mamba_needs_clear = False
        return clear, src, dst

    # --- return ---

    def free_mamba_cache(
        self, req: Any, mamba_ping_pong_track_buffer_to_keep: int | None = None
    ) -> list[int] | None:
        """Give back all slots of a request, except the track at the place to keep."""
        keep, faults = mamba_ping_pong_track_buffer_to_keep, _record_faults([req])
        if keep is not None:
            faults += self._place_faults(keep)
        if req.kv.mamba_pool_idx is None:
            faults.append(("NotOwned", 0))
        refuse_smallest(faults)
        kept = []
        if keep is not None:
            buffer = req.kv.mamba_ping_pong_track_buffer
            if buffer is None or buffer[keep] == EMPTY:
                raise Refused("NotOwned")
            kept = [buffer[keep]]
        self.mamba_allocator.free([slot for slot in slots_of(req) if slot not in kept])
        self._forget(req)
        return None if keep is None else kept

    def donate_mamba_state(self, req: Any) -> list[int]:
        """A finished request that tracks nothing gives its own slot away."""
        faults = _record_faults([req])
        if req.kv.mamba_pool_idx is None:
            faults.append(("NotOwned", 0))
        refuse_smallest(faults + ([("Unsupported", 0)] if self.num_places > 0 else []))
        slot = req.kv.mamba_pool_idx
        refuse_smallest(self.mamba_allocator.slot_faults([slot]))
        self._forget(req)
        return [slot]

    def _forget(self, req: Any) -> None:
        """The record of a request without state, with or without an extra buffer (§25.2)."""
        self.held_states.pop(req.kv.req_pool_idx, None)
        for name in (
            "pool_idx", "ping_pong_track_buffer", "ping_pong_empty", "next_track_idx",
            "last_track_idx", "last_track_seqlen", "prev_track_seqlen", "cow_src_index",
        ):  # fmt: skip
            setattr(req.kv, f"mamba_{name}", None)
        req.kv.mamba_needs_clear = False

    def free(self, req: Any) -> None:
        """Rows go back after states: what a request has is looked up by its row (H1)."""
        row, parts = (
            req.kv.req_pool_idx,
            (
                req.kv.mamba_pool_idx,
                req.kv.mamba_ping_pong_track_buffer,
            ),
        )
        if row in self.held and parts != (None, None):
            raise Refused("StillOwned")
        super().free(req)

    def _put_back(self, rows: list[int]) -> None:
        super()._put_back(rows)
        for row in rows:
            self.held_states.pop(row, None)

    def _free_faults(self, rows: list[int]) -> list[Fault]:
        """Besides: rows whose requests have a state that is still out."""
        faults = super()._free_faults(rows)
        for index, row in enumerate(rows):
            slots = self.held_states.get(row, [])
            if slots and not self.mamba_allocator.slot_faults(slots):
                faults.append(("StillOwned", index))
        return faults


def slots_of(req: Any) -> list[int]:
    """The slots of a request: its state's, then those that it is tracked in."""
    if req.kv.mamba_pool_idx is None:
        return []
    tracks = req.kv.mamba_ping_pong_track_buffer or []
    return [req.kv.mamba_pool_idx] + [slot for slot in tracks if slot != EMPTY]


def _record_faults(reqs: Sequence[Any]) -> list[Fault]:
    """A buffer without a state: the record contradicts itself (H3)."""
    return [
        ("NotOwned", index)
        for index, req in enumerate(reqs)
        if req.kv.mamba_pool_idx is None and req.kv.mamba_ping_pong_track_buffer is not None
    ]
