"""Which state slots the request of each row has: on the host by row, on the device in maps.

The host's copy is why nothing is read back from a device where a request goes on, is tracked or
ends. Spec: `spec/pools_states_sizing.md` §4 (device maps), H2, H4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import (
    DoubleFree,
    Duplicate,
    Fault,
    NotOwned,
    OutOfRange,
    PoolError,
    Reserved,
    RowNotHeld,
    StillOwned,
    refuse,
)
from impl.kernels import arrays
from impl.rows import ReqToTokenPool
from impl.states.record import EMPTY, NOTHING, Slots, StateKV, StateRequest, record_fault
from impl.states.slot_book import sent
from impl.states.slots import MambaSlotAllocator

#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    OutOfRange: "Use rows, slots and places of this pool",
    Reserved: "Row 0 and slot 0 belong to padded lanes: they are never handed out",
    NotOwned: "Use state slots between their hand-out and their free",
    DoubleFree: "A state that was freed is nobody's: forget it at its free",
    Duplicate: "Every state slot has one owner",
    RowNotHeld: "Use rows between their hand-out and their free",
    StillOwned: "Call free_mamba_cache before the row goes back",
}


class StateRows(ReqToTokenPool):
    """Rows, and the state slots of their requests.

    Attributes beside a row pool's: `mamba_allocator`; `track_width`, the places of a track
    buffer; and on the device `req_index_to_mamba_index_mapping` int32 [size + 1] and
    `req_index_to_mamba_ping_pong_track_buffer_mapping` int64 [size + 1, track_width]. A row
    whose request has no state keeps its last entries there.
    """

    def __init__(
        self,
        size: int,
        max_context_len: int,
        *,
        mamba_size: int,
        track_width: int,
        device: torch.device | str,
    ) -> None:
        self.mamba_allocator = MambaSlotAllocator(mamba_size, device=device)
        self._book = self.mamba_allocator.book
        self.track_width = track_width
        self._arrays = arrays.of(self.mamba_allocator.device)
        super().__init__(size, max_context_len, device=device)

    def clear(self) -> None:
        """All rows and slots free, the maps zero; records, generations and bytes stay. §4."""
        super().clear()
        self.mamba_allocator.clear()
        rows = self.size + 1
        self.req_index_to_mamba_index_mapping = torch.zeros(
            rows, dtype=torch.int32, device=self.device
        )
        self.req_index_to_mamba_ping_pong_track_buffer_mapping = torch.zeros(
            (rows, self.track_width), dtype=torch.int64, device=self.device
        )
        #: row → the slots of its request, and the record's tensors that have them
        self._known: dict[int, tuple[Slots, torch.Tensor | None, torch.Tensor | None]] = {}
        #: slot → the record's tensor, of a request that has a state and no row yet
        self._waiting: dict[int, torch.Tensor] = {}

    def _take_back(self, rows: Sequence[int]) -> None:
        super()._take_back(rows)
        for row in rows:
            self._known.pop(row, None)

    # The host's copy

    def _slots_of(self, req: StateRequest) -> Slots:
        """The slots of a request; read back only where this pool didn't hand them out."""
        kv = req.kv
        state, buffer = kv.mamba_pool_idx, kv.mamba_ping_pong_track_buffer
        if state is None:
            return NOTHING
        known, *tensors = self._known.get(kv.req_pool_idx or 0, (NOTHING, None, None))
        waiting = (slot for slot, tensor in self._waiting.items() if tensor is state)
        slot = known.state if tensors[0] is state else next(waiting, 0)
        tracks: list[int] = []
        if buffer is not None:
            tracks = list(known.tracks) if tensors[1] is buffer else buffer.tolist()
        return Slots(slot or int(state), tracks)

    def _keep(self, row: int, slots: Slots, kv: StateKV) -> None:
        """Note what the request of a row has, and by which tensors of its record."""
        self._known[row] = (slots, kv.mamba_pool_idx, kv.mamba_ping_pong_track_buffer)
        self._waiting.pop(slots.state, None)

    def _free_faults(self, rows: Sequence[Any]) -> list[Fault]:
        """Besides: rows whose requests still have a state."""
        found = super()._free_faults(rows)
        for index, row in enumerate(map(checks.int_or_none, rows)):
            slots = self._known.get(row or 0, (NOTHING,))[0].all()
            if slots and not self._book.faults(slots):
                found.append(Fault(StillOwned, index, f"row {row} has state slots {slots}"))
        return found

    # The device's copy

    def _sent(self, *numbers: Sequence[int]) -> list[torch.Tensor]:
        """Lists of the host on the device, int64, in one copy that nobody waits for."""
        return sent(self._arrays, *numbers)

    def _write_maps(
        self, rows: Sequence[int], dealt: Sequence[Slots]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the device maps of `rows`; states [n] and tracks [n, P] as they were sent."""
        none = [EMPTY] * self.track_width
        flat = [track for each in dealt for track in each.tracks or none]
        at, states, tracks = self._sent(rows, [each.state for each in dealt], flat)
        tracks = tracks.view(len(dealt), self.track_width)
        self.req_index_to_mamba_index_mapping[at] = states.to(torch.int32)
        self.req_index_to_mamba_ping_pong_track_buffer_mapping[at] = tracks
        return states, tracks

    def get_mamba_indices(self, req_indices: torch.Tensor) -> torch.Tensor:
        """State slots of rows, int64 [n], by the device map; row 0, of padded lanes, has slot 0.

        Raises `OutOfRange` on a CPU; an accelerator's own indexing looks after it there.
        `WrongDtype`, `WrongDevice`, `WrongShape`. O(n). Spec: §4.
        """
        checks.require_ids(req_indices, "req_indices", self.device)
        if self.device.type == "cpu":
            outside = [row for row in req_indices.tolist() if not 0 <= row <= self.size]
            if outside:
                raise OutOfRange(f"get_mamba_indices: rows {outside} are outside 0..{self.size}.")
        return self.req_index_to_mamba_index_mapping[req_indices.to(torch.int64)].to(torch.int64)

    def translate_mamba_indices(self, mamba_indices: torch.Tensor) -> torch.Tensor:
        """A copy of slots: on a static pool every slot is physical. Spec: §4."""
        checks.require_ids(mamba_indices, "mamba_indices", self.device)
        return mamba_indices.to(torch.int64, copy=True)

    # Faults

    def _require_record(self, call: str, req: StateRequest) -> None:
        """Raise what host data says is wrong with the record of `req`."""
        refuse(call, self._record_faults([req]), ADVICE)

    def _record_faults(self, reqs: Sequence[StateRequest]) -> list[Fault]:
        """What host data says is wrong with the records of `reqs`."""
        found = [record_fault(index, req.kv, self.track_width) for index, req in enumerate(reqs)]
        return [fault for fault in found if fault is not None]

    def _new_faults(self, slot: int, others: Sequence[int]) -> list[Fault]:
        """What is wrong with `slot` as one that is out, and none of a request's `others`."""
        found = self._book.faults([slot])
        if slot in others:
            found.append(Fault(Duplicate, 0, f"slot {slot} is the request's already"))
        return found

    # Inspection

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping as plain Python, device maps included; records aren't. O(size)."""
        return {
            **super().snapshot(),
            "slots": self.mamba_allocator.snapshot(),
            "mapping": self.req_index_to_mamba_index_mapping.tolist(),
            "track_mapping": self.req_index_to_mamba_ping_pong_track_buffer_mapping.tolist(),
        }

    def audit(self) -> list[str]:
        """Recount everything from scratch: violated invariants, [] when healthy. O(size)."""
        problems = [*super().audit(), *self.mamba_allocator.audit()]
        states = self.req_index_to_mamba_index_mapping.tolist()
        tracks = self.req_index_to_mamba_ping_pong_track_buffer_mapping.tolist()
        for row, (slots, *_) in self._known.items():
            on_device = Slots(states[row], tracks[row] if slots.tracks else [])
            if on_device != slots:
                problems.append(f"I41: row {row} has {slots}, the device maps {on_device}")
            if len(set(slots.all())) < len(slots.all()):
                problems.append(f"I34: a slot is twice in {slots}, of row {row}")
        return problems
