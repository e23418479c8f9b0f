"""KV of latent attention: one row for a token, whose head is its value too. Spec:
`spec/pools_states_sizing.md` §9.
"""

from __future__ import annotations

from typing import Any

import torch

from impl import checks
from impl.errors import Unsupported
from impl.kernels.kv_rows import Part
from impl.storage.base import KVCache, require_dtype
from impl.storage.mha import layer_of, same_dtype


class MLATokenToKVPool(KVCache):
    """Per layer `kv_buffer` [num_rows, 1, kv_lora_rank + qk_rope_head_dim].

    A key is a whole row, a value its first `kv_lora_rank` numbers, on the same memory. Arguments
    beside `KVCache`'s: the widths. Raises as there. Spec: §9.
    """

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: torch.dtype,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        layer_num: int,
        **options: Any,
    ) -> None:
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(kv_lora_rank, "kv_lora_rank", least=1),
                lambda: checks.host_size(qk_rope_head_dim, "qk_rope_head_dim"),
            )
        )
        super().__init__(size, page_size, dtype, layer_num, **options)
        self.kv_lora_rank = int(kv_lora_rank)
        self.qk_rope_head_dim = int(qk_rope_head_dim)
        self.kv_buffer = self._new_stack("latent", (1, self._row_width()))

    def _row_width(self) -> int:
        """Numbers of a row, of the stored type."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    # Reads

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        """Rows of all slots, as `dtype`, once the layer has arrived. `OutOfRange`. O(1). §9."""
        return self._as_read(self.kv_buffer[self._arrived("get_key_buffer", layer_id)])

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        """Their values, a view of the rows' heads. Spec: §9, L1."""
        local = self._arrived("get_value_buffer", layer_id)
        return self._as_read(self.kv_buffer[local])[..., : self.kv_lora_rank]

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both, waiting once."""
        key = self.get_key_buffer(layer_id)
        return key, key[..., : self.kv_lora_rank]

    def view_key_buffer(self, layer_id: int) -> torch.Tensor:
        """Rows of all slots without waiting, for whoever wants shapes and addresses. IH Q15."""
        return self._as_read(self.kv_buffer[self._local("view_key_buffer", layer_id)])

    def get_mla_kv_buffer(
        self, layer: Any, loc: torch.Tensor, dst_dtype: torch.dtype | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Latents [n, 1, R] and rotary parts [n, 1, P], None if P is 0, of slots int [n]. Copies.

        Once the layer has arrived. Raises `OutOfRange` for a layer, and on a CPU for a slot, which
        elsewhere isn't looked at and read as slot 0; `WrongDtype`, `WrongDevice`, `WrongShape`.
        O(n). Spec: §9.
        """
        found = self._rows_of("get_mla_kv_buffer", layer, loc, dst_dtype).view(self.dtype)
        found = found.to(dst_dtype or self.dtype)
        rope = found[..., self.kv_lora_rank :]
        return found[..., : self.kv_lora_rank], rope if self.qk_rope_head_dim else None

    def _rows_of(
        self, call: str, layer: Any, loc: torch.Tensor, dst_dtype: torch.dtype | None
    ) -> torch.Tensor:
        """A copy of the rows of slots, as they are stored, to be read as `dst_dtype`."""
        checks.require_ids(loc, "loc", self.device)
        if dst_dtype is not None:
            require_dtype(dst_dtype, "dst_dtype")
        local = self._local(call, layer_of(layer, None))
        slots = self._door.readable(call, loc)
        self._arrived(call, local + self.start_layer)
        return self.kv_buffer[local].index_select(0, slots)

    # Writes

    def set_kv_buffer(
        self,
        layer: Any,
        loc_info: Any,
        cache_k: torch.Tensor,
        cache_v: torch.Tensor | None = None,
        layer_id_override: int | None = None,
    ) -> None:
        """Whole rows [n, 1, C] for slots int [n] of a layer; `cache_v`, their heads, isn't read.

        Nothing is scaled; dropped slots and errors as `MHATokenToKVPool.set_kv_buffer`. O(n); one
        launch. Spec: §9.
        """
        call = "set_kv_buffer"
        loc = self._target(call, loc_info)
        local, n = self._local(call, layer_of(layer, layer_id_override)), loc.shape[0]
        due = (n, 1, self.kv_lora_rank + self.qk_rope_head_dim)
        checks.raise_first([self._values_fault(call, "cache_k", cache_k, due)])
        part = Part(self.buffers[local], cache_k, self.dtype)
        self._door.store(call, [part], loc, None)

    def set_mla_kv_buffer(
        self,
        layer: Any,
        loc_info: Any,
        cache_k_nope: torch.Tensor,
        cache_k_rope: torch.Tensor | None,
        layer_id_override: int | None = None,
    ) -> None:
        """Rows from latents [n, 1, R] and rotary parts [n, 1, P], None if P is 0.

        As `set_kv_buffer` of both joined. O(n); one launch. Spec: §9.
        """
        call = "set_mla_kv_buffer"
        loc = self._target(call, loc_info)
        local, n = self._local(call, layer_of(layer, layer_id_override)), loc.shape[0]
        due = (n, 1, self.kv_lora_rank), (n, 1, self.qk_rope_head_dim)
        faults = [self._values_fault(call, "cache_k_nope", cache_k_nope, due[0])]
        if cache_k_rope is None:
            self._require_no_rope(call)
        else:
            faults += [
                self._values_fault(call, "cache_k_rope", cache_k_rope, due[1]),
                *checks.collected(lambda: same_dtype(call, cache_k_nope, cache_k_rope)),
            ]
        checks.raise_first(faults)
        if cache_k_rope is None:
            cache_k_rope = cache_k_nope[..., :0]
        self._store_parts(call, local, loc, cache_k_nope.flatten(1), cache_k_rope.flatten(1))

    def _store_parts(
        self, call: str, local: int, loc: torch.Tensor, nope: torch.Tensor, rope: torch.Tensor
    ) -> None:
        buffer = self.buffers[local]
        parts = [Part(buffer, nope, self.dtype)]
        if self.qk_rope_head_dim:
            offset = self.kv_lora_rank * self.dtype.itemsize
            parts.append(Part(buffer, rope, self.dtype, offset=offset))
        self._door.store(call, parts, loc, None)

    def _require_no_rope(self, call: str) -> None:
        if self.qk_rope_head_dim:
            raise Unsupported(
                f"{call}: rows have {self.qk_rope_head_dim} rotary numbers. Give them."
            )

    def get_kv_size_bytes(self) -> int:
        """Bytes of the rows, the first page's too. O(layers). Spec: §9, L2."""
        return self._bytes_of("latent")
