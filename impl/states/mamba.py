"""Recurrent state bytes: conv windows and temporal states under state slots.

A pool never knows which slots are live: `MambaSlotAllocator` does. Spec:
`spec/pools_states_sizing.md` §3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from impl import checks
from impl.errors import (
    Duplicate,
    OutOfRange,
    PoolError,
    Unsupported,
    WrongDevice,
    WrongDtype,
    WrongShape,
)
from impl.states import shapes
from impl.states.base import (
    SlotState,
    TransferEntry,
    from_host,
    payload_fault,
    plain_rows,
    slot_count_faults,
    to_host,
)
from impl.states.moves import PADDING_SLOT, Moves, Rows, rows_of
from impl.states.windows import DraftWindows

GIB = 2**30
#: conv and temporal come before the siblings in a host payload
OWN_PARTS = 2


@dataclass(frozen=True, kw_only=True)
class State:
    """All layers' tensors, or one layer's: `conv` [layers, size + 1, *shape] each, `temporal`."""

    conv: list[torch.Tensor]
    temporal: torch.Tensor

    def at_layer_idx(self, layer: int) -> State:
        """The record of one layer, on the same storage."""
        return State(conv=[each[layer] for each in self.conv], temporal=self.temporal[layer])


@dataclass(frozen=True, kw_only=True)
class SpeculativeState(State):
    """With draft steps: rows are those of a batch, the last one for padded lanes.

    `intermediate_ssm` [layers, spec_state_size + 1, D, *temporal]; `intermediate_conv_window`
    [layers, spec_state_size + 1, D, *shape] each, which may overlap from step to step.
    """

    intermediate_ssm: torch.Tensor
    intermediate_conv_window: list[torch.Tensor]

    def at_layer_idx(self, layer: int) -> SpeculativeState:
        """The record of one layer, on the same storage."""
        return SpeculativeState(
            conv=[each[layer] for each in self.conv],
            temporal=self.temporal[layer],
            intermediate_ssm=self.intermediate_ssm[layer],
            intermediate_conv_window=[each[layer] for each in self.intermediate_conv_window],
        )


class MambaPool:
    """States of slots 1..size of the recurrent layers `mamba_layer_ids`; slot 0 is padding.

    `cache_params` says what a layer keeps (`impl.states.shapes.StateParams`, or what has its
    fields). With `speculative_num_draft_tokens` D there are draft steps for `spec_state_size`
    rows of a batch and one more. Their conv windows overlap in memory where the draft is a chain
    (`speculative_eagle_topk` None or 1) and the shapes allow it. All is zero at first.

    Attributes: `size`, `device`, `mamba_layer_ids`, `num_mamba_layers`; `mamba_cache`, a `State`
    or `SpeculativeState`; `mem_usage`, GiB. Raises `NegativeSize`, `OutOfRange`, `Duplicate`,
    `WrongDtype`, `WrongShape`, `Unsupported`. O(bytes). Spec: §3.
    """

    def __init__(
        self,
        *,
        size: int,
        spec_state_size: int,
        cache_params: Any,
        mamba_layer_ids: Sequence[int],
        device: torch.device | str,
        speculative_num_draft_tokens: int | None = None,
        speculative_eagle_topk: int | None = None,
        backend: str = "auto",
        validate: bool = True,
    ) -> None:
        draft, topk = speculative_num_draft_tokens, speculative_eagle_topk
        checks.raise_first(
            checks.collected(
                lambda: checks.pool_size(size),
                lambda: checks.host_size(spec_state_size, "spec_state_size"),
                lambda: checks.layer_ids(mamba_layer_ids),
                lambda: checks.optional_size(draft, "speculative_num_draft_tokens", 1),
                lambda: checks.optional_size(topk, "speculative_eagle_topk", 1),
                lambda: shapes.require(cache_params),
            )
        )
        self.size = int(size)
        self.mamba_layer_ids = [int(layer) for layer in mamba_layer_ids]
        self.num_mamba_layers = len(self.mamba_layer_ids)
        self._params = cache_params
        shape, dtype = cache_params.shape, cache_params.dtype
        slots = (self.num_mamba_layers, self.size + 1)
        conv = [_zeros((*slots, *each), dtype.conv, device) for each in shape.conv]
        temporal = _zeros((*slots, *(shape.temporal or (0,))), dtype.temporal, device)
        self.device = temporal.device
        self._moves = Moves(
            self.size, PADDING_SLOT, device=self.device, backend=backend, validate=validate
        )
        self._rows = [rows_of(each, 1) for each in (*conv, temporal) if each.numel()]
        self._siblings: list[SlotState] = []
        self._windows: list[DraftWindows] = []
        self.mamba_cache: State = State(conv=conv, temporal=temporal)
        if draft is not None:
            rows = (self.num_mamba_layers, spec_state_size + 1)
            chain = topk is None or topk == 1
            overlap = chain and not cache_params.is_kda and not shape.disable_conv_window_dedup
            axis = shapes.window_axis(shape) if overlap else None
            self._windows = [
                DraftWindows(rows, draft, each, axis, dtype.conv, self.device)
                for each in shape.conv
            ]
            self.mamba_cache = SpeculativeState(
                conv=conv,
                temporal=temporal,
                intermediate_ssm=_zeros(
                    (*rows, draft, *temporal.shape[2:]), dtype.temporal, self.device
                ),
                intermediate_conv_window=[each.view for each in self._windows],
            )

    # Siblings

    def register_slot_state(self, state: SlotState) -> None:
        """Have a state follow every clear, copy and round trip; a disabled one is left out. §3.

        Raises `WrongDtype` for what is no `SlotState`, `WrongShape` for one of another number of
        slots, `WrongDevice`, `Duplicate` for one that is registered.
        """
        if not isinstance(state, SlotState):
            found = type(state).__name__
            raise WrongDtype(f"register_slot_state: {found} is no SlotState. Derive it from that.")
        errors: list[PoolError | None] = []
        if state.size != self.size:
            found = f"{type(state).__name__} has {state.size} slots, the pool {self.size}"
            errors.append(WrongShape(f"register_slot_state: {found}. Make them for one pool."))
        if state.device != self.device:
            found = f"{type(state).__name__} is on {state.device}, the pool on {self.device}"
            errors.append(WrongDevice(f"register_slot_state: {found}. Make it there."))
        if any(each is state for each in self._siblings):
            found = f"{type(state).__name__} is registered"
            errors.append(Duplicate(f"register_slot_state: {found}. Register it once."))
        checks.raise_first(errors)
        if state.enabled:
            self._siblings.append(state)

    # Slots

    def clear_slots(self, indices: torch.Tensor) -> None:
        """Slots int [k] as if nobody had ever used them, siblings included.

        Slot 0 is a padded lane: left as it is. Raises `OutOfRange`, `Duplicate`, `WrongDtype`,
        `WrongDevice`, `WrongShape`, and nothing is written then; with `backend="triton"` those of
        values later, see `check`. O(bytes of the slots); one launch for each tensor. Spec: §3.
        """
        self._moves.reset("clear_slots", self._all_rows(), indices)

    def copy_from(self, src_indices: torch.Tensor, dst_indices: torch.Tensor) -> None:
        """The state of slots src int [k] under slots dst int [k] too, siblings included.

        A source may stand there several times. Slot 0 as dst is a padded lane. Raises
        `Reserved` for slot 0 as src of another, `Duplicate` for a dst that stands there twice or
        is a src as well, `BadLengths`, and what `clear_slots` raises. O(bytes of the slots); one
        launch for each tensor. Spec: §3.
        """
        self._moves.copy("copy_from", self._all_rows(), src_indices, dst_indices)

    def _all_rows(self) -> list[Rows]:
        """Pool and siblings: what is one slot's."""
        return self._rows + [rows for each in self._siblings for rows in each._slot_rows()]

    def get_cpu_copy(self, indices: torch.Tensor) -> tuple[Any, ...]:
        """The state of slots int [k] on the host: (convs, temporal), siblings' third if any.

        Storage of its own. Waits for the device. Raises `OutOfRange`, `Reserved` for slot 0,
        `WrongDtype`, `WrongDevice`, `WrongShape`. O(bytes of the slots). Spec: §3.
        """
        self._moves.require_held("get_cpu_copy", indices, once=False)
        conv = [to_host(each, indices, 1) for each in self.mamba_cache.conv]
        own = conv, to_host(self.mamba_cache.temporal, indices, 1)
        if not self._siblings:
            return own
        return (*own, [each._saved(indices) for each in self._siblings])

    def load_cpu_copy(self, mamba_cache_cpu: Any, indices: torch.Tensor) -> None:
        """What `get_cpu_copy` gave, under the same or other slots int [k]; waits for the device.

        Raises `OutOfRange`, `Reserved`, `Duplicate`, and for a payload that isn't this pool's
        `BadLengths`, `WrongDtype`, `WrongDevice`, `WrongShape`, before anything is written.
        O(bytes of the slots). Spec: §3.
        """
        slots = self._moves.require_held("load_cpu_copy", indices, once=True)
        checks.raise_first(self._payload_faults(mamba_cache_cpu, len(slots)))
        conv, temporal, *others = mamba_cache_cpu
        for tensor, data in zip(self.mamba_cache.conv, conv, strict=True):
            from_host(tensor, data, indices, 1)
        from_host(self.mamba_cache.temporal, temporal, indices, 1)
        for sibling, data in zip(self._siblings, *(others or [[]]), strict=True):
            sibling._restore(data, indices)

    def _payload_faults(self, payload: Any, count: int) -> list[PoolError | None]:
        parts = OWN_PARTS + bool(self._siblings)
        if not isinstance(payload, (tuple, list)):
            return [WrongDtype(f"load_cpu_copy: a payload is a tuple, got {type(payload)}.")]
        if len(payload) != parts:
            found = f"a payload of {len(payload)} parts, {parts} are due"
            return [WrongShape(f"load_cpu_copy: {found}. Save it behind the same registrations.")]
        conv, temporal, *others = payload
        (siblings,) = others or [[]]
        for name, given, due in (
            ("convs", conv, self.mamba_cache.conv),
            ("siblings", siblings, self._siblings),
        ):
            if not isinstance(given, (tuple, list)) or len(given) != len(due):
                return [WrongShape(f"load_cpu_copy: {len(due)} {name} are due, got {given!r:.60}.")]
        faults = [
            payload_fault("conv", data, tensor, 1, count)
            for data, tensor in zip(conv, self.mamba_cache.conv, strict=True)
        ]
        faults.append(payload_fault("temporal", temporal, self.mamba_cache.temporal, 1, count))
        for sibling, data in zip(self._siblings, siblings, strict=True):
            faults += sibling._payload_faults(data, count)
        return faults

    # Views

    def mamba2_layer_cache(self, layer_id: int) -> State:
        """The record of a layer by its place in `mamba_layer_ids`, the pool's own storage. O(1).

        Raises `OutOfRange`, `WrongDtype`. Spec: §3.
        """
        layer = checks.host_int(layer_id, "layer_id")
        if not 0 <= layer < self.num_mamba_layers:
            found = f"layer {layer} of {self.num_mamba_layers}"
            raise OutOfRange(f"mamba2_layer_cache: there is no {found}. Give its place.")
        return self.mamba_cache.at_layer_idx(layer)

    def get_speculative_mamba2_params_all_layers(self) -> SpeculativeState:
        """The record of all layers; `Unsupported` without draft steps. O(1). Spec: §3."""
        if not isinstance(self.mamba_cache, SpeculativeState):
            raise Unsupported(
                "the pool has no draft steps. Make it with speculative_num_draft_tokens."
            )
        return self.mamba_cache

    # Reports

    def get_kv_size_bytes(self) -> int:
        """Bytes of the pool's own tensors; overlapping windows count once. O(1). Spec: §3."""
        return sum(each.nbytes for each in self._own_tensors())

    @property
    def mem_usage(self) -> float:
        """`get_kv_size_bytes` in GiB."""
        return self.get_kv_size_bytes() / GIB

    def _own_tensors(self) -> list[torch.Tensor]:
        found = [*self.mamba_cache.conv, self.mamba_cache.temporal]
        if isinstance(self.mamba_cache, SpeculativeState):
            found += [self.mamba_cache.intermediate_ssm, *(w.storage for w in self._windows)]
        return found

    def iter_transfer_state_entries(self) -> Iterator[TransferEntry]:
        """What a transfer moves: convs, temporal, siblings, each layer by layer. Spec: §3."""
        axis = self._params.shape.conv_slice_axis
        named = [("conv", each, axis) for each in self.mamba_cache.conv]
        for name, tensor, slice_axis in (*named, ("temporal", self.mamba_cache.temporal, 0)):
            if tensor.numel():
                for index, layer in enumerate(self.mamba_layer_ids):
                    yield TransferEntry(name, tensor[index], slice_axis, layer)
        for sibling in self._siblings:
            yield from sibling.iter_transfer_state_entries()

    def get_contiguous_buf_infos(self) -> tuple[list[int], list[int], list[int]]:
        """Of each entry: address, bytes, bytes of a slot. O(entries). Spec: §3."""
        tensors = [entry.tensor for entry in self.iter_transfer_state_entries()]
        return (
            [each.data_ptr() for each in tensors],
            [each.nbytes for each in tensors],
            [each[0].nbytes for each in tensors],
        )

    def get_state_dim_per_tensor(self) -> list[int]:
        """Of each entry the length of the axis that ranks share; 0 where none is. Spec: §3."""
        return [
            0 if each.slice_axis is None else each.tensor.shape[1 + each.slice_axis]
            for each in self.iter_transfer_state_entries()
        ]

    def get_state_layer_ids(self) -> list[int]:
        """Of each entry the global layer id. Spec: §3."""
        return [each.layer_id for each in self.iter_transfer_state_entries()]

    def get_state_slice_outer_counts(self) -> list[int]:
        """Of each entry the pieces of a slot before the shared axis. Spec: §3."""
        return [
            math.prod(each.tensor.shape[1 : 1 + (each.slice_axis or 0)])
            for each in self.iter_transfer_state_entries()
        ]

    def get_state_conv_shard_groups(self) -> list[list[int] | None]:
        """Of each conv entry the blocks of its shared axis, where it has some. Spec: §3."""
        groups = self._params.shape.conv_shard_groups
        return [
            list(groups) if each.name == "conv" and groups is not None else None
            for each in self.iter_transfer_state_entries()
        ]

    # Faults and audits

    def check(self) -> None:
        """Wait for all calls so far, and raise the first fault of theirs."""
        self._moves.settle()

    def recover(self) -> None:
        """Go on behind a fault: its call, and those after it, have done nothing."""
        self._moves.recover()

    def snapshot(self) -> dict[str, Any]:
        """All content as plain Python, siblings' included, a list for each row. O(bytes)."""
        self.check()
        cache = self.mamba_cache
        found: dict[str, Any] = {
            "size": self.size,
            "conv": [plain_rows(each) for each in cache.conv],
            "temporal": plain_rows(cache.temporal),
        }
        if isinstance(cache, SpeculativeState):
            windows = cache.intermediate_conv_window
            found["draft_conv"] = [each.flatten(3).tolist() for each in windows]
            found["draft_ssm"] = cache.intermediate_ssm.flatten(3).tolist()
        return {**found, "siblings": [each.snapshot() for each in self._siblings]}

    def audit(self) -> list[str]:
        """What is wrong by the pool's own account: a line each, [] when healthy. O(slots)."""
        self.check()
        own = [*self.mamba_cache.conv, self.mamba_cache.temporal]
        found = self._moves.audit() + slot_count_faults("MambaPool", own, 1, self.size)
        for each in self._windows:
            found += each.audit()
        return [line for each in self._siblings for line in each.audit()] + found


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)
