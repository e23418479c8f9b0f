"""Rows of a tensor [layers, rows, …] set, moved and collected by their ids: the torch form.

Tensors come as words: whole rows of the widest integers that fit them, so that bytes are moved
whatever they mean. A row of `keep`, the padding, is written to by no one: a lane that names it as
its target does nothing. Spec: `spec/pools_states_sizing.md` §3, §5.
"""

from __future__ import annotations

import torch

_WIDTHS = (torch.int64, torch.int32, torch.int16, torch.uint8)


def words(tensor: torch.Tensor, rows_axis: int) -> torch.Tensor:
    """`tensor`, contiguous, as words [layers, rows, n]: the same memory.

    Its rows are axis `rows_axis`, 0 or 1; without layers there is one.
    """
    layers = tensor.shape[0] if rows_axis else 1
    row = tensor.shape[rows_axis + 1 :].numel()
    flat = tensor.view(layers, tensor.shape[rows_axis], row)
    size_bytes = flat.shape[2] * flat.element_size()
    width = next(each for each in _WIDTHS if size_bytes % each.itemsize == 0)
    return flat.view(width)


def word_of(value: int, dtype: torch.dtype, width: torch.dtype) -> int:
    """The word that a row of nothing but `value` is made of."""
    if not value:
        return 0
    return int(torch.tensor([value], dtype=dtype).repeat(8).view(width)[0])


def fill(rows: torch.Tensor, target: torch.Tensor, word: int, keep: int) -> None:
    """`rows[:, target] = word`."""
    kept = (target == keep)[None, :, None]
    rows.index_copy_(1, target, rows.index_select(1, target).masked_fill(~kept, word))


def move(rows: torch.Tensor, source: torch.Tensor, target: torch.Tensor, keep: int) -> None:
    """`rows[:, target[i]] = rows[:, source[i]]`, all read before any is written."""
    source = torch.where(target == keep, target, source)
    rows.index_copy_(1, target, rows.index_select(1, source))


def put(rows: torch.Tensor, packed: torch.Tensor, target: torch.Tensor, keep: int) -> None:
    """`rows[:, target[i], :n] = packed[:, i]`, packed [layers, k, n]; n may be less than a row."""
    kept = (target == keep)[None, :, None]
    part = rows[:, :, : packed.shape[2]]
    part.index_copy_(1, target, torch.where(kept, part.index_select(1, target), packed))


def collect(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """`rows[:, ids]`, in storage of its own."""
    return rows.index_select(1, ids)
