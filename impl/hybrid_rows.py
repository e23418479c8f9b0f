"""Request rows of hybrid models: a row, a state slot, and the slots that the state is tracked in.

What a request has stands in its record. `impl.states.register` keeps the same on the host and on
the device, `impl.states.tracking` has what is done with track buffers, this module how slots are
taken and given back. Spec: `spec/pools_states_sizing.md` §4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from impl import checks
from impl.errors import Duplicate, Fault, NotOwned, OutOfRange, StillOwned, Unsupported, refuse
from impl.host.decls import HostPoolDecl, state_decls
from impl.states.record import (
    EMPTY,
    Slots,
    StateRequest,
    forget,
    holds_state,
    require_slot,
)
from impl.states.register import ADVICE
from impl.states.tracking import TrackedRows


class StatePool(Protocol):
    """The bytes of the states, as far as the rows ask for them."""

    size: int

    def clear_slots(self, idx: torch.Tensor) -> None: ...

    def copy_from(self, src: torch.Tensor, dst: torch.Tensor) -> None: ...

    def mamba2_layer_cache(self, layer: int) -> Any: ...


class DeferredStates(NamedTuple):
    """What the first extend of some requests does to their slots, int64 [k], [m] and [m]."""

    clear: torch.Tensor
    src: torch.Tensor
    dst: torch.Tensor


class HybridReqToTokenPool(TrackedRows):
    """Rows 1..size with state slots 1..mamba_size; taking both for a batch is one step.

    `mamba_pool` holds the bytes of as many slots; `mamba_layer_ids` are the layers that have a
    state, by their place in it. `enable_mamba_extra_buffer`: requests track their state in two
    further slots, or in one where nothing overlaps (`enable_overlap_schedule`); with
    `enable_mamba_extra_buffer_lazy` in one, and they take the second when they need it. Raises
    as `ReqToTokenPool`; `OutOfRange` for a pool of another size, `Duplicate` for a layer named
    twice, `Unsupported` for lazy without overlap. O(size * max_context_len + mamba_size). §4.
    """

    def __init__(
        self,
        size: int,
        max_context_len: int,
        *,
        mamba_size: int,
        device: torch.device | str,
        mamba_pool: StatePool | None = None,
        mamba_layer_ids: Sequence[int] = (),
        enable_mamba_extra_buffer: bool = False,
        enable_mamba_extra_buffer_lazy: bool = False,
        enable_overlap_schedule: bool = True,
    ) -> None:
        checks.raise_first(
            checks.collected(
                lambda: checks.pool_size(mamba_size, 1, "mamba_size"),
                lambda: checks.layer_ids(mamba_layer_ids),
            )
        )
        if mamba_pool is not None and mamba_pool.size != mamba_size:
            raise OutOfRange(
                f"the state pool has {mamba_pool.size} slots, mamba_size is {mamba_size}. "
                "Make them equal."
            )
        self.mamba_pool = mamba_pool
        #: layer id → its place in the state pool
        self.mamba_map = {layer: place for place, layer in enumerate(mamba_layer_ids)}
        super().__init__(
            size,
            max_context_len,
            mamba_size=mamba_size,
            device=device,
            extra_buffer=enable_mamba_extra_buffer,
            lazy=enable_mamba_extra_buffer_lazy,
            overlap=enable_overlap_schedule,
        )

    # Taking

    def alloc(self, reqs: Sequence[StateRequest]) -> list[int] | None:  # type: ignore[override]
        """The row of every request, in order, each with a state; None when short of either.

        A request gets what it lacks: a row, a slot for its state, which is to be cleared, slots
        to track it in. Nothing is changed unless all are served. Raises as
        `ReqToTokenPool.alloc`, and `NotOwned`, `DoubleFree`, `Duplicate` for a state that isn't
        out, or another's in the batch, `WrongShape` for a record that contradicts itself.
        O(requests). Spec: §4, H3, H4.
        """
        requests = checks.listed(reqs, "reqs")
        refuse("alloc", self._request_faults(requests) + self._record_faults(requests), ADVICE)
        counts = [count for req in requests for count in self._lacks(req)]
        rowless = [req for req in requests if req.kv.req_pool_idx is None]
        if len(rowless) > len(self.free_slots) or not self._book.has_each(counts):
            return None
        held = [self._slots_of(req) for req in requests]
        refuse("alloc", self._held_faults(held), ADVICE)
        rows = super().alloc(requests)
        slots = self._book.take_each(counts)
        if rows is None or slots is None:
            # a hook on the rows took some: then it is as if they had never been there
            for req in rowless:
                super().free(req)
            return None
        self._deal(requests, rows, held, slots)
        return rows

    def _lacks(self, req: StateRequest) -> list[int]:
        """How many slots the request still needs, for its state and to track it in."""
        state = [1] if req.kv.mamba_pool_idx is None else []
        return state + ([self.mamba_initial_tracking_slots] if self._untracked(req) else [])

    def _untracked(self, req: StateRequest) -> bool:
        return self.track_width > 0 and req.kv.mamba_ping_pong_track_buffer is None

    def _held_faults(self, held: Sequence[Slots]) -> list[Fault]:
        """Slots that requests bring and that aren't out, or are two requests'."""
        found = []
        seen: set[int] = set()
        for index, slots in enumerate(held):
            faults = self._book.faults(slots.all())
            found += [fault._replace(at=index) for fault in faults]
            for slot in seen.intersection(slots.all()):
                found.append(Fault(Duplicate, index, f"slot {slot} is in the batch already"))
            seen.update(slots.all())
        return found

    def _deal(
        self,
        reqs: Sequence[StateRequest],
        rows: Sequence[int],
        held: Sequence[Slots],
        slots: Sequence[int],
    ) -> None:
        """Give `slots` to those that lack some, and write the maps of all."""
        fresh = iter(slots)
        dealt: list[Slots] = []
        for req, had in zip(reqs, held, strict=True):
            state, tracks = had.state or next(fresh), had.tracks
            if self._untracked(req):
                taken = [next(fresh) for _ in range(self.mamba_initial_tracking_slots)]
                tracks = taken + [EMPTY] * (self.track_width - len(taken))
            dealt.append(Slots(state, tracks))
        states, buffers = self._write_maps(rows, dealt)
        for at, (req, row, each) in enumerate(zip(reqs, rows, dealt, strict=True)):
            if req.kv.mamba_pool_idx is None:
                req.kv.mamba_pool_idx = states[at]
                req.kv.mamba_needs_clear = True
            if self._untracked(req):
                self._begin_tracking(req.kv, buffers[at], each.tracks)
            self._keep(row, each, req.kv)

    # Prefix hits and deferred work

    def cow_mamba_state(self, req: StateRequest, src_index: torch.Tensor) -> torch.Tensor | None:
        """The state begins as a copy of slot `src_index`, one that is out, at the first extend.

        Gives the request's slot, int64 [1]: the one it has, or a new one; None when short, and
        nothing has changed. A request may have one before it has a row. Reads `src_index` back.
        Raises `OutOfRange`, `Reserved`, `NotOwned`, `DoubleFree`, `Duplicate` (its own slot),
        `RowNotHeld`, `WrongDtype`, `WrongDevice`, `WrongShape`. O(1). Spec: §4 (copy-on-write).
        """
        call, kv = "cow_mamba_state", req.kv
        checks.raise_first(
            checks.collected(
                lambda: self._require_record(call, req),
                lambda: require_slot(src_index, "src_index", self.device),
                lambda: self._require_row_held(call, req),
            )
        )
        if kv.mamba_pool_idx is None and not self._book.has_each([1]):
            return None
        source = int(src_index.reshape(-1)[0])
        had = self._slots_of(req)
        refuse(call, self._new_faults(source, had.all()), ADVICE)
        state = had.state
        if kv.mamba_pool_idx is None:
            state = (self._book.take_each([1]) or [EMPTY])[0]
            kv.mamba_pool_idx = self._sent([state])[0][0]
            if (row := kv.req_pool_idx) is None:
                self._waiting[state] = kv.mamba_pool_idx
            else:
                self._write_maps([row], [Slots(state, had.tracks)])
                self._keep(row, Slots(state, had.tracks), kv)
        kv.mamba_cow_src_index = src_index.reshape(1).to(torch.int64, copy=True)
        kv.mamba_needs_clear = False
        return self._sent([state])[0]

    def _require_row_held(self, call: str, req: StateRequest) -> None:
        """Raise if the request names a row that nobody holds."""
        row = req.kv.req_pool_idx
        if row is not None and (fault := self._row_fault(0, row)) is not None:
            refuse(call, [fault], ADVICE)

    def collect_deferred_mamba(self, reqs: Iterable[StateRequest]) -> DeferredStates:
        """What is still to be done to the states of `reqs`, which then isn't any more.

        A state that is copied isn't cleared. `NotOwned` for a request without a state, and for a
        record that contradicts itself what `alloc` raises. Reads nothing back. O(requests).
        Spec: §4, H6.
        """
        requests = checks.listed(reqs, "reqs")
        clear, src, dst = ([self._sent([])[0]] for _ in range(3))
        faults = self._record_faults(requests) + [
            Fault(NotOwned, index, "the request has no state")
            for index, req in enumerate(requests)
            if req.kv.mamba_pool_idx is None
        ]
        refuse("collect_deferred_mamba", faults, ADVICE)
        for kv in (req.kv for req in requests):
            assert kv.mamba_pool_idx is not None
            if kv.mamba_cow_src_index is not None:
                src.append(kv.mamba_cow_src_index)
                dst.append(kv.mamba_pool_idx.reshape(1))
            elif kv.mamba_needs_clear:
                clear.append(kv.mamba_pool_idx.reshape(1))
            kv.mamba_cow_src_index, kv.mamba_needs_clear = None, False
        return DeferredStates(torch.cat(clear), torch.cat(src), torch.cat(dst))

    def run_deferred_mamba(self, work: DeferredStates) -> None:
        """Clear, then copy, on the current stream. `Unsupported` without a state pool. §4."""
        pool = self._require_pool("run_deferred_mamba")
        if work.clear.shape[0]:
            pool.clear_slots(work.clear)
        self.copy_mamba_state(work.src, work.dst)

    def copy_mamba_state(self, src_index: torch.Tensor, dst_index: torch.Tensor) -> None:
        """Copy states slot by slot; nothing if there are none. `Unsupported` without a pool. §4."""
        pool = self._require_pool("copy_mamba_state")
        if src_index.shape[0]:
            pool.copy_from(src_index, dst_index)

    def _require_pool(self, call: str) -> StatePool:
        if self.mamba_pool is None:
            raise Unsupported(f"{call}: there is no state pool. Construct with mamba_pool=.")
        return self.mamba_pool

    # Giving back

    def free_mamba_cache(
        self, req: StateRequest, mamba_ping_pong_track_buffer_to_keep: int | None = None
    ) -> torch.Tensor | None:
        """Give back the state of `req` and its tracks; the request forgets them all.

        The track at the place to keep isn't freed but given, int64 [1]: it is the caller's. To
        be called before `free(req)`; a request without a row may have a state too. Raises
        `NotOwned` without a state, or with nothing at that place, `DoubleFree`, `OutOfRange`
        (no such place), `WrongDtype`. O(1). Spec: §4.
        """
        call, keep = "free_mamba_cache", mamba_ping_pong_track_buffer_to_keep
        checks.raise_first(
            checks.collected(
                lambda: self._require_record(call, req),
                lambda: self._require_state(call, req),
                lambda: None if keep is None else self._place(call, keep),
            )
        )
        slots, kept = self._slots_of(req), EMPTY
        if keep is not None:
            kept = slots.tracks[keep] if slots.tracks else EMPTY
            if kept == EMPTY:
                raise NotOwned(f"{call}: there is no slot at place {keep} to keep.")
        self._book.release(call, [slot for slot in slots.all() if slot != kept])
        self._forget(req, slots)
        return None if keep is None else self._sent([kept])[0]

    def donate_mamba_state(self, req: StateRequest) -> torch.Tensor:
        """The state's slot, int64 [1]: it is the caller's, and the request has none any more.

        What a finished request does that tracks nothing; `Unsupported` with an extra buffer,
        `NotOwned`, `DoubleFree` without a state. O(1). Spec: §4 (finish protocol).
        """
        call = "donate_mamba_state"
        self._require_record(call, req)
        self._require_state(call, req)
        if self.track_width:
            raise Unsupported(f"{call}: donate a tracked slot instead.")
        slots = self._slots_of(req)
        refuse(call, self._book.faults(slots.all()), ADVICE)
        self._forget(req, slots)
        return self._sent([slots.state])[0]

    def _require_state(self, call: str, req: StateRequest) -> None:
        if req.kv.mamba_pool_idx is None:
            raise NotOwned(f"{call}: the request has no state. Free or donate it once.")

    def _forget(self, req: StateRequest, slots: Slots) -> None:
        self._waiting.pop(slots.state, None)
        self._known.pop(req.kv.req_pool_idx or 0, None)
        forget(req.kv)

    def free(self, req: StateRequest) -> None:  # type: ignore[override]
        """`ReqToTokenPool.free`; `StillOwned` while the request has a state. Spec: §4, H1."""
        row = req.kv.req_pool_idx
        if row is not None and self._row_fault(0, row) is None and holds_state(req.kv):
            raise StillOwned(
                f"free: the request of row {row} still has a state. Call free_mamba_cache first."
            )
        super().free(req)

    # For the model

    def mamba2_layer_index(self, layer_id: int) -> int:
        """The place of a layer in the state pool; `OutOfRange` without a state, `WrongDtype`.

        Spec: §4.
        """
        layer = checks.host_int(layer_id, "layer_id")
        if layer not in self.mamba_map:
            raise OutOfRange(f"layer {layer} has no state, {sorted(self.mamba_map)} have.")
        return self.mamba_map[layer]

    def host_pool_decls(self) -> list[HostPoolDecl]:
        """What a host tier mirrors of the states, siblings too. `Unsupported` without a pool."""
        return state_decls(self._require_pool("host_pool_decls"))

    def mamba2_layer_cache(self, layer_id: int) -> Any:
        """The states of one layer, as the pool gives them. Spec: §3, §4."""
        place = self.mamba2_layer_index(layer_id)
        return self._require_pool("mamba2_layer_cache").mamba2_layer_cache(place)
