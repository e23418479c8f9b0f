"""KV of sparse latent attention: packed fp8 rows, and keys of an index beside them. Spec:
`spec/pools_states_sizing.md` §10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import (
    BadLengths,
    NotPageMultiple,
    OutOfRange,
    PoolError,
    Unsupported,
    WrongDtype,
)
from impl.kernels.kv_rows import Part, encoded
from impl.storage.buffers import grouped
from impl.storage.mha import layer_of
from impl.storage.mla import MLATokenToKVPool

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


class DSATokenToKVPool(MLATokenToKVPool):
    """`MLATokenToKVPool` with a page of index keys for each page of slots, in each layer.

    `kv_cache_dim`, where it isn't R + P and `dtype` is e4m3fn, makes rows packed: R fp8 numbers, a
    float32 scale for each 128 of them, P bfloat16 ones. A page of `index_k_with_scale_buffer`,
    uint8 [pages, page_size * 132], is page_size keys of 128 bytes and then their scales, float32.
    Layers that `skip_topk_layers` says have no keys. `size` and `index_buf_size`, the slots with
    keys, are whole pages. Raises as there, `NotPageMultiple`, `BadLengths`. Spec: §10.
    """

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: torch.dtype,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        layer_num: int,
        *,
        kv_cache_dim: int | None = None,
        index_head_dim: int = INDEX_HEAD_DIM,
        index_buf_size: int | None = None,
        skip_topk_layers: Sequence[bool] | None = None,
        **options: Any,
    ) -> None:
        keys = size if index_buf_size is None else index_buf_size
        skipped = [False] * layer_num if skip_topk_layers is None else list(skip_topk_layers)
        width = kv_lora_rank + qk_rope_head_dim if kv_cache_dim is None else kv_cache_dim
        self.is_packed = dtype == FP8 and width != kv_lora_rank + qk_rope_head_dim
        checks.raise_first(
            [
                *checks.collected(
                    lambda: checks.host_size(page_size, "page_size", least=1),
                    lambda: checks.host_size(keys, "index_buf_size"),
                ),
                *_layout_faults(size, keys, page_size, index_head_dim, skipped, layer_num),
            ]
        )
        if self.is_packed:
            due = calculate_mla_kv_cache_dim(kv_lora_rank, qk_rope_head_dim, dtype, is_dsa=True)
            if width != due:
                raise BadLengths(f"kv_cache_dim is {width}, a packed row has {due} bytes.")
        super().__init__(
            size, page_size, dtype, kv_lora_rank, qk_rope_head_dim, layer_num, **options
        )
        self.index_head_dim = index_head_dim
        self.index_buf_size = int(keys)
        self.skip_topk_layers = skipped
        num_pages = (self.index_buf_size + self.page_size + 1) // self.page_size
        page_bytes = self.page_size * (INDEX_HEAD_DIM + SCALE_BYTES)
        with self._regions.entered():
            self.index_k_with_scale_buffer = [
                torch.zeros(
                    (0 if skip else num_pages, page_bytes), dtype=torch.uint8, device=self.device
                )
                for skip in skipped
            ]
        self._add_index_buffers()

    def _row_width(self) -> int:
        packed = calculate_mla_kv_cache_dim(
            self.kv_lora_rank, self.qk_rope_head_dim, self.dtype, is_dsa=self.is_packed
        )
        return packed

    def _add_index_buffers(self) -> None:
        border = self.page_size * INDEX_HEAD_DIM
        for name, begin, end in (("index_k", 0, border), ("index_scale", border, None)):
            self.buffers += tuple(
                grouped(
                    name,
                    self.start_layer + local,
                    by_slot(pages[:, begin:end], self.page_size),
                )
                for local, pages in enumerate(self.index_k_with_scale_buffer)
                if pages.shape[0]
            )

    # Packed rows

    def _store_parts(
        self, call: str, local: int, loc: torch.Tensor, nope: torch.Tensor, rope: torch.Tensor
    ) -> None:
        if not self.is_packed:
            super()._store_parts(call, local, loc, nope, rope)
            return
        packed = torch.cat((*quantised(nope), as_bytes(rope.to(torch.bfloat16))), 1)
        self._door.store(call, [Part(self.buffers[local], packed, torch.uint8)], loc, None)

    def set_kv_buffer(self, *args: Any, **kwargs: Any) -> None:
        """As `MLATokenToKVPool`'s; `Unsupported` for packed rows. Spec: §10."""
        if self.is_packed:
            raise Unsupported("set_kv_buffer: rows are packed. Use set_mla_kv_buffer.")
        super().set_kv_buffer(*args, **kwargs)

    def get_mla_kv_buffer(
        self, layer: Any, loc: torch.Tensor, dst_dtype: torch.dtype | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As `MLATokenToKVPool`'s; packed rows times their scales, bfloat16 if not said. §10."""
        if not self.is_packed:
            return super().get_mla_kv_buffer(layer, loc, dst_dtype)
        call, rank = "get_mla_kv_buffer", self.kv_lora_rank
        checks.require_ids(loc, "loc", self.device)
        local = self._arrived(call, layer_of(layer, None))
        rows = self.kv_buffer[local][:, 0].index_select(0, loc.to(torch.int64))
        border = rank + rank // TILE * SCALE_BYTES
        tiles = in_tiles(rows[:, :rank].view(FP8).to(torch.float32))
        scales = rows[:, rank:border].contiguous().view(torch.float32)
        dtype = dst_dtype or torch.bfloat16
        nope = (tiles * scales[:, :, None]).flatten(1).to(dtype)[:, None]
        rope = rows[:, border:].contiguous().view(torch.bfloat16).to(dtype)[:, None]
        return nope, rope if self.qk_rope_head_dim else None

    # Index keys

    def set_index_k_scale_buffer(
        self, layer_id: int, loc_info: Any, index_k: torch.Tensor, index_k_scale: torch.Tensor
    ) -> None:
        """Index keys, fp8 or bytes [n, 128], and scales, float32 [n, 1], for slots int [n].

        Dropped slots and errors as `set_kv_buffer`; `Unsupported` for a layer without keys. O(n);
        one launch. Spec: §10.
        """
        call = "set_index_k_scale_buffer"
        loc = self._target(call, loc_info)
        local, n = self._with_keys(call, layer_id), loc.shape[0]
        faults: list[PoolError | None] = []
        for name, values, dtypes, width in (
            ("index_k", index_k, (FP8, torch.uint8), INDEX_HEAD_DIM),
            ("index_k_scale", index_k_scale, (torch.float32,), 1),
        ):
            if not isinstance(values, torch.Tensor) or values.dtype not in dtypes:
                faults.append(WrongDtype(f"{call}: {name} must be one of {dtypes}."))
            else:
                faults.append(self._place_fault(call, name, values, (n, width)))
        checks.raise_first(faults)
        layer = self.start_layer + local
        keys, scales = (
            next(each for each in self.buffers if (each.name, each.layer) == (name, layer))
            for name in ("index_k", "index_scale")
        )
        parts = [
            Part(buffer, as_bytes(values), torch.uint8)
            for buffer, values in ((keys, index_k), (scales, index_k_scale))
        ]
        self._door.store(call, parts, loc, None)

    def get_index_k_with_scale_buffer(self, layer_id: int) -> torch.Tensor:
        """Pages uint8 [pages, page_size * 132], once the layer has arrived. O(1). Spec: §10."""
        self._arrived("get_index_k_with_scale_buffer", layer_id)
        return self.index_k_with_scale_buffer[
            self._with_keys("get_index_k_with_scale_buffer", layer_id)
        ]

    def get_index_k_scale_buffer(
        self, layer_id: int, seq_lens: torch.Tensor, page_indices: torch.Tensor, seq_len_sum: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys uint8 [sum, 128] and scales uint8 [sum, 4] of requests of `seq_lens` tokens.

        `page_indices` int [requests, pages] are their pages, in order. Copies. O(sum). Spec: §10.
        """
        call = "get_index_k_scale_buffer"
        local = self._with_keys(call, layer_id)
        self._arrived(call, layer_id)
        pages = self.index_k_with_scale_buffer[local]
        requests = torch.repeat_interleave(seq_lens.to(torch.int64), output_size=seq_len_sum)
        ends = seq_lens.to(torch.int64).cumsum(0)
        position = torch.arange(seq_len_sum, device=self.device) - (ends - seq_lens)[requests]
        page = page_indices.to(torch.int64)[requests, position // self.page_size]
        at, border = position % self.page_size, self.page_size * INDEX_HEAD_DIM
        keys = by_slot(pages[:, :border], self.page_size)[page, at]
        return keys, by_slot(pages[:, border:], self.page_size)[page, at]

    def get_state_buf_infos(self) -> tuple[list[int], list[int], list[int]]:
        """Of each layer's index pages: address, bytes, bytes of a page; 0 where skipped. §10."""
        every = self.index_k_with_scale_buffer
        return (
            [each.data_ptr() for each in every],
            [each.nbytes for each in every],
            [each[0].nbytes if each.shape[0] else 0 for each in every],
        )

    def _with_keys(self, call: str, layer_id: Any) -> int:
        local = self._local(call, layer_id)
        if self.skip_topk_layers[local]:
            raise Unsupported(f"{call}: layer {layer_id} has no index keys.")
        return local

    def get_kv_size_bytes(self) -> int:
        """Bytes of rows and index pages. O(layers). Spec: §10, D3."""
        return self._bytes_of("latent") + sum(
            each.nbytes for each in self.index_k_with_scale_buffer
        )


def _layout_faults(
    size: Any, keys: Any, page_size: Any, index_head_dim: Any, skipped: Sequence[Any], layers: Any
) -> list[PoolError | None]:
    """What is wrong with the numbers of an index."""
    found: list[PoolError | None] = []
    if index_head_dim != INDEX_HEAD_DIM:
        found.append(OutOfRange(f"index_head_dim must be {INDEX_HEAD_DIM}, got {index_head_dim}."))
    if len(skipped) != layers:
        found.append(BadLengths(f"{len(skipped)} skip_topk_layers for {layers} layers."))
    numbers = [checks.int_or_none(each) for each in (size, keys, page_size)]
    if None not in numbers and page_size >= 1:
        for name, value in (("size", size), ("index_buf_size", keys)):
            if value % page_size:
                found.append(NotPageMultiple(f"{name} {value} isn't whole pages of {page_size}."))
        if keys < size:
            found.append(OutOfRange(f"index_buf_size {keys} is less than size {size}."))
    return found


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
