"""What is wrong with host copies that somebody gives back: found before a byte is written.

Spec: `spec/pools_states_sizing.md` §8, §12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl.errors import BadLengths, PoolError, WrongDevice, WrongDtype, WrongShape
from impl.storage.buffers import KVBuffer


def copy_fault(
    copy: Any, layers: Sequence[Sequence[KVBuffer]], chunks: Sequence[torch.Tensor]
) -> PoolError | None:
    """What is wrong with a host copy as one of these buffers' rows."""
    if not isinstance(copy, (list, tuple)):
        return WrongDtype(f"load_cpu_copy: a copy is a list, got {type(copy).__name__}.")
    if len(copy) != len(layers):
        return WrongShape(f"load_cpu_copy: a copy of {len(copy)} layers, {len(layers)} are due.")
    if not all(_is_layer(saved) for saved in copy):
        return WrongDtype("load_cpu_copy: a layer of a copy is chunks, lists of tensors of rows.")
    due = [chunk.shape[0] for chunk in chunks]
    for of_layer, saved in zip(layers, copy, strict=True):
        counts = [rows[0].shape[0] if rows else 0 for rows in saved]
        if of_layer and counts != due:
            found = f"a copy of {sum(counts)} slots for {sum(due)}"
            return BadLengths(f"load_cpu_copy: {found}. Pair them.")
        for rows, count in zip(saved, due, strict=False):
            if len(rows) != len(of_layer):
                found = f"a copy of {len(rows)} buffers, {len(of_layer)} are due"
                return WrongShape(f"load_cpu_copy: {found}.")
            for words, buffer in zip(rows, of_layer, strict=True):
                fault = _words_fault(words, buffer, count)
                if fault is not None:
                    return fault
    return None


def _is_layer(saved: Any) -> bool:
    """Whether a layer of a copy is made of what layers are made of."""
    lists = (list, tuple)
    return isinstance(saved, lists) and all(
        isinstance(rows, lists)
        and all(isinstance(each, torch.Tensor) and each.dim() for each in rows)
        for rows in saved
    )


def _words_fault(words: torch.Tensor, buffer: KVBuffer, count: int) -> PoolError | None:
    name = f"load_cpu_copy: {buffer.name} of layer {buffer.layer}"
    if words.dtype != buffer.rows.dtype:
        return WrongDtype(f"{name}: {buffer.rows.dtype} is due. Load what get_cpu_copy gave.")
    if words.device.type != "cpu":
        return WrongDevice(f"{name}: copies are on the host, this one is on {words.device}.")
    due = (count, buffer.rows.shape[2])
    if words.shape != due:
        return WrongShape(f"{name}: words {due} are due, got {tuple(words.shape)}.")
    return None


def checked_mask(call: str, mask: Any, slots: torch.Tensor) -> torch.Tensor:
    """The slots whose windows a copy has; raises unless `mask` says of each whether it has."""
    if not isinstance(mask, torch.Tensor) or mask.dtype is not torch.bool:
        raise WrongDtype(f"{call}: swa_mask must be a tensor of bools. Load what it gave.")
    if mask.shape != slots.shape:
        raise BadLengths(f"{call}: a mask of {mask.numel()} slots for {slots.shape[0]}.")
    return slots[mask.to(slots.device)]
