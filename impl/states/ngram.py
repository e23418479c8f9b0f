"""The last tokens of each request, a sibling of the recurrent states.

Spec: `spec/pools_states_sizing.md` §5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import BadLengths, PoolError, Unsupported, WrongDevice, WrongDtype, WrongShape
from impl.kernels.slot_moves import words
from impl.states.base import SlotState, TransferEntry
from impl.states.moves import Moves, Rows, rows_of

#: the layer of a state that no layer of the model owns, the largest of 32 bits
NGRAM_LAYER_ID = 2**32 - 1


class NGramPool(SlotState):
    """`context` int64 [size + 1, context_len], filled with `eos_token_id`.

    Disabled with a `context_len` of 0 or less. With `speculative_num_draft_tokens` D also
    `intermediate_context` [spec_state_size + 1, D, context_len]; its last row takes what is
    padded. Raises `NegativeSize`, `OutOfRange`, `WrongDtype`. O(bytes). §5.
    """

    def __init__(
        self,
        *,
        size: int,
        context_len: int,
        eos_token_id: int,
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
                lambda: checks.host_int(context_len, "context_len"),
                lambda: checks.host_int(eos_token_id, "eos_token_id"),
            )
        )
        options: dict[str, Any] = {"backend": backend, "validate": validate}
        self._prepare(size, device, **options)
        self.context_len, self.eos_token_id = int(context_len), int(eos_token_id)
        self.context: torch.Tensor | None = None
        self.intermediate_context: torch.Tensor | None = None
        self._rows: tuple[Rows, ...] = ()
        if context_len <= 0:
            return
        shape = (self.size + 1, self.context_len)
        self.context = self._filled(*shape)
        self._rows = (rows_of(self.context, 0, self.eos_token_id),)
        if speculative_num_draft_tokens is not None:
            steps = (spec_state_size + 1, int(speculative_num_draft_tokens), self.context_len)
            self.intermediate_context = self._filled(*steps)
            self._draft_rows = rows_of(self.intermediate_context, 0)
            self._draft_moves = Moves(
                spec_state_size, spec_state_size, device=self.device, **options
            )

    def _filled(self, *shape: int) -> torch.Tensor:
        return torch.full(shape, self.eos_token_id, dtype=torch.int64, device=self.device)

    @property
    def enabled(self) -> bool:
        return self.context is not None

    def _tensors(self) -> Sequence[torch.Tensor]:
        return () if self.context is None else (self.context,)

    def _slot_rows(self) -> Sequence[Rows]:
        return self._rows

    def _axis(self) -> int:
        return 0

    def _all_tensors(self) -> Sequence[torch.Tensor]:
        return [t for t in (self.context, self.intermediate_context) if t is not None]

    def get_context(self, indices: torch.Tensor) -> torch.Tensor:
        """The contexts int64 [k, context_len] of slots, storage of their own. O(k). §5.

        Slot 0 may be read. Raises `Unsupported` where the pool is disabled, `OutOfRange`.
        """
        if self.context is None:
            raise Unsupported("get_context: the pool is disabled. It was made without a context.")
        return self._moves.collect("get_context", self._rows[0], indices)[0]

    def set_context(self, indices: torch.Tensor, context: torch.Tensor) -> None:
        """Write int contexts [k, context_len] of slots; slot 0 is a padded lane. O(k). §5.

        Nothing where the pool is disabled. Raises `OutOfRange`, `Duplicate`, `BadLengths`,
        `WrongDtype`, `WrongDevice`, `WrongShape`.
        """
        if self.context is None:
            return
        checks.raise_first(
            [
                checks.ids_fault(indices, "indices", self.device),
                self._context_fault(context, "context", (self.context_len,), indices),
            ]
        )
        packed = words(context.to(torch.int64).contiguous(), 0)
        self._moves.put("set_context", self._rows[0], packed, indices)

    def set_intermediate_context(
        self, context: torch.Tensor, indices: torch.Tensor | None = None
    ) -> None:
        """Write int contexts [k, d, context_len] of the first d draft steps of rows. O(k * d). §5.

        `indices` name the rows, 0..spec_state_size, the last of which is a padded lane's; without
        they are 0..k-1. Nothing where the pool is disabled or has no draft steps. Raises
        `OutOfRange`, `Duplicate`, `BadLengths`, `WrongDtype`, `WrongDevice`, `WrongShape`.
        """
        if self.intermediate_context is None:
            return
        rows, steps, _ = self.intermediate_context.shape
        errors = [self._context_fault(context, "context", (-1, self.context_len), indices)]
        if not any(errors) and context.shape[1] > steps:
            errors = [WrongShape(f"context has {context.shape[1]} draft steps, {steps} are there.")]
        if indices is not None:
            errors.append(checks.ids_fault(indices, "indices", self.device))
        elif not any(errors) and context.shape[0] > rows:
            errors = [BadLengths(f"context has {context.shape[0]} rows, {rows} are there.")]
        checks.raise_first(errors)
        if indices is None:
            self._draft_moves.enter()
            self.intermediate_context[: context.shape[0], : context.shape[1]] = context
        else:
            packed = words(context.to(torch.int64).contiguous(), 0)
            self._draft_moves.put("set_intermediate_context", self._draft_rows, packed, indices)

    def _context_fault(
        self, context: Any, name: str, row: tuple[int, ...], indices: Any
    ) -> PoolError | None:
        """What is wrong with contexts of this shape each, -1 being any length."""
        if not isinstance(context, torch.Tensor) or context.dtype not in checks.ID_DTYPES:
            return WrongDtype(f"{name} must be an int32 or int64 tensor.")
        if context.device != self.device:
            return WrongDevice(f"{name} must be on {self.device}, got {context.device}.")
        shape = tuple(context.shape)
        fits = len(shape) == len(row) + 1 and all(
            due in (-1, found) for due, found in zip(row, shape[1:], strict=True)
        )
        if not fits:
            return WrongShape(f"{name} has shape {shape}, rows of {row} are due.")
        if checks.is_ids(indices, self.device) and indices.shape[0] != shape[0]:
            return BadLengths(f"{name} has {shape[0]} rows for {indices.shape[0]} indices.")
        return None

    def check(self) -> None:
        super().check()
        if self.intermediate_context is not None:
            self._draft_moves.settle()

    def recover(self) -> None:
        super().recover()
        if self.intermediate_context is not None:
            self._draft_moves.recover()

    def clear(self) -> None:
        """All slots as if nobody had used them; draft steps stay. Never raises. O(bytes). §5."""
        self._moves.forget()
        if self.context is not None:
            self.context.fill_(self.eos_token_id)

    def iter_transfer_state_entries(self) -> Iterator[TransferEntry]:
        if self.context is not None:
            yield TransferEntry("ple_ngram", self.context, None, NGRAM_LAYER_ID)
