"""The windows of short convolutions, a sibling of the recurrent states.

Spec: `spec/pools_states_sizing.md` §5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import OutOfRange, Unsupported, WrongDtype, WrongShape
from impl.states.base import SlotState, TransferEntry
from impl.states.moves import Rows, rows_of


class ShortConvPool(SlotState):
    """`conv_state` [layers, size + 1, *state_shape] of `dtype`, zeros.

    Disabled without layers or without a shape. With `speculative_num_draft_tokens` D also
    `intermediate_conv_state` [layers, spec_state_size + 1, D, *state_shape]. Layers are named by
    their global ids. Raises `NegativeSize`, `OutOfRange`, `Duplicate`, `WrongShape`,
    `WrongDtype`. O(bytes). §5.
    """

    def __init__(
        self,
        *,
        size: int,
        state_shape: tuple[int, ...] | None,
        layer_ids: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | str,
        spec_state_size: int = 0,
        speculative_num_draft_tokens: int | None = None,
        backend: str = "auto",
        validate: bool = True,
    ) -> None:
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(spec_state_size, "spec_state_size"),
                lambda: checks.optional_size(
                    speculative_num_draft_tokens, "speculative_num_draft_tokens", 1
                ),
                lambda: checks.layer_ids(layer_ids),
                lambda: _require_shape(state_shape),
                lambda: _require_dtype(dtype),
            )
        )
        self._prepare(size, device, backend=backend, validate=validate)
        self.layer_map = {int(layer): index for index, layer in enumerate(layer_ids)}
        self.conv_state: torch.Tensor | None = None
        self.intermediate_conv_state: torch.Tensor | None = None
        self._rows: tuple[Rows, ...] = ()
        if not layer_ids or state_shape is None:
            return
        kind: dict[str, Any] = {"dtype": dtype, "device": self.device}
        layers = len(self.layer_map)
        self.conv_state = torch.zeros((layers, self.size + 1, *state_shape), **kind)
        self._rows = (rows_of(self.conv_state, 1),)
        if speculative_num_draft_tokens is not None:
            steps = (spec_state_size + 1, speculative_num_draft_tokens)
            self.intermediate_conv_state = torch.zeros((layers, *steps, *state_shape), **kind)

    @property
    def enabled(self) -> bool:
        return self.conv_state is not None

    def _tensors(self) -> Sequence[torch.Tensor]:
        return () if self.conv_state is None else (self.conv_state,)

    def _slot_rows(self) -> Sequence[Rows]:
        return self._rows

    def _axis(self) -> int:
        return 1

    def _all_tensors(self) -> Sequence[torch.Tensor]:
        return [t for t in (self.conv_state, self.intermediate_conv_state) if t is not None]

    def layer_cache(self, layer_id: int) -> torch.Tensor:
        """The windows [size + 1, *state_shape] of a layer, the pool's own storage. O(1). §5.

        Raises `Unsupported` where the pool is disabled, `OutOfRange`, `WrongDtype`.
        """
        if self.conv_state is None:
            raise Unsupported("layer_cache: the pool is disabled. It was made without layers.")
        return self.conv_state[self._index(layer_id)]

    def layer_intermediate_cache(self, layer_id: int) -> torch.Tensor | None:
        """Draft windows [spec_state_size + 1, D, *state_shape] of a layer; None without. §5."""
        if self.intermediate_conv_state is None:
            return None
        return self.intermediate_conv_state[self._index(layer_id)]

    def _index(self, layer_id: int) -> int:
        layer = checks.host_int(layer_id, "layer_id")
        if layer not in self.layer_map:
            raise OutOfRange(f"layer {layer} is none of {list(self.layer_map)}. Use global ids.")
        return self.layer_map[layer]

    def clear(self) -> None:
        """All slots as if nobody had used them; draft steps stay. Never raises. O(bytes). §5."""
        self._moves.forget()
        if self.conv_state is not None:
            self.conv_state.zero_()

    def iter_transfer_state_entries(self) -> Iterator[TransferEntry]:
        if self.conv_state is not None:
            for layer, index in self.layer_map.items():
                yield TransferEntry("ple_short_conv", self.conv_state[index], None, layer)


def _require_shape(shape: Any) -> None:
    if shape is not None and (len(shape) != 2 or min(shape) < 1):
        raise WrongShape(f"state_shape has two axes of at least 1, got {shape}.")


def _require_dtype(dtype: Any) -> None:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise WrongDtype(f"dtype must be a floating point type, got {dtype}.")
