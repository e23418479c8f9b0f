"""KV of models that mix full attention with sliding windows: two pools, two sizes. Spec:
`spec/pools_states_sizing.md` §12, `spec/swa_unified.md` §2.12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from impl import checks
from impl.errors import BadLengths, Duplicate, OutOfRange, Unsupported, WrongDtype
from impl.host.decls import HostPoolDecl
from impl.storage.base import Gate, KVCache
from impl.storage.host_copy import CHUNK, HostCopy, copy_fault
from impl.storage.hybrid_linear import full_loc_of
from impl.storage.mha import MHATokenToKVPool, layer_of
from impl.storage.swa import BaseSWAKVPool, BufferInfos, translated
from impl.storage.write_loc import KVWriteLoc, unwrap_write_loc, write_loc_is_physical


class SWACopy(NamedTuple):
    """A host copy of both sides; `swa_mask` bool [k] says which slots had a window."""

    full: HostCopy
    swa: HostCopy
    swa_mask: torch.Tensor


class SWAKVPool(BaseSWAKVPool):
    """`full_kv_pool` of `size` slots and `swa_kv_pool` of `size_swa`, a layer in one of them.

    Global layers `full_attention_layer_ids` and `swa_attention_layer_ids`, in order, are the
    layers of the two. `token_to_kv_pool_class` makes both, with `kwargs`, `full_kwargs` and
    `swa_kwargs` beside sizes, dtype, heads. Callers name full slots; a write to a window layer
    brings its own (`KVWriteLoc.swa_loc`), the pool never translates them. Raises as `KVCache`, and
    `Duplicate` for a layer named twice. O(bytes). Spec: §12, W1 to W4.
    """

    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int,
        dtype: torch.dtype,
        head_num: int,
        head_dim: int,
        swa_attention_layer_ids: Sequence[int],
        full_attention_layer_ids: Sequence[int],
        *,
        token_to_kv_pool_class: type[KVCache] = MHATokenToKVPool,
        full_kwargs: Mapping[str, Any] | None = None,
        swa_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        for ids in (swa_attention_layer_ids, full_attention_layer_ids):
            checks.layer_ids(ids)
        if set(swa_attention_layer_ids) & set(full_attention_layer_ids):
            both = sorted(set(swa_attention_layer_ids) & set(full_attention_layer_ids))
            raise Duplicate(f"layers {both} are named on both sides. Name each on one.")
        make: Any = token_to_kv_pool_class
        common = {"page_size": page_size, "dtype": dtype, **kwargs}
        if issubclass(token_to_kv_pool_class, MHATokenToKVPool):
            common |= {"head_num": head_num, "head_dim": head_dim}
        self.full_kv_pool: KVCache = make(
            size=size, layer_num=len(full_attention_layer_ids), **common | dict(full_kwargs or {})
        )
        self.swa_kv_pool: KVCache = make(
            size=size_swa, layer_num=len(swa_attention_layer_ids), **common | dict(swa_kwargs or {})
        )
        # what one side has refused, the other doesn't do either
        self.swa_kv_pool._door.share(self.full_kv_pool._door)
        self.size, self.size_swa = self.full_kv_pool.size, self.swa_kv_pool.size
        self.page_size, self.dtype = self.full_kv_pool.page_size, self.full_kv_pool.dtype
        self.device = self.full_kv_pool.device
        self.layer_transfer_gate: Gate | None = None
        #: global layer → its place on its side, and whether that is the window side
        self.layers_mapping: dict[int, tuple[int, bool]] = {
            int(layer): (at, is_swa)
            for is_swa, ids in ((False, full_attention_layer_ids), (True, swa_attention_layer_ids))
            for at, layer in enumerate(ids)
        }
        self._mapping: torch.Tensor | None = None

    # The map

    def register_mapping(self, full_to_swa_index_mapping: torch.Tensor) -> None:
        self._mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """As the contract says; `Unsupported` before an allocator has registered its map.

        Raises `OutOfRange`, `WrongDtype`, `WrongDevice`, `WrongShape`.
        """
        return translated(self._require_map("translate_loc_from_full_to_swa"), kv_indices)

    def _require_map(self, call: str) -> torch.Tensor:
        if self._mapping is None:
            raise Unsupported(f"{call}: no map is registered. Give the pool to an allocator.")
        return self._mapping

    # Layers

    def _side(self, call: str, layer_id: Any) -> tuple[Any, int, bool]:
        """The pool that a layer is in, its place there, and whether it is a window layer."""
        layer = checks.host_int(layer_id, "layer_id")
        if layer not in self.layers_mapping:
            known = sorted(self.layers_mapping)
            raise OutOfRange(f"{call}: there is no layer {layer} among {known}.")
        at, is_swa = self.layers_mapping[layer]
        return (self.swa_kv_pool if is_swa else self.full_kv_pool), at, is_swa

    def _arrived(self, call: str, layer_id: int) -> tuple[Any, int]:
        pool, at, _ = self._side(call, layer_id)
        if self.layer_transfer_gate is not None:
            self.layer_transfer_gate.wait_until(layer_id)
        return pool, at

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        """Keys of a layer, by the slots of its side, once it has arrived. `OutOfRange`. O(1)."""
        pool, at = self._arrived("get_key_buffer", layer_id)
        found: torch.Tensor = pool.get_key_buffer(at)
        return found

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        """Values, likewise."""
        pool, at = self._arrived("get_value_buffer", layer_id)
        found: torch.Tensor = pool.get_value_buffer(at)
        return found

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both, waiting once."""
        pool, at = self._arrived("get_kv_buffer", layer_id)
        key, value = pool.get_kv_buffer(at)
        return key, value

    # Writes

    def _loc_for(self, call: str, loc_info: Any, is_swa: bool) -> Any:
        """The slots of a layer's side, marked as they were (Q17)."""
        if not is_swa:
            return full_loc_of(loc_info)
        swa_loc = unwrap_write_loc(loc_info)[1]
        if swa_loc is None:
            raise Unsupported(f"{call}: a window layer needs swa_loc. Give a KVWriteLoc with it.")
        physical = write_loc_is_physical(loc_info)
        return KVWriteLoc(swa_loc, physical=True) if physical else swa_loc

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
        """As the side's own: a full layer takes `loc`, a window layer `swa_loc`. O(n). §12.

        Raises as there, `OutOfRange`, and `Unsupported` for a window layer without `swa_loc`.
        """
        call = "set_kv_buffer"
        pool, at, is_swa = self._side(call, layer_of(layer, layer_id_override))
        scales = {"k_scale": k_scale, "v_scale": v_scale}
        given = {name: scale for name, scale in scales.items() if scale is not None}
        pool.set_kv_buffer(at, self._loc_for(call, loc_info, is_swa), cache_k, cache_v, **given)

    def set_mla_kv_buffer(
        self,
        layer: Any,
        loc_info: Any,
        cache_k_nope: torch.Tensor,
        cache_k_rope: torch.Tensor | None,
        layer_id_override: int | None = None,
    ) -> None:
        """Likewise for latents; `Unsupported` where a side has none. O(n). Spec: §12."""
        call = "set_mla_kv_buffer"
        pool, at, is_swa = self._side(call, layer_of(layer, layer_id_override))
        if not hasattr(pool, call):
            raise Unsupported(f"{call}: {type(pool).__name__} has no latents. Use set_kv_buffer.")
        pool.set_mla_kv_buffer(
            at, self._loc_for(call, loc_info, is_swa), cache_k_nope, cache_k_rope
        )

    # Both sides

    def move_kv_cache(self, tgt_loc: torch.Tensor, src_loc: torch.Tensor) -> None:
        """As `KVCache.move_kv_cache`, windows by the map; slots without one move on one side.

        Where a target has a window and its source none, the window's bytes stay: who pairs slots
        looks after that. Raises as there. O(bytes moved); a launch for each side. Spec: §12.
        """
        mapping = self._require_map("move_kv_cache")
        self.full_kv_pool.move_kv_cache(tgt_loc, src_loc)
        target, source = _windows(mapping, tgt_loc), _windows(mapping, src_loc)
        self.swa_kv_pool.move_kv_cache(target.where(source > 0, 0), source)

    def get_cpu_copy(
        self, indices: torch.Tensor, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> SWACopy:
        """The rows of full slots int [k], and of the windows of those that have one. §12."""
        mapping = self._require_map("get_cpu_copy")
        full = self.full_kv_pool.get_cpu_copy(indices)
        windows = mapping[indices.to(torch.int64)]
        mask = windows > 0
        return SWACopy(full, self.swa_kv_pool.get_cpu_copy(windows[mask]), mask.cpu())

    def load_cpu_copy(
        self,
        kv_cache_cpu: SWACopy,
        indices: torch.Tensor,
        mamba_indices: Any = None,
        req_pool_index: Any = None,
    ) -> None:
        """What `get_cpu_copy` gave, under the same or other slots int [k].

        A window comes back where there was one and now is one again. Raises as
        `KVCache.load_cpu_copy`, before anything is written. Spec: §12.
        """
        call = "load_cpu_copy"
        mapping = self._require_map(call)
        if not isinstance(kv_cache_cpu, SWACopy):
            found = type(kv_cache_cpu).__name__
            raise WrongDtype(f"{call}: a copy is a SWACopy, got {found}. Load what it gave.")
        full, swa, mask = kv_cache_cpu
        slots = self.full_kv_pool._looked_over(full, indices)
        _require_mask(call, mask, slots.shape[0])
        saved = torch.split(slots[mask.to(self.device)], CHUNK)
        checks.raise_first([copy_fault(swa, self.swa_kv_pool._by_layer(), saved)])
        windows = mapping[slots][mask.to(self.device)]
        back = windows > 0
        kept = back.cpu()
        flat = [[torch.cat([chunk[at] for chunk in layer])[kept] for at in range(len(layer[0]))]
                if layer else [] for layer in swa]  # fmt: skip
        windows = windows[back]
        copy = [_chunks(rows, windows.shape[0]) for rows in flat]
        windows = self.swa_kv_pool._looked_over(copy, windows)
        self.full_kv_pool._restore(full, slots)
        self.swa_kv_pool._restore(copy, windows)

    # Reports

    def get_kv_size_bytes(self) -> Any:
        """Of both sides together, as they report it. O(layers). Spec: §12, W2."""
        full, swa = self.full_kv_pool.get_kv_size_bytes(), self.swa_kv_pool.get_kv_size_bytes()
        if isinstance(full, tuple):
            return tuple(one + other for one, other in zip(full, swa, strict=True))
        return full + swa

    def get_contiguous_buf_infos(self) -> BufferInfos:
        """The full side's. Spec: §12."""
        return self.full_kv_pool.get_contiguous_buf_infos()

    def get_state_buf_infos(self) -> BufferInfos:
        return self.swa_kv_pool.get_contiguous_buf_infos()

    def host_pool_decls(self) -> list[HostPoolDecl]:
        """Those of the full side. Spec: IH §4.2."""
        return self.full_kv_pool.host_pool_decls()

    def check(self) -> None:
        """Wait for all calls so far, and raise the first fault of theirs: both sides have one."""
        self.full_kv_pool.check()

    def recover(self) -> None:
        """Go on behind a fault."""
        self.full_kv_pool.recover()

    def snapshot(self) -> dict[str, Any]:
        """The content of both sides."""
        return {"full": self.full_kv_pool.snapshot(), "swa": self.swa_kv_pool.snapshot()}

    def audit(self) -> list[str]:
        """Both sides' findings."""
        swa = [f"{line} (window side)" for line in self.swa_kv_pool.audit()]
        return [*self.full_kv_pool.audit(), *swa]


def _require_mask(call: str, mask: Any, count: int) -> None:
    if not isinstance(mask, torch.Tensor) or mask.dtype is not torch.bool:
        raise WrongDtype(f"{call}: swa_mask must be a tensor of bools. Load what it gave.")
    if mask.dim() != 1 or mask.shape[0] != count:
        found = f"a mask of {mask.shape[0] if mask.dim() else 0} slots for {count}"
        raise BadLengths(f"{call}: {found}. Pair them.")


def _windows(mapping: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """The windows of full slots, 0 for none; of what is no slot, a padded lane's too, none."""
    slots = slots.to(torch.int64)
    # the last entry of the map is that of -1
    inside = (slots >= 0) & (slots < mapping.shape[0] - 1)
    return mapping[slots.where(inside, 0)]


def _chunks(rows: Sequence[torch.Tensor], count: int) -> list[list[torch.Tensor]]:
    """A layer's rows in the chunks of a host copy of `count` slots."""
    if not rows:
        return [[] for _ in range(0, max(count, 1), CHUNK)]
    return [list(each) for each in zip(*(torch.split(one, CHUNK) for one in rows), strict=True)]
