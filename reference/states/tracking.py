"""Track buffers of running requests (`pools_states_sizing.md` §4, ping-pong tracking).

All that is known of a request stands in its record `req.kv`: a slot or None, a list of slots with
-1 where there is none, and plain numbers.
"""

from typing import Any

from reference.refusal import Fault, Refused, as_int, refuse_smallest
from reference.rows import ReqToTokenPool
from reference.sizing import get_mamba_tracking_slots
from reference.states.slots import MambaSlotAllocator

EMPTY = -1


class TrackedRows(ReqToTokenPool):
    """Rows with state slots, and what is done with the track buffers of their requests."""

    def __init__(
        self,
        size: int,
        max_context_len: int,
        *,
        mamba_size: int,
        enable_mamba_extra_buffer: bool = False,
        enable_mamba_extra_buffer_lazy: bool = False,
        enable_overlap_schedule: bool = True,
    ) -> None:
        extra, lazy = enable_mamba_extra_buffer, enable_mamba_extra_buffer_lazy
        if lazy and not enable_overlap_schedule:
            raise Refused("Unsupported")
        self.lazy = extra and lazy
        places = get_mamba_tracking_slots(extra_buffer=True, overlap=enable_overlap_schedule)
        self.mamba_ping_pong_track_buffer_size = places
        self.num_places = places if extra else 0
        self.mamba_initial_tracking_slots = get_mamba_tracking_slots(
            extra_buffer=extra, overlap=enable_overlap_schedule, lazy=lazy
        )
        self.mamba_allocator = MambaSlotAllocator(mamba_size)
        super().__init__(size, max_context_len)

    def clear(self) -> None:
        """All rows and slots free, the maps zero (§4)."""
        super().clear()
        self.mamba_allocator.clear()
        self.mapping = [0] * (self.size + 1)
        self.track_mapping = [[0] * self.num_places for _ in range(self.size + 1)]

    # --- places ---

    def get_mamba_ping_pong_other_idx(self, mamba_next_track_idx: int) -> int:
        """`1 - i`, where there are two places."""
        refuse_smallest(self._place_faults(mamba_next_track_idx))
        return self._other(mamba_next_track_idx)

    def _other(self, place: int) -> int:
        return 1 - place if self.mamba_ping_pong_track_buffer_size == 2 else place

    def get_mamba_ping_pong_keep_idx(self, req: Any) -> int:
        """Where the latest tracked state lies."""
        refuse_smallest(self._tracking_faults(req))
        place: int = req.kv.mamba_last_track_idx
        return place

    def _place_faults(self, place: object) -> list[Fault]:
        number = as_int(place)
        if number is None:
            return [("WrongDtype", 0)]
        return [] if 0 <= number < self.num_places else [("OutOfRange", 0)]

    def _tracking_faults(self, req: Any) -> list[Fault]:
        """Why the request isn't one that tracks its state."""
        faults: list[Fault] = []
        if req.kv.req_pool_idx is None:
            faults.append(("RowNotHeld", 0))
        elif (kind := self._row_fault(req.kv.req_pool_idx)) is not None:
            faults.append((kind, 0))
        if req.kv.mamba_ping_pong_track_buffer is None:
            faults.append(("NotOwned", 0))
        if self.num_places == 0:
            faults.append(("Unsupported", 0))
        return faults

    # --- slots of a buffer ---

    def set_mamba_ping_pong_slot(self, req: Any, idx: int, value: list[int] | int) -> None:
        """A slot, as a list of one, that is out and that the request hasn't already; or -1."""
        faults = self._place_faults(idx) + self._tracking_faults(req)
        if not isinstance(value, list) and value != EMPTY:
            faults.append(("OutOfRange", 0))
        refuse_smallest(faults)
        if isinstance(value, list):
            self._require_new(req, idx, value[0])
            self._set(req, idx, value[0])
        else:
            self._set(req, idx, EMPTY)

    def _require_new(self, req: Any, idx: int, slot: int) -> None:
        faults = self.mamba_allocator.slot_faults([slot])
        buffer = req.kv.mamba_ping_pong_track_buffer
        others = [req.kv.mamba_pool_idx] + [buffer[p] for p in range(len(buffer)) if p != idx]
        if slot in others:
            faults.append(("Duplicate", 0))
        refuse_smallest(faults)

    def _set(self, req: Any, idx: int, slot: int) -> None:
        """Record, its flags, and the map of the row, together (H2, H4)."""
        req.kv.mamba_ping_pong_track_buffer[idx] = slot
        req.kv.mamba_ping_pong_empty[idx] = slot == EMPTY
        self.track_mapping[req.kv.req_pool_idx][idx] = slot

    def donate_mamba_ping_pong_slot(self, req: Any, new_slot: list[int]) -> list[int]:
        """The slot of the latest tracked state passes to the caller; a new one is in its place."""
        refuse_smallest(self._tracking_faults(req))
        place = req.kv.mamba_last_track_idx
        donated = req.kv.mamba_ping_pong_track_buffer[place]
        if donated == EMPTY:
            raise Refused("NotOwned")
        self.set_mamba_ping_pong_slot(req, place, new_slot)
        req.kv.mamba_last_track_seqlen = None  # the state went with the slot
        return [donated]

    # --- the second slot of lazy pools ---

    def _require_lazy(self, req: Any) -> None:
        refuse_smallest(self._tracking_faults(req) + ([] if self.lazy else [("Unsupported", 0)]))

    def mamba_lazy_prealloc(self, req: Any) -> bool:
        """Before a boundary step: a slot in the other place, to be written; False if none is free.

        Then the step overwrites the tracked state in place.
        """
        self._require_lazy(req)
        other = self._other(req.kv.mamba_next_track_idx)
        if not req.kv.mamba_ping_pong_empty[other]:
            return True  # the step before isn't done with it
        slots = self.mamba_allocator.alloc(1)
        if slots is None:
            req.kv.mamba_last_track_seqlen = None
            return False
        self._set(req, other, slots[0])
        req.kv.mamba_next_track_idx = other
        return True

    def mamba_lazy_undo_prealloc(self, req: Any) -> None:
        """The step wasn't tracked: the slot that it was to write goes back."""
        self._require_lazy(req)
        place = req.kv.mamba_next_track_idx
        other = self._other(place)
        if not any(req.kv.mamba_ping_pong_empty):
            self._free_place(req, place)
            req.kv.mamba_next_track_idx = other

    def _free_place(self, req: Any, place: int) -> None:
        self.mamba_allocator.free([req.kv.mamba_ping_pong_track_buffer[place]])
        self._set(req, place, EMPTY)

    # --- tracked lengths ---

    def mamba_track_boundary(self, req: Any, seq_len: int) -> None:
        """The step wrote the state of `seq_len` tokens into the next place."""
        faults, length = self._tracking_faults(req), as_int(seq_len)
        before = req.kv.mamba_last_track_seqlen
        if length is None:
            faults.append(("WrongDtype", 0))
        elif length < 0:
            faults.append(("NegativeSize", 0))
        elif before is not None and length <= before:
            faults.append(("BadLengths", 0))
        refuse_smallest(faults)
        written = req.kv.mamba_next_track_idx
        other = self._other(written)
        req.kv.mamba_last_track_idx = written
        req.kv.mamba_last_track_seqlen = length
        req.kv.mamba_prev_track_seqlen = None
        if self.lazy:
            if not req.kv.mamba_ping_pong_empty[other]:
                self._free_place(req, other)
        elif other != written:
            req.kv.mamba_prev_track_seqlen = before
            req.kv.mamba_next_track_idx = other

    def mamba_checkpoint(self, req: Any, key_len: int) -> tuple[int, int] | None:
        """Length and place of the latest tracked state that a key of `key_len` tokens covers."""
        faults, most = self._tracking_faults(req), as_int(key_len)
        if most is None:
            faults.append(("WrongDtype", 0))
        elif most < 0:
            faults.append(("NegativeSize", 0))
        refuse_smallest(faults)
        last, length = req.kv.mamba_last_track_idx, req.kv.mamba_last_track_seqlen
        if length is not None and length <= key_len:
            return length, last
        length = req.kv.mamba_prev_track_seqlen
        if length is not None and length <= key_len:
            return length, self._other(last)
        return None

    # --- lookups ---

    def get_mamba_indices(self, req_indices: list[int]) -> list[int]:
        """The state slots of rows, by the map."""
        rows = list(req_indices)
        if any(not 0 <= row <= self.size for row in rows):
            raise Refused("OutOfRange")
        return [self.mapping[row] for row in rows]

    def translate_mamba_indices(self, mamba_indices: list[int]) -> list[int]:
        """The identity: slots of a pool of fixed size are physical."""
        return list(mamba_indices)

    # --- inspection ---

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping; what requests know stands in their records."""
        return {
            **super().snapshot(),
            "slots": self.mamba_allocator.snapshot(),
            "mapping": list(self.mapping),
            "track_mapping": [list(line) for line in self.track_mapping],
        }

    def audit(self) -> list[str]:
        """Recount everything from scratch: the invariants of `bugs.md` that are broken."""
        return super().audit() + self.mamba_allocator.audit()
