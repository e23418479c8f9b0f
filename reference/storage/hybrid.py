"""Global layers that lead to pools: of models of which some layers attend, or attend to a window
(§11, §12)."""

from collections.abc import Sequence
from typing import Any

from reference.refusal import Refused
from reference.storage.base import KVCache, KVWriteLoc, as_loc


def loc_of(loc_info: Any, slots: Sequence[int]) -> KVWriteLoc:
    """Slots of a side, marked as they were."""
    return KVWriteLoc(slots, physical=as_loc(loc_info).physical)


class HybridLinearKVPool:
    """The layers that attend, in the layers of a dense pool, in order."""

    def __init__(self, full_kv_pool: Any, full_attention_layer_ids: Sequence[int]) -> None:
        self.full_kv_pool = full_kv_pool
        self.layers = {layer: at for at, layer in enumerate(full_attention_layer_ids)}

    def inner(self, layer: int) -> int:
        """The place of a layer in the pool."""
        if layer not in self.layers:
            raise Refused("OutOfRange")
        return self.layers[layer]

    def write(self, method: str, layer: int, loc_info: Any, *values: Any) -> None:
        """A write by the pool's own method, to `full_loc` where there is one."""
        inner, loc = self.inner(layer), as_loc(loc_info)
        slots = loc.loc if loc.full_loc is None else loc.full_loc
        getattr(self.full_kv_pool, method)(inner, loc_of(loc_info, slots), *values)


class SWAKVPool:
    """A pool for full layers, one for window layers, and the map between their slots."""

    def __init__(
        self,
        full_kv_pool: KVCache,
        swa_kv_pool: KVCache,
        swa_attention_layer_ids: Sequence[int],
        full_attention_layer_ids: Sequence[int],
    ) -> None:
        self.full_kv_pool, self.swa_kv_pool = full_kv_pool, swa_kv_pool
        self.full_layers = {layer: at for at, layer in enumerate(full_attention_layer_ids)}
        self.swa_layers = {layer: at for at, layer in enumerate(swa_attention_layer_ids)}
        #: full slot → window slot, 0 for none
        self.mapping: list[int] = []

    def write(self, method: str, layer: int, loc_info: Any, *values: Any) -> None:
        """A full layer takes the slots, a window layer those of its side."""
        loc = as_loc(loc_info)
        if layer in self.full_layers:
            slots = loc.loc if loc.full_loc is None else loc.full_loc
            getattr(self.full_kv_pool, method)(
                self.full_layers[layer], loc_of(loc_info, slots), *values
            )
        elif layer in self.swa_layers:
            if loc.swa_loc is None:
                raise Refused("Unsupported")
            getattr(self.swa_kv_pool, method)(
                self.swa_layers[layer], loc_of(loc_info, loc.swa_loc), *values
            )
        else:
            raise Refused("OutOfRange")

    def move_kv_cache(self, tgt_loc: Sequence[int], src_loc: Sequence[int]) -> None:
        """Full slots, and their windows where source and target have one."""
        self.full_kv_pool.move_kv_cache(tgt_loc, src_loc)
        pairs = [
            (self.mapping[target], self.mapping[source])
            for target, source in zip(tgt_loc, src_loc, strict=True)
            if min(target, source) >= 0 and self.mapping[target] and self.mapping[source]
        ]
        self.swa_kv_pool.move_kv_cache([t for t, _ in pairs], [s for _, s in pairs])

    def get_cpu_copy(
        self, indices: Sequence[int], mamba_indices: Any = None, req_pool_index: Any = None
    ) -> Any:
        """Full rows, window rows of slots that have one, and which these are."""
        full = self.full_kv_pool.get_cpu_copy(indices)
        windows = [self.mapping[slot] for slot in indices]
        swa = self.swa_kv_pool.get_cpu_copy([window for window in windows if window])
        return full, swa, [bool(window) for window in windows]

    def load_cpu_copy(
        self, copy: Any, indices: Sequence[int], mamba_indices: Any = None,
        req_pool_index: Any = None,
    ) -> None:  # fmt: skip
        """A window comes back where there was one and now is one again."""
        full, swa, mask = copy
        self.full_kv_pool.require_copy(full, indices)
        saved = [slot for slot, had in zip(indices, mask, strict=True) if had]
        kept = [at for at, slot in enumerate(saved) if self.mapping[slot]]
        chosen = {
            name: {layer: [rows[at] for at in kept] for layer, rows in layers.items()}
            for name, layers in swa.items()
        }
        self.full_kv_pool.load_cpu_copy(full, indices)
        self.swa_kv_pool.load_cpu_copy(chosen, [self.mapping[saved[at]] for at in kept])
