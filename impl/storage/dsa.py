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
    WrongShape,
)
from impl.kernels.kv_rows import Part
from impl.storage.buffers import grouped
from impl.storage.door import there_or_first
from impl.storage.mla import MLATokenToKVPool
from impl.storage.packed import (
    FP8,
    INDEX_HEAD_DIM,
    SCALE_BYTES,
    TILE,
    as_bytes,
    by_slot,
    calculate_mla_kv_cache_dim,
    in_tiles,
    quantised,
)


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
        layers = checks.int_or_none(layer_num) or 0
        skipped = [False] * layers if skip_topk_layers is None else skip_topk_layers
        checks.raise_first(
            [
                *checks.collected(
                    lambda: checks.host_size(size, "size"),
                    lambda: checks.host_size(page_size, "page_size", least=1),
                    lambda: checks.host_size(layer_num, "layer_num"),
                    lambda: checks.host_size(kv_lora_rank, "kv_lora_rank", least=1),
                    lambda: checks.host_size(qk_rope_head_dim, "qk_rope_head_dim"),
                    lambda: checks.optional_size(kv_cache_dim, "kv_cache_dim"),
                    lambda: checks.host_size(keys, "index_buf_size"),
                    lambda: checks.host_int(index_head_dim, "index_head_dim"),
                    lambda: checks.flags(skipped, "skip_topk_layers"),
                ),
                *_layout_faults(size, keys, page_size, index_head_dim, skipped, layer_num),
            ]
        )
        width = kv_lora_rank + qk_rope_head_dim if kv_cache_dim is None else kv_cache_dim
        self.is_packed = dtype == FP8 and width != kv_lora_rank + qk_rope_head_dim
        if self.is_packed:
            due = calculate_mla_kv_cache_dim(kv_lora_rank, qk_rope_head_dim, dtype, is_dsa=True)
            if width != due:
                raise BadLengths(f"kv_cache_dim is {width}, a packed row has {due} bytes.")
        super().__init__(
            size, page_size, dtype, kv_lora_rank, qk_rope_head_dim, layer_num, **options
        )
        self.index_head_dim = index_head_dim
        self.index_buf_size = int(keys)
        self.skip_topk_layers = list(skipped)
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
        rows = self._rows_of(call, layer, loc, dst_dtype)[:, 0]
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

        `page_indices` int [requests, pages] are their pages, in order. Copies. Raises `BadLengths`,
        `OutOfRange`, `WrongDtype`, `WrongDevice`, `WrongShape`; numbers in tensors are looked at on
        a CPU alone, elsewhere pages that aren't there are read as the first one. O(sum). Spec: §10.
        """
        call = "get_index_k_scale_buffer"
        local = self._with_keys(call, layer_id)
        total = checks.host_size(seq_len_sum, "seq_len_sum")
        checks.require_ids(seq_lens, "seq_lens", self.device)
        if not isinstance(page_indices, torch.Tensor) or page_indices.dim() != 2:
            raise WrongShape(f"{call}: page_indices must be [requests, pages].")
        checks.require_ids(page_indices.reshape(-1), "page_indices", self.device)
        if page_indices.shape[0] != seq_lens.shape[0]:
            found = f"{page_indices.shape[0]} lines of pages for {seq_lens.shape[0]} requests"
            raise BadLengths(f"{call}: {found}. Give one for each.")
        if self.device.type == "cpu":
            self._require_pages(call, seq_lens.tolist(), page_indices, total)
        self._arrived(call, layer_id)
        pages = self.index_k_with_scale_buffer[local]
        if not total:
            return pages.new_empty(0, INDEX_HEAD_DIM), pages.new_empty(0, SCALE_BYTES)
        every = torch.arange(total, device=self.device)
        ends = seq_lens.to(torch.int64).cumsum(0)
        requests = torch.searchsorted(ends, every, right=True).clamp(max=ends.shape[0] - 1)
        position = every - (ends - seq_lens)[requests]
        column = (position // self.page_size).clamp(0, page_indices.shape[1] - 1)
        page = there_or_first(page_indices.to(torch.int64)[requests, column], pages.shape[0])
        at, border = position % self.page_size, self.page_size * INDEX_HEAD_DIM
        keys = by_slot(pages[:, :border], self.page_size)[page, at]
        return keys, by_slot(pages[:, border:], self.page_size)[page, at]

    def _require_pages(
        self, call: str, lens: list[int], page_indices: torch.Tensor, total: int
    ) -> None:
        """Raise unless requests of these lengths have the pages that they need."""
        if min(lens, default=0) < 0 or sum(lens) != total:
            raise BadLengths(f"{call}: seq_lens {lens} don't make {total} tokens. Add them up.")
        needed = [-(-length // self.page_size) for length in lens]
        if max(needed, default=0) > page_indices.shape[1]:
            found = f"{max(needed)} pages are needed, page_indices has {page_indices.shape[1]}"
            raise BadLengths(f"{call}: {found}. Give all of them.")
        num_pages = self.index_buf_size // self.page_size + 1
        for line, count in zip(page_indices.tolist(), needed, strict=True):
            for page in line[:count]:
                if not 0 <= page < num_pages:
                    raise OutOfRange(f"{call}: page {page} is outside 0..{num_pages - 1}.")

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
    size: Any, keys: Any, page_size: Any, index_head_dim: Any, skipped: Any, layers: Any
) -> list[PoolError | None]:
    """What is wrong with the numbers of an index."""
    found: list[PoolError | None] = []
    if checks.int_or_none(index_head_dim) not in (None, INDEX_HEAD_DIM):
        found.append(OutOfRange(f"index_head_dim must be {INDEX_HEAD_DIM}, got {index_head_dim}."))
    if isinstance(skipped, Sequence) and len(skipped) != checks.int_or_none(layers):
        found.append(BadLengths(f"{len(skipped)} skip_topk_layers for {layers} layers."))
    numbers = [checks.int_or_none(each) for each in (size, keys, page_size)]
    if None not in numbers and page_size >= 1:
        for name, value in (("size", size), ("index_buf_size", keys)):
            if value % page_size:
                found.append(NotPageMultiple(f"{name} {value} isn't whole pages of {page_size}."))
        if keys < size:
            found.append(OutOfRange(f"index_buf_size {keys} is less than size {size}."))
    return found
