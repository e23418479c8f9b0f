"""Rows of sparse latent attention as bytes: fp8 numbers, their scales, rotary ones in bfloat16.

Spec: `spec/pools_states_sizing.md` §10.
"""

from __future__ import annotations

import torch

from impl import checks
from impl.errors import BadLengths
from impl.kernels.kv_rows import encoded

#: numbers of a latent that share a scale, and of an index key
TILE = INDEX_HEAD_DIM = 128
SCALE_BYTES = 4
#: rotary numbers of a packed row are bfloat16
ROPE_BYTES = 2
FP8 = torch.float8_e4m3fn


def calculate_mla_kv_cache_dim(
    kv_lora_rank: int, qk_rope_head_dim: int, dtype: torch.dtype, *, is_dsa: bool, raw: bool = False
) -> int:
    """Elements of a row: packed, in bytes, for fp8 e4m3fn of DSA unless a backend wants it `raw`.

    Raises `BadLengths` for a latent that isn't whole tiles of 128, `NegativeSize`, `WrongDtype`.
    O(1). Spec: §10.
    """
    rank = checks.host_size(kv_lora_rank, "kv_lora_rank", least=1)
    rope = checks.host_size(qk_rope_head_dim, "qk_rope_head_dim")
    if not is_dsa or raw or dtype != FP8:
        return rank + rope
    if rank % TILE:
        raise BadLengths(f"a packed latent is whole tiles of {TILE}, got {rank}.")
    return rank + rank // TILE * SCALE_BYTES + rope * ROPE_BYTES


def quantised(nope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes of fp8 numbers [n, R] and of their tiles' scales [n, R / 128 * 4]; zeros scale by 0."""
    tiles = in_tiles(nope.to(torch.float32))
    scales = tiles.abs().amax(2) / torch.finfo(FP8).max
    divisors = scales.where(scales > 0, 1.0)[:, :, None]
    codes = encoded(tiles / divisors, FP8, None)
    return as_bytes(codes.flatten(1)), as_bytes(scales)


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    """Values [n, w] as bytes [n, w * their size]."""
    if not values.numel():
        return values.new_empty(
            values.shape[0], values.shape[1] * values.itemsize, dtype=torch.uint8
        )
    return values.contiguous().view(torch.uint8)


def by_slot(pages: torch.Tensor, page_size: int) -> torch.Tensor:
    """Bytes [pages, n] of whole pages as [pages, page_size, n / page_size]; a view."""
    step = pages.shape[1] // page_size
    return pages.as_strided(
        (pages.shape[0], page_size, step), (pages.stride(0), step, 1), pages.storage_offset()
    )


def in_tiles(values: torch.Tensor) -> torch.Tensor:
    """Values [n, R] as [n, R / 128, 128]."""
    return values.reshape(values.shape[0], values.shape[1] // TILE, TILE)
