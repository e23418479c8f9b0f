"""The last tokens of each request (`pools_states_sizing.md` §5)."""

from collections.abc import Sequence
from typing import Any

from reference.refusal import Refused, refuse_smallest
from reference.states.base import Content, Entry, SlotState, source_faults, target_faults

#: the layer of a state that no layer of the model owns
NGRAM_LAYER_ID = 2**32 - 1
TOKEN_BYTES = 8


class NGramPool(SlotState):
    """A context of `context_len` tokens for each slot, end-of-sequence tokens at first.

    `draft[row][step]` are the contexts of draft steps; the last row is a padded lane's.
    """

    def __init__(
        self,
        size: int,
        context_len: int,
        eos_token_id: int,
        *,
        spec_state_size: int = 0,
        num_draft_tokens: int | None = None,
    ) -> None:
        self.context_len = context_len
        self.eos_token_id = eos_token_id
        super().__init__(size, self._ends, enabled=context_len > 0)
        steps = num_draft_tokens or 0
        self.last_row = spec_state_size
        rows = spec_state_size + 1 if self.enabled and steps else 0
        self.draft = [[[eos_token_id] * context_len for _ in range(steps)] for _ in range(rows)]

    def _ends(self) -> Content:
        return {"context": [self.eos_token_id] * self.context_len}

    def get_context(self, indices: Sequence[int]) -> list[list[int]]:
        """The contexts of slots; slot 0 may be read."""
        if not self.enabled:
            raise Refused("Unsupported")
        refuse_smallest(source_faults(indices, self.size))
        return [list(self.slots[slot]["context"]) for slot in indices]

    def set_context(self, indices: Sequence[int], context: Sequence[Sequence[int]]) -> None:
        """Write contexts; slot 0 is a padded lane."""
        if not self.enabled:
            return
        if len(indices) != len(context):
            raise Refused("BadLengths")
        refuse_smallest(target_faults(indices, self.size))
        for slot, tokens in zip(indices, context, strict=True):
            if slot != 0:
                self.slots[slot] = {"context": list(tokens)}

    def set_intermediate_context(
        self, context: Sequence[Sequence[Sequence[int]]], indices: Sequence[int] | None = None
    ) -> None:
        """Write the contexts of the first draft steps of rows, 0, 1, … unless they are named."""
        if not self.draft:
            return
        if any(len(steps) > len(self.draft[0]) for steps in context):
            raise Refused("WrongShape")
        if len(context) > len(self.draft) if indices is None else len(context) != len(indices):
            raise Refused("BadLengths")
        rows = range(len(context)) if indices is None else indices
        if indices is not None:
            refuse_smallest(target_faults(indices, self.last_row, self.last_row))
        for row, steps in zip(rows, context, strict=True):
            if indices is None or row != self.last_row:
                for step, tokens in enumerate(steps):
                    self.draft[row][step] = list(tokens)

    def snapshot(self) -> dict[str, Any]:
        """All content, with the draft steps [row][step]."""
        return {**super().snapshot(), "draft": [list(row) for row in self.draft]}

    def get_kv_size_bytes(self) -> int:
        """Bytes of all tokens."""
        contexts = len(self.slots) + sum(len(steps) for steps in self.draft)
        return contexts * self.context_len * TOKEN_BYTES

    def entries(self) -> list[Entry]:
        """Of each transfer entry: name, bytes of a slot, shared axis, layer."""
        size = self.context_len * TOKEN_BYTES
        return [("ple_ngram", size, None, NGRAM_LAYER_ID)] if self.enabled else []
