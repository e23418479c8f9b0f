"""Track buffers: where a running request leaves its state, so that a prefix cache can have it.

Two places are written in turn, so that a reader who is one step behind still finds its step; or,
lazily, one, beside which the second is there only while it is needed. Spec:
`spec/pools_states_sizing.md` §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import BadLengths, Fault, NotOwned, OutOfRange, RowNotHeld, Unsupported, refuse
from impl.sizing import get_mamba_tracking_slots
from impl.states.record import EMPTY, Slots, StateKV, StateRequest, require_slot
from impl.states.register import ADVICE, StateRows


class TrackedRows(StateRows):
    """What is done with the track buffers of requests that have a row.

    Attributes beside: `mamba_ping_pong_track_buffer_size`, the places that a buffer has where
    there are any; `mamba_initial_tracking_slots`, how many of them have a slot from the start;
    `enable_mamba_extra_buffer` and `enable_mamba_extra_buffer_lazy`, whether there are buffers,
    and lazy ones.
    """

    def __init__(
        self,
        size: int,
        max_context_len: int,
        *,
        mamba_size: int,
        device: torch.device | str,
        extra_buffer: bool,
        lazy: bool,
        overlap: bool,
    ) -> None:
        if lazy and not overlap:
            raise Unsupported("a lazy pool needs overlap: without it one place is all there is.")
        places = get_mamba_tracking_slots(extra_buffer=True, overlap=overlap)
        self.mamba_ping_pong_track_buffer_size = places
        self.mamba_initial_tracking_slots = get_mamba_tracking_slots(
            extra_buffer=extra_buffer, overlap=overlap, lazy=lazy
        )
        self.enable_mamba_extra_buffer = extra_buffer
        self.enable_mamba_extra_buffer_lazy = extra_buffer and lazy
        super().__init__(
            size,
            max_context_len,
            mamba_size=mamba_size,
            track_width=places if extra_buffer else 0,
            device=device,
        )

    def get_mamba_ping_pong_other_idx(self, mamba_next_track_idx: int) -> int:
        """The other place of a buffer; of a buffer of one place, this one. `OutOfRange`. §4."""
        return self._other(self._place("get_mamba_ping_pong_other_idx", mamba_next_track_idx))

    def get_mamba_ping_pong_keep_idx(self, req: StateRequest) -> int:
        """The place of the latest tracked state. `NotOwned`, `RowNotHeld`, `Unsupported`. §4."""
        return int(self._tracked("get_mamba_ping_pong_keep_idx", req).mamba_last_track_idx or 0)

    def set_mamba_ping_pong_slot(
        self, req: StateRequest, idx: int, value: torch.Tensor | int
    ) -> None:
        """Make `value` the slot at place `idx`: a tensor of one slot that is out, or -1.

        Record, host copy and device map together. The slot that was there is the caller's. Reads
        a tensor back. Raises `OutOfRange`, `Reserved`, `NotOwned` (also without a buffer),
        `DoubleFree`, `Duplicate` (a slot the request has already), `RowNotHeld`, `WrongDtype`,
        `WrongDevice`, `WrongShape`, `Unsupported`. O(1). Spec: §4, H2.
        """
        call = "set_mamba_ping_pong_slot"
        checks.raise_first(
            checks.collected(
                lambda: self._place(call, idx),
                lambda: self._tracked(call, req),
                lambda: self._require_value(call, value),
            )
        )
        slot = EMPTY if not isinstance(value, torch.Tensor) else int(value.reshape(-1)[0])
        if slot != EMPTY or isinstance(value, torch.Tensor):
            state, tracks = self._slots_of(req)
            others = [state, *tracks[:idx], *tracks[idx + 1 :]]
            refuse(call, self._new_faults(slot, others), ADVICE)
        self._set(req, int(idx), slot)

    def donate_mamba_ping_pong_slot(
        self, req: StateRequest, new_slot: torch.Tensor
    ) -> torch.Tensor:
        """The slot of the latest tracked state, int64 [1]: the caller's, from now on.

        `new_slot`, one slot that is out, takes its place; nothing is tracked in it yet. Raises as
        `set_mamba_ping_pong_slot`. O(1). Spec: §4, H5.
        """
        call = "donate_mamba_ping_pong_slot"
        checks.raise_first(
            checks.collected(
                lambda: self._tracked(call, req),
                lambda: require_slot(new_slot, "new_slot", self.device),
            )
        )
        place = int(req.kv.mamba_last_track_idx or 0)
        donated = self._slots_of(req).tracks[place]
        if donated == EMPTY:
            raise NotOwned(f"{call}: there is no slot at place {place}.")
        self.set_mamba_ping_pong_slot(req, place, new_slot)
        req.kv.mamba_last_track_seqlen = None
        return self._sent([donated])[0]

    def mamba_lazy_prealloc(self, req: StateRequest) -> bool:
        """Before a step that tracks: have the second place, and write there. False when short.

        Then the step overwrites the latest tracked state, which has no length any more; nothing
        is evicted for it. A second slot that is still there stays as it is. Raises `NotOwned`,
        `RowNotHeld`, `Unsupported` (also unless lazy). O(1). Spec: §4 (lazy).
        """
        kv = self._tracked("mamba_lazy_prealloc", req, lazy=True)
        other = self._other(int(kv.mamba_next_track_idx or 0))
        if self._slots_of(req).tracks[other] != EMPTY:
            return True
        taken = self._book.take_each([1])
        if taken is None:
            kv.mamba_last_track_seqlen = None
            return False
        self._set(req, other, taken[0])
        kv.mamba_next_track_idx = other
        return True

    def mamba_lazy_undo_prealloc(self, req: StateRequest) -> None:
        """Give the second slot back, unwritten; nothing if there is one. Errors as above. §4."""
        call = "mamba_lazy_undo_prealloc"
        kv = self._tracked(call, req, lazy=True)
        place = int(kv.mamba_next_track_idx or 0)
        other = self._other(place)
        if EMPTY not in self._slots_of(req).tracks:
            self._drop(call, req, place)
            kv.mamba_next_track_idx = other

    def mamba_track_boundary(self, req: StateRequest, seq_len: int) -> None:
        """Behind a step that tracked: the state of `seq_len` tokens lies in the next place.

        The places change over; lazily the other one goes back. Raises `BadLengths` unless
        `seq_len` is beyond what was tracked before, `NegativeSize`, `NotOwned`, `RowNotHeld`,
        `WrongDtype`, `Unsupported`. O(1). Spec: §4 (ping-pong tracking).
        """
        call, kv = "mamba_track_boundary", req.kv
        before = kv.mamba_last_track_seqlen
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(seq_len, "seq_len"),
                lambda: self._tracked(call, req),
                lambda: _require_beyond(call, seq_len, before),
            )
        )
        written = int(kv.mamba_next_track_idx or 0)
        other = self._other(written)
        if self.enable_mamba_extra_buffer_lazy and self._slots_of(req).tracks[other] != EMPTY:
            self._drop(call, req, other)
        turns = other != written and not self.enable_mamba_extra_buffer_lazy
        kv.mamba_prev_track_seqlen = before if turns else None
        kv.mamba_last_track_seqlen = int(seq_len)
        kv.mamba_last_track_idx = written
        kv.mamba_next_track_idx = other if turns else written

    def mamba_checkpoint(self, req: StateRequest, key_len: int) -> tuple[int, int] | None:
        """(length, place) of the latest tracked state of at most `key_len` tokens; None if none.

        A reader one step behind finds the step before. Raises as `mamba_track_boundary`. §4.
        """
        call, kv = "mamba_checkpoint", req.kv
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(key_len, "key_len"), lambda: self._tracked(call, req)
            )
        )
        last = int(kv.mamba_last_track_idx or 0)
        lengths = (kv.mamba_last_track_seqlen, kv.mamba_prev_track_seqlen)
        for length, place in zip(lengths, (last, self._other(last)), strict=True):
            if length is not None and length <= key_len:
                return length, place
        return None

    # What they share

    def _other(self, place: int) -> int:
        return 1 - place if self.mamba_ping_pong_track_buffer_size > 1 else place

    def _place(self, call: str, value: Any) -> int:
        """A place of a track buffer."""
        place = checks.host_int(value, "a place")
        if not 0 <= place < self.track_width:
            raise OutOfRange(f"{call}: place {place} is outside 0..{self.track_width - 1}.")
        return place

    def _tracked(self, call: str, req: StateRequest, lazy: bool = False) -> StateKV:
        """The record of a request that has a row and a track buffer."""
        self._require_record(call, req)
        kv, row = req.kv, req.kv.req_pool_idx
        faults = []
        if row is None:
            faults.append(Fault(RowNotHeld, 0, "the request has no row"))
        elif (fault := self._row_fault(0, row)) is not None:
            faults.append(fault)
        if kv.mamba_ping_pong_track_buffer is None:
            faults.append(Fault(NotOwned, 0, "the request has no track buffer"))
        if not self.track_width or (lazy and not self.enable_mamba_extra_buffer_lazy):
            faults.append(Fault(Unsupported, 0, "this pool isn't one that has to"))
        refuse(call, faults, ADVICE)
        return kv

    def _require_value(self, call: str, value: Any) -> None:
        """Raise unless `value` is a tensor of one slot, or -1."""
        if isinstance(value, torch.Tensor):
            require_slot(value, "value", self.device)
        elif (slot := checks.host_int(value, "value")) != EMPTY:
            raise OutOfRange(f"{call}: value {slot} is neither a tensor of a slot nor -1.")

    def _begin_tracking(self, kv: StateKV, buffer: torch.Tensor, tracks: Sequence[int]) -> None:
        """The record of a request whose buffer is new."""
        kv.mamba_ping_pong_track_buffer = buffer
        kv.mamba_ping_pong_empty = [track == EMPTY for track in tracks]
        kv.mamba_next_track_idx = 0
        kv.mamba_last_track_idx = 0 if self.enable_mamba_extra_buffer_lazy else self._other(0)
        kv.mamba_last_track_seqlen = None
        kv.mamba_prev_track_seqlen = None

    def _set(self, req: StateRequest, place: int, slot: int) -> None:
        """Record, host copy, device map."""
        kv = req.kv
        row, buffer = kv.req_pool_idx, kv.mamba_ping_pong_track_buffer
        empty = kv.mamba_ping_pong_empty
        if row is None or buffer is None or empty is None:
            raise AssertionError("a request that is tracked has all of them")
        state, tracks = self._slots_of(req)
        tracks[place] = slot
        (on_device,) = self._sent([slot])
        buffer[place : place + 1] = on_device
        mapping = self.req_index_to_mamba_ping_pong_track_buffer_mapping
        mapping[row, place : place + 1] = on_device
        empty[place] = slot == EMPTY
        self._keep(row, Slots(state, tracks), kv)

    def _drop(self, call: str, req: StateRequest, place: int) -> None:
        """Free the slot at a place."""
        self._book.release(call, [self._slots_of(req).tracks[place]])
        self._set(req, place, EMPTY)


def _require_beyond(call: str, seq_len: Any, before: int | None) -> None:
    length = checks.int_or_none(seq_len)
    if before is not None and length is not None and 0 <= length <= before:
        raise BadLengths(f"{call}: {seq_len} tokens, {before} were tracked before.")
