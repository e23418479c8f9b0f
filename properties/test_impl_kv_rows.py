"""What pools of KV make rows of: tiles with scales, words, ids that are there."""

from __future__ import annotations

import pytest
import torch

from impl.storage.buffers import grouped
from impl.storage.door import there_or_first
from impl.storage.packed import TILE, quantised
from properties.test_impl_kv import E4M3, sparse


def test_bytes_of_packed_rows() -> None:
    """fp8 numbers, then scales, then bfloat16: each 128 numbers by their largest over 448."""
    pool = sparse()
    nope = torch.arange(512, dtype=torch.float32).reshape(1, 1, 512)
    rope = torch.ones(1, 1, 64)
    pool.set_mla_kv_buffer(1, torch.tensor([5]), nope, rope)
    row = pool.kv_buffer[1][5, 0]
    scales = row[512:528].clone().view(torch.float32)
    assert torch.equal(scales, torch.tensor([127.0, 255.0, 383.0, 511.0]) / 448)
    assert row[:512].view(E4M3)[[127, 255, 383, 511]].tolist() == [448.0] * 4
    assert row[528:].clone().view(torch.bfloat16).tolist() == [1.0] * 64
    found, tail = pool.get_mla_kv_buffer(1, torch.tensor([5]), torch.float32)
    assert tail is not None
    assert (found - nope).abs().max() <= 511 / 448 * 16  # half of fp8's widest step
    assert torch.equal(tail, rope)


def test_a_tile_of_zeros_is_zeros() -> None:
    """A tile without a largest number has the scale 0, and its numbers are zeros, not NaN."""
    values = torch.zeros(2, 2 * TILE)
    values[1, TILE:] = torch.linspace(-448, 448, TILE)
    codes, scales = quantised(values)
    assert scales.view(torch.float32).tolist() == [[0, 0], [0, 1]]
    assert not codes[0].any()
    assert not codes[1, :TILE].any()
    assert codes[1, TILE:].view(E4M3).float()[[0, -1]].tolist() == [-448, 448]


@pytest.mark.parametrize(
    ("row", "kept", "width"),
    [(8, 8, torch.int64), (12, 8, torch.int32), (12, 4, torch.int32), (6, 2, torch.int16),
     (8, 3, torch.uint8), (16, 8, torch.int64)],
)  # fmt: skip
def test_words_are_as_wide_as_every_step_allows(row: int, kept: int, width: torch.dtype) -> None:
    """Rows lie a whole number of words apart, in a group and between groups: four to a group."""
    raw = torch.arange(3 * 4 * row, dtype=torch.int64).to(torch.uint8).view(3, 4, row)
    buffer = grouped("k", 0, raw[:, :, :kept])
    assert buffer.rows.dtype == width
    found = buffer.gather(torch.tensor([5])).view(torch.uint8)
    assert found.tolist() == [raw[1, 1, :kept].tolist()]


def test_what_is_not_there_is_read_as_the_first() -> None:
    """Ids below 0 and from the end on are 0, the others as they were."""
    assert there_or_first(torch.tensor([-2, -1, 0, 1, 4, 5, 6]), 5).tolist() == [
        0,
        0,
        0,
        1,
        4,
        0,
        0,
    ]
