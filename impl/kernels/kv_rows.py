"""Rows of KV buffers written and moved by slots: the torch form.

A slot below `first`, the padding, negative ones included, is written to by no one. The kernels
stand in `device.kv_rows`. Spec: `spec/core.md` §7, §8, `spec/pools_states_sizing.md` §8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from impl.storage.buffers import KVBuffer

#: types that a pool may store, and values come in
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz)


# So few rows that views of them would cost more than the rows.
_FEW = 8


class Part(NamedTuple):
    """Values [n, …] of a pool's type, or to be converted to it, for n rows of a buffer."""

    buffer: KVBuffer
    values: torch.Tensor
    dtype: torch.dtype
    scale: torch.Tensor | float | None = None
    #: bytes of a row in front of the values
    offset: int = 0


def encoded(
    values: torch.Tensor, dtype: torch.dtype, scale: torch.Tensor | float | None
) -> torch.Tensor:
    """`values / scale` as `dtype`; the values themselves where that is theirs.

    The quotient is one of the values' type. Beyond the finite range of an fp8 type lies its
    largest value; NaN stays NaN.
    """
    if values.dtype == dtype:
        return values
    if values.dtype in FP8:
        values = values.to(torch.float32)
    if scale is not None:
        values = (values.to(torch.float32) / one(scale, values.device)).to(values.dtype)
    if dtype in FP8:
        most = torch.finfo(dtype).max
        values = values.clamp(-most, most)
    return values.to(dtype)


def one(scale: torch.Tensor | float, device: torch.device) -> torch.Tensor:
    """A scale as float32 [1] on `device`, without waiting for it."""
    if not isinstance(scale, torch.Tensor):
        return torch.full((1,), scale, dtype=torch.float32, device=device)
    return scale.reshape(1).to(device, torch.float32, non_blocking=True)


def words_like(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Values [n, w], contiguous in their rows, as words of the width of `rows`."""
    if not values.is_contiguous() or values.storage_offset() * values.itemsize % rows.itemsize:
        values = values.clone(memory_format=torch.contiguous_format)
    return values.view(rows.dtype)


def store(parts: Sequence[Part], target: torch.Tensor, first: int, end: int) -> None:
    """Write values[i] of every part to slot `target[i]`, int64 [n]; others than first..end-1 none.

    Without a look at the slots: what isn't written is zeros to slot 0, which holds nothing else.
    """
    live = (target >= first) & (target < end)
    target = target.where(live, 0)
    for part in parts:
        put(part, target, live)


def put(part: Part, target: torch.Tensor, live: torch.Tensor | None = None) -> None:
    """Write values[i] to slot `target[i]`, zeros where it isn't `live`."""
    values, tensor = part.values, part.buffer.tensor
    if (
        tensor is not None
        and live is None
        and target.shape[0] < _FEW
        and values.dtype is tensor.dtype
        and values.shape[1:] == tensor.shape[1:]
    ):
        tensor.index_put_((target,), values)
        return
    values = encoded(values, part.dtype, part.scale).flatten(1)
    buffer = part.buffer.part(part.offset, values.shape[1] * values.element_size())
    words = words_like(values, buffer.rows)
    if live is not None:
        words = words.masked_fill(~live[:, None], 0)
    buffer.scatter(target, words)


def move(
    buffers: Sequence[KVBuffer], source: torch.Tensor, target: torch.Tensor, first: int, end: int
) -> None:
    """In every buffer row `source[i]` under slot `target[i]`, all read before any is written."""
    live = (target >= first) & (target < end) & (source >= first) & (source < end)
    source, target = source.where(live, 0), target.where(live, 0)
    for buffer in buffers:
        buffer.scatter(target, buffer.gather(source))
