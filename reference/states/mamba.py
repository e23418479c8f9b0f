"""Recurrent states, slot by slot (`pools_states_sizing.md` §3)."""

from collections.abc import Iterator, Sequence
from typing import Any

from reference.refusal import Fault, Refused, refuse_smallest
from reference.states.base import (
    Content,
    Entry,
    SlotState,
    pair_faults,
    reserved_faults,
    source_faults,
    target_faults,
)
from reference.states.windows import DraftWindows


class MambaPool:
    """Layers `layer_ids`, each with a conv for each of `conv_shapes` and a temporal state.

    A slot's content has a part for each, "conv0/3" being conv 0 of layer 3. `num_draft_tokens`
    gives rows 0..spec_state_size draft steps; their windows overlap unless `topk` is above 1 or
    the shapes forbid it (`overlap`). All is zero at first.
    """

    def __init__(
        self,
        size: int,
        *,
        layer_ids: Sequence[int],
        conv_shapes: Sequence[tuple[int, int]],
        temporal_shape: tuple[int, ...],
        conv_kernel: int,
        spec_state_size: int = 0,
        num_draft_tokens: int | None = None,
        topk: int | None = None,
        overlap: bool = True,
        slice_axis: int = 0,
        conv_bytes: int = 2,
        temporal_bytes: int = 4,
    ) -> None:
        self.size = size
        self.layer_ids = list(layer_ids)
        self.conv_shapes = list(conv_shapes)
        self.temporal_shape = tuple(temporal_shape)
        self.slice_axis = slice_axis
        self.bytes = conv_bytes, temporal_bytes
        self.slots = SlotState(size, self._zeros, enabled=True)
        self.siblings: list[SlotState] = []
        axis = self._window_axis(conv_kernel) if overlap and topk in (None, 1) else None
        self.num_draft_tokens = num_draft_tokens or 0
        self.num_rows = spec_state_size + 1 if self.num_draft_tokens else 0
        #: (layer, row) → its conv windows, and its temporal state step by step
        self.windows: dict[tuple[int, int], list[DraftWindows]] = {}
        self.draft_ssm: dict[tuple[int, int], list[list[int]]] = {}
        for at in self._rows():
            self.windows[at] = [
                DraftWindows(self.num_draft_tokens, shape, axis) for shape in self.conv_shapes
            ]
            self.draft_ssm[at] = [[0] * self._num_temporal() for _ in range(self.num_draft_tokens)]

    def _rows(self) -> Iterator[tuple[int, int]]:
        return ((layer, row) for layer in self.layer_ids for row in range(self.num_rows))

    def _num_temporal(self) -> int:
        found = 1 if self.temporal_shape else 0
        for length in self.temporal_shape:
            found *= length
        return found

    def _window_axis(self, conv_kernel: int) -> int:
        """Which axis of all convs is the window; the last one where both could be."""
        for axis in (1, 0):
            if all(
                (shape[1] == conv_kernel - 1 if axis else shape[0] == conv_kernel - 1)
                and (axis == 1 or shape[1] != conv_kernel - 1)
                for shape in self.conv_shapes
            ):
                return axis
        raise Refused("WrongShape")

    def _zeros(self) -> Content:
        found: Content = {}
        for layer in self.layer_ids:
            for at, (lines, columns) in enumerate(self.conv_shapes):
                found[f"conv{at}/{layer}"] = [0] * (lines * columns)
            found[f"temporal/{layer}"] = [0] * self._num_temporal()
        return found

    # --- siblings ---

    def register_slot_state(self, state: Any) -> None:
        """A state that follows every clear, copy and round trip; a disabled one does nothing."""
        if not isinstance(state, SlotState):
            raise Refused("WrongDtype")
        faults: list[Fault] = []
        if state.size != self.size:
            faults.append(("WrongShape", 0))
        if any(each is state for each in self.siblings):
            faults.append(("Duplicate", 0))
        refuse_smallest(faults)
        if state.enabled:
            self.siblings.append(state)

    # --- slots ---

    def clear_slots(self, indices: Sequence[int]) -> None:
        """Slots as if nobody had ever used them."""
        refuse_smallest(target_faults(indices, self.size))
        for each in (self.slots, *self.siblings):
            each.reset(indices)

    def copy_from(self, src_indices: Sequence[int], dst_indices: Sequence[int]) -> None:
        """The state of each source under its target."""
        if len(src_indices) != len(dst_indices):
            raise Refused("BadLengths")
        refuse_smallest(pair_faults(src_indices, dst_indices, self.size))
        for each in (self.slots, *self.siblings):
            each.copy(src_indices, dst_indices)

    def get_cpu_copy(self, indices: Sequence[int]) -> tuple[Any, ...]:
        """The state of slots; the siblings' beside it where there are some."""
        refuse_smallest(source_faults(indices, self.size) + reserved_faults(indices))
        own = self.slots.saved(indices)
        if not self.siblings:
            return (own,)
        return own, [each.saved(indices) for each in self.siblings]

    def load_cpu_copy(self, mamba_cache_cpu: tuple[Any, ...], indices: Sequence[int]) -> None:
        """What `get_cpu_copy` gave, under the same or other slots."""
        refuse_smallest(target_faults(indices, self.size) + reserved_faults(indices))
        if len(mamba_cache_cpu) != 1 + bool(self.siblings):
            raise Refused("WrongShape")
        parts = [mamba_cache_cpu[0], *(mamba_cache_cpu[1] if self.siblings else [])]
        states = [self.slots, *self.siblings]
        if len(parts) != len(states):
            raise Refused("WrongShape")
        pairs = list(zip(states, parts, strict=True))
        refuse_smallest(
            f for state, part in pairs for f in state.payload_faults(part, len(indices))
        )
        for state, part in pairs:
            state.restore(part, indices)

    # --- what a forward writes ---

    def write(self, place: int, slot: int, convs: Sequence[Sequence[int]], temporal: Any) -> None:
        """In the record of the layer at a place: `mamba2_layer_cache(place)`."""
        if not 0 <= place < len(self.layer_ids):
            raise Refused("OutOfRange")
        layer = self.layer_ids[place]
        content = dict(self.slots.slots[slot])
        for at, values in enumerate(convs):
            content[f"conv{at}/{layer}"] = list(values)
        content[f"temporal/{layer}"] = list(temporal)
        self.slots.slots[slot] = content

    def write_draft(
        self, place: int, row: int, step: int, convs: Sequence[Sequence[int]], temporal: Any
    ) -> None:
        """In the draft steps: `get_speculative_mamba2_params_all_layers()`."""
        if not self.num_draft_tokens:
            raise Refused("Unsupported")
        at = self.layer_ids[place], row
        for window, values in zip(self.windows[at], convs, strict=True):
            window.write(step, values)
        self.draft_ssm[at][step] = list(temporal)

    # --- reports ---

    def snapshot(self) -> dict[str, Any]:
        """All content: slots 1..size, the reserved one, the draft steps [place][row][step]."""
        return {
            "state": [dict(content) for content in self.slots.slots[1:]],
            "reserved": dict(self.slots.slots[0]),
            "draft": [
                [
                    [
                        [*(window.read(step) for window in self.windows[layer, row]), list(ssm)]
                        for step, ssm in enumerate(self.draft_ssm[layer, row])
                    ]
                    for row in range(self.num_rows)
                ]
                for layer in self.layer_ids
            ],
        }

    def get_kv_size_bytes(self) -> int:
        """Bytes of all values that are kept; siblings' aside."""
        conv_bytes, temporal_bytes = self.bytes
        convs = sum(lines * columns for lines, columns in self.conv_shapes)
        temporal = self._num_temporal()
        slots = (self.size + 1) * len(self.layer_ids)
        windows = sum(each.stored() for at in self._rows() for each in self.windows[at])
        steps = len(self.windows) * self.num_draft_tokens
        return (slots * convs + windows) * conv_bytes + (slots + steps) * temporal * temporal_bytes

    def entries(self) -> list[Entry]:
        """Of each transfer entry: name, bytes of a slot, shared axis, layer."""
        conv_bytes, temporal_bytes = self.bytes
        found: list[Entry] = [
            ("conv", lines * columns * conv_bytes, self.slice_axis, layer)
            for lines, columns in self.conv_shapes
            for layer in self.layer_ids
        ]
        if size := self._num_temporal() * temporal_bytes:
            found += [("temporal", size, 0, layer) for layer in self.layer_ids]
        return found + [each for sibling in self.siblings for each in sibling.entries()]
