"""Host copies of slots' rows, [layer][chunk][buffer], and what can be wrong with one.

Spec: `spec/pools_states_sizing.md` §8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl.errors import BadLengths, PoolError, WrongDevice, WrongDtype, WrongShape
from impl.storage.buffers import KVBuffer

#: tokens that are copied to the host at a time
CHUNK = 8192
HostCopy = list[list[list[torch.Tensor]]]


def copy_fault(
    copy: Any, layers: Sequence[Sequence[KVBuffer]], chunks: Sequence[torch.Tensor]
) -> PoolError | None:
    """What is wrong with a host copy as one of these buffers' rows."""
    if not isinstance(copy, (list, tuple)):
        return WrongDtype(f"load_cpu_copy: a copy is a list, got {type(copy).__name__}.")
    if len(copy) != len(layers):
        return WrongShape(f"load_cpu_copy: a copy of {len(copy)} layers, {len(layers)} are due.")
    due = [chunk.shape[0] for chunk in chunks]
    for of_layer, saved in zip(layers, copy, strict=True):
        if not _are_lists(saved) or not all(_are_lists(rows, torch.Tensor) for rows in saved):
            return WrongDtype("load_cpu_copy: layers are lists of chunks, those lists of tensors.")
        counts = [rows[0].shape[0] if rows and rows[0].dim() else 0 for rows in saved]
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


def _are_lists(value: Any, of: type | tuple[type, ...] = (list, tuple)) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, of) for each in value)


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
