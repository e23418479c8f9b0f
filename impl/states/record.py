"""What a request knows of its state: the fields of its record, read and set by the row pool.

Spec: `spec/pools_states_sizing.md` §4.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from impl import checks
from impl.errors import Fault, NotOwned, WrongDtype, WrongShape
from impl.rows import RequestKV

EMPTY = -1
"""Where a track buffer has no slot."""


class StateKV(RequestKV, Protocol):
    """The record of a request of a hybrid model; all but the slots are the host's."""

    #: the state's slot, a tensor of no dimension; None without one
    mamba_pool_idx: torch.Tensor | None
    #: slots that the state is tracked in, int64 [P], -1 where there is none; None without a buffer
    mamba_ping_pong_track_buffer: torch.Tensor | None
    #: where the buffer has no slot, so that nobody reads it back
    mamba_ping_pong_empty: list[bool] | None
    mamba_next_track_idx: int | None
    mamba_last_track_idx: int | None
    #: length whose state lies in the last and in the other place; None: no length that is known
    mamba_last_track_seqlen: int | None
    mamba_prev_track_seqlen: int | None
    #: where the first extend copies the state from, int64 [1]
    mamba_cow_src_index: torch.Tensor | None
    #: whether the first extend clears the state
    mamba_needs_clear: bool


class StateRequest(Protocol):
    """A request of a hybrid model."""

    @property
    def kv(self) -> StateKV: ...


class Slots(NamedTuple):
    """A request's slots on the host: 0 and -1 where there is none."""

    state: int
    tracks: list[int]

    def all(self) -> list[int]:
        """Those that there are."""
        return [*([self.state] if self.state else []), *(t for t in self.tracks if t != EMPTY)]


NOTHING = Slots(0, [])


def forget_buffer(kv: StateKV) -> None:
    """The request has no track buffer."""
    kv.mamba_ping_pong_track_buffer = None
    kv.mamba_ping_pong_empty = None
    kv.mamba_next_track_idx = None
    kv.mamba_last_track_idx = None
    kv.mamba_last_track_seqlen = None
    kv.mamba_prev_track_seqlen = None


def forget(kv: StateKV) -> None:
    """The request has no state, and nothing is planned for one."""
    kv.mamba_pool_idx = None
    kv.mamba_cow_src_index = None
    kv.mamba_needs_clear = False
    forget_buffer(kv)


def holds_state(kv: StateKV) -> bool:
    """Whether the request has any slot."""
    return kv.mamba_pool_idx is not None or kv.mamba_ping_pong_track_buffer is not None


def record_fault(index: int, kv: StateKV, width: int) -> Fault | None:
    """What host data says is wrong with a record whose buffers have `width` places."""
    slot, buffer, empty = (
        kv.mamba_pool_idx,
        kv.mamba_ping_pong_track_buffer,
        kv.mamba_ping_pong_empty,
    )
    for name, value, shape in (
        ("mamba_pool_idx", slot, ()),
        ("mamba_ping_pong_track_buffer", buffer, (width,)),
    ):
        if value is None:
            continue
        if not isinstance(value, torch.Tensor) or value.dtype not in checks.ID_DTYPES:
            return Fault(WrongDtype, index, f"{name} is no tensor of slots")
        if tuple(value.shape) != shape:
            return Fault(WrongShape, index, f"{name} has shape {tuple(value.shape)}, not {shape}")
    if buffer is not None and (empty is None or len(empty) != width):
        return Fault(WrongShape, index, f"mamba_ping_pong_empty is {empty}, {width} flags are due")
    if buffer is not None and slot is None:
        return Fault(NotOwned, index, "the request has a track buffer but no state")
    return None


def require_slot(value: Any, name: str, device: torch.device) -> None:
    """Raise unless `value` is a tensor of one slot, of no or of one dimension."""
    flat = value.reshape(1) if isinstance(value, torch.Tensor) and value.dim() == 0 else value
    checks.require_ids(flat, name, device)
    if flat.shape[0] != 1:
        raise WrongShape(f"{name} must be one slot, got {flat.shape[0]}.")
