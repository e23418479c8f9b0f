"""Windows of short convolutions (`pools_states_sizing.md` §5)."""

from collections.abc import Sequence
from typing import Any

from reference.refusal import Refused
from reference.states.base import Content, Entry, SlotState


class ShortConvPool(SlotState):
    """Layers `layer_ids`, each with windows of `num_values` values; zeros at first.

    `draft[layer][row][step]` are the windows of draft steps, of rows 0..spec_state_size.
    """

    def __init__(
        self,
        size: int,
        num_values: int,
        layer_ids: Sequence[int],
        *,
        spec_state_size: int = 0,
        num_draft_tokens: int | None = None,
        item_bytes: int = 4,
    ) -> None:
        self.layer_ids = list(layer_ids)
        self.num_values = num_values
        self.item_bytes = item_bytes
        enabled = bool(self.layer_ids) and num_values > 0
        super().__init__(size, self._zeros, enabled=enabled)
        steps = num_draft_tokens or 0
        rows = spec_state_size + 1 if enabled and steps else 0
        self.draft = [
            [[[0] * num_values for _ in range(steps)] for _ in range(rows)] for _ in self.layer_ids
        ]

    def _zeros(self) -> Content:
        return {str(layer): [0] * self.num_values for layer in self.layer_ids}

    def write(self, layer_id: int, slot: int, values: Sequence[int]) -> None:
        """What a forward does in `layer_cache(layer_id)`."""
        if not self.enabled:
            raise Refused("Unsupported")
        if layer_id not in self.layer_ids:
            raise Refused("OutOfRange")
        self.slots[slot] = {**self.slots[slot], str(layer_id): list(values)}

    def write_draft(self, layer_id: int, row: int, step: int, values: Sequence[int]) -> None:
        """What a forward does in `layer_intermediate_cache(layer_id)`."""
        self.draft[self.layer_ids.index(layer_id)][row][step] = list(values)

    def snapshot(self) -> dict[str, Any]:
        """All content, with the draft steps [layer][row][step]."""
        return {**super().snapshot(), "draft": [[list(row) for row in rows] for rows in self.draft]}

    def get_kv_size_bytes(self) -> int:
        """Bytes of all values."""
        drafts = sum(len(steps) for rows in self.draft for steps in rows)
        slots = len(self.slots) * len(self.layer_ids)
        return (slots + drafts) * self.num_values * self.item_bytes

    def entries(self) -> list[Entry]:
        """Of each transfer entry: name, bytes of a slot, shared axis, layer."""
        size = self.num_values * self.item_bytes
        layers = self.layer_ids if self.enabled else []
        return [("ple_short_conv", size, None, layer) for layer in layers]
