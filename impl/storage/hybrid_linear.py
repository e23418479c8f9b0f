"""KV of models of which only some layers attend: global layers lead to a dense pool. Spec:
`spec/pools_states_sizing.md` §11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from impl import checks
from impl.errors import BadLengths, OutOfRange, Unsupported, WrongDtype
from impl.host.decls import HostPoolDecl
from impl.storage.base import Gate, KVCache
from impl.storage.buffers import KVBuffer
from impl.storage.host_copy import HostCopy
from impl.storage.mha import layer_of
from impl.storage.write_loc import KVWriteLoc, unwrap_write_loc, write_loc_is_physical


class HybridCopy(NamedTuple):
    """A host copy of KV, and of states where some went with it."""

    kv: HostCopy
    state: Any


class HybridLinearKVPool:
    """The KV of layers `full_attention_layer_ids`, in the layers of `full_kv_pool`, in order.

    Callers name global layers. `mamba_pool` holds the states of the others, by slots of their own.
    Writes take `full_loc` of a `KVWriteLoc` where it has one. A reader waits once, by the number
    of its global layer less `start_layer`. Raises `BadLengths` (another number of layers than the
    pool has), `Duplicate`, `NegativeSize`, `WrongDtype`. O(layers). Spec: §11, X1 to X3.
    """

    #: whether host copies carry the state too
    cpu_copy_carries_mamba = True

    def __init__(
        self,
        full_kv_pool: KVCache,
        full_attention_layer_ids: Sequence[int],
        *,
        mamba_pool: Any = None,
        start_layer: int = 0,
    ) -> None:
        if not isinstance(full_kv_pool, KVCache):
            raise WrongDtype(f"full_kv_pool must be a KVCache, got {type(full_kv_pool).__name__}.")
        checks.layer_ids(full_attention_layer_ids)
        if len(full_attention_layer_ids) != full_kv_pool.layer_num:
            raise BadLengths(
                f"{len(full_attention_layer_ids)} layers attend, the pool has "
                f"{full_kv_pool.layer_num}. Make them equal."
            )
        self.full_kv_pool, self.mamba_pool = full_kv_pool, mamba_pool
        self.full_attention_layer_id_mapping = {
            int(layer): full_kv_pool.start_layer + at
            for at, layer in enumerate(full_attention_layer_ids)
        }
        self.start_layer = checks.host_size(start_layer, "start_layer")
        self.size, self.page_size = full_kv_pool.size, full_kv_pool.page_size
        self.dtype, self.store_dtype = full_kv_pool.dtype, full_kv_pool.store_dtype
        self.device = full_kv_pool.device
        self.layer_transfer_gate: Gate | None = None

    @property
    def buffers(self) -> tuple[KVBuffer, ...]:
        """Those of the pool; their layers are its own."""
        return self.full_kv_pool.buffers

    def _inner(self, call: str, layer: Any, override: int | None = None) -> int:
        layer_id = checks.host_int(layer_of(layer, override), "layer_id")
        if layer_id not in self.full_attention_layer_id_mapping:
            known = sorted(self.full_attention_layer_id_mapping)
            raise OutOfRange(f"{call}: layer {layer_id} has no KV, {known} have.")
        return self.full_attention_layer_id_mapping[layer_id]

    def _arrived(self, call: str, layer_id: int) -> int:
        inner = self._inner(call, layer_id)
        if self.layer_transfer_gate is not None:
            self.layer_transfer_gate.wait_until(layer_id - self.start_layer)
        return inner

    # Reads

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        """Keys of a global layer, once it has arrived. `OutOfRange`. O(1). Spec: §11."""
        pool: Any = self.full_kv_pool
        found: torch.Tensor = pool.get_key_buffer(self._arrived("get_key_buffer", layer_id))
        return found

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        """Values, likewise."""
        pool: Any = self.full_kv_pool
        found: torch.Tensor = pool.get_value_buffer(self._arrived("get_value_buffer", layer_id))
        return found

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both, waiting once. Spec: §11, X3."""
        key: torch.Tensor
        pool: Any = self.full_kv_pool
        key, value = pool.get_kv_buffer(self._arrived("get_kv_buffer", layer_id))
        return key, value

    # Writes

    def set_kv_buffer(
        self,
        layer: Any,
        loc_info: Any,
        cache_k: torch.Tensor,
        cache_v: torch.Tensor | None,
        k_scale: Any = None,
        v_scale: Any = None,
        layer_id_override: int | None = None,
    ) -> None:
        """As the pool's own, for a global layer. Raises as there, and `OutOfRange`. O(n). §11."""
        pool: Any = self.full_kv_pool
        inner = self._inner("set_kv_buffer", layer, layer_id_override)
        scales = {"k_scale": k_scale, "v_scale": v_scale}
        given = {name: scale for name, scale in scales.items() if scale is not None}
        pool.set_kv_buffer(inner, full_loc_of(loc_info), cache_k, cache_v, **given)

    def set_mla_kv_buffer(
        self,
        layer: Any,
        loc_info: Any,
        cache_k_nope: torch.Tensor,
        cache_k_rope: torch.Tensor | None,
        layer_id_override: int | None = None,
    ) -> None:
        """As a latent pool's own; `Unsupported` for another. O(n). Spec: §11, trap 18."""
        call = "set_mla_kv_buffer"
        pool: Any = self.full_kv_pool
        if not hasattr(pool, call):
            raise Unsupported(f"{call}: {type(pool).__name__} has no latents. Use set_kv_buffer.")
        inner = self._inner(call, layer, layer_id_override)
        pool.set_mla_kv_buffer(inner, full_loc_of(loc_info), cache_k_nope, cache_k_rope)

    # All buffers alike

    def move_kv_cache(self, tgt_loc: torch.Tensor, src_loc: torch.Tensor) -> None:
        """As `KVCache.move_kv_cache`; states stay. Spec: §11."""
        self.full_kv_pool.move_kv_cache(tgt_loc, src_loc)

    def get_cpu_copy(
        self, indices: torch.Tensor, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> HybridCopy:
        """KV of slots `indices`, states of `mamba_indices` or None. Raises as theirs. §11."""
        state = None
        if mamba_indices is not None:
            state = self._require_state("get_cpu_copy").get_cpu_copy(mamba_indices)
        return HybridCopy(self.full_kv_pool.get_cpu_copy(indices), state)

    def load_cpu_copy(
        self,
        kv_cache_cpu: HybridCopy,
        indices: torch.Tensor,
        mamba_indices: Any = None,
        req_pool_index: Any = None,
    ) -> None:
        """What `get_cpu_copy` gave, under the same or other slots. Raises as theirs. §11."""
        call = "load_cpu_copy"
        if not isinstance(kv_cache_cpu, HybridCopy):
            found = type(kv_cache_cpu).__name__
            raise WrongDtype(f"{call}: a copy is a HybridCopy, got {found}. Load what it gave.")
        kv, state = kv_cache_cpu
        if (state is None) != (mamba_indices is None):
            raise BadLengths(f"{call}: states and mamba_indices go together. Give both or none.")
        # what may be refused comes first, and changes nothing
        slots = self.full_kv_pool._looked_over(kv, indices)
        if mamba_indices is not None:
            self._require_state(call).load_cpu_copy(state, mamba_indices)
        self.full_kv_pool._restore(kv, slots)

    def _require_state(self, call: str) -> Any:
        if self.mamba_pool is None:
            raise Unsupported(f"{call}: there is no state pool. Construct with mamba_pool=.")
        return self.mamba_pool

    # Reports

    def get_kv_layer_ids(self) -> list[int]:
        """Global layers of the transfer's buffers, in their order. Spec: §11."""
        order = list(self.full_attention_layer_id_mapping)
        names = dict.fromkeys(each.name for each in self.buffers)
        return order * sum(name in ("k", "v", "latent") for name in names)

    def get_kv_size_bytes(self) -> Any:
        """KV alone, as the pool reports it. Spec: §11, X2."""
        return self.full_kv_pool.get_kv_size_bytes()

    def get_contiguous_buf_infos(self) -> tuple[list[int], list[int], list[int]]:
        """The pool's. Spec: §11."""
        return self.full_kv_pool.get_contiguous_buf_infos()

    def get_state_buf_infos(self) -> tuple[list[int], list[int], list[int]]:
        """Those of the state pool. `Unsupported` without one. Spec: §11."""
        found: tuple[list[int], list[int], list[int]] = self._require_state(
            "get_state_buf_infos"
        ).get_contiguous_buf_infos()
        return found

    def translate_kv_indices_for_transfer(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """As `KVCache`'s."""
        return self.full_kv_pool.translate_kv_indices_for_transfer(kv_indices)

    def host_pool_decls(self) -> list[HostPoolDecl]:
        """Those of the pool that attends. Spec: IH §4.2."""
        return self.full_kv_pool.host_pool_decls()

    def check(self) -> None:
        """Wait for all calls so far, and raise the first fault of theirs."""
        self.full_kv_pool.check()

    def recover(self) -> None:
        """Go on behind a fault."""
        self.full_kv_pool.recover()

    def snapshot(self) -> dict[str, Any]:
        """The pool's content."""
        return self.full_kv_pool.snapshot()

    def audit(self) -> list[str]:
        """The pool's."""
        return self.full_kv_pool.audit()


def full_loc_of(loc_info: Any) -> Any:
    """`full_loc` where there is one, else `loc`, marked as they were (Q17)."""
    loc, _, full_loc = unwrap_write_loc(loc_info)
    physical = write_loc_is_physical(loc_info)
    target = loc if full_loc is None else full_loc
    return KVWriteLoc(target, physical=True) if physical else target
