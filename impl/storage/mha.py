"""KV of multi-head attention: keys and values of every token. Spec:
`spec/pools_states_sizing.md` §8, §13.
"""

from __future__ import annotations

from typing import Any

import torch

from impl import checks
from impl.errors import BadLengths, PoolError, Unsupported, WrongDtype, WrongShape
from impl.kernels.kv_rows import Part
from impl.storage.base import KVCache

Scale = torch.Tensor | float | None


class MHATokenToKVPool(KVCache):
    """Per layer `k_buffer` [num_rows, head_num, head_dim] and `v_buffer`, of `v_head_dim`.

    Arguments beside `KVCache`'s: heads and their widths. Raises as there. Spec: §8.
    """

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: torch.dtype,
        head_num: int,
        head_dim: int,
        layer_num: int,
        *,
        v_head_dim: int | None = None,
        **options: Any,
    ) -> None:
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(head_num, "head_num", least=1),
                lambda: checks.host_size(head_dim, "head_dim", least=1),
                lambda: checks.optional_size(v_head_dim, "v_head_dim", 1),
            )
        )
        super().__init__(size, page_size, dtype, layer_num, **options)
        self.head_num, self.head_dim = int(head_num), int(head_dim)
        self.v_head_dim = self.head_dim if v_head_dim is None else int(v_head_dim)
        self.k_buffer = self._new_stack("k", (self.head_num, self.head_dim))
        self.v_buffer = self._new_stack("v", (self.head_num, self.v_head_dim))

    # Reads

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        """Keys of all slots, as `dtype`, once the layer has arrived. `OutOfRange`. O(1). §8."""
        return self._as_read(self.k_buffer[self._arrived("get_key_buffer", layer_id)])

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        """Values of all slots, likewise."""
        return self._as_read(self.v_buffer[self._arrived("get_value_buffer", layer_id)])

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of all slots, likewise, waiting once."""
        local = self._arrived("get_kv_buffer", layer_id)
        return self._as_read(self.k_buffer[local]), self._as_read(self.v_buffer[local])

    def view_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The same without waiting, for whoever wants shapes and addresses. §8, IH Q15."""
        local = self._local("view_kv_buffer", layer_id)
        return self._as_read(self.k_buffer[local]), self._as_read(self.v_buffer[local])

    # Writes

    def set_kv_buffer(
        self,
        layer: Any,
        loc_info: Any,
        cache_k: torch.Tensor,
        cache_v: torch.Tensor,
        k_scale: Scale = None,
        v_scale: Scale = None,
        layer_id_override: int | None = None,
    ) -> None:
        """Keys [n, H, D] and values [n, H, Dv] of n tokens for slots int [n] of a layer.

        `layer` is its id or has one, `layer_id`; an override goes before it. Values of another
        type than the pool's are divided by their scale, in their type, and converted; fp8 is
        clamped to its finite range. Slots of the first page and negative ones are dropped; of
        equal ones any is the last. Arguments are left alone. Raises `OutOfRange` (a layer, a slot
        beyond the pool), `BadLengths`, `WrongDtype`, `WrongDevice`, `WrongShape`, `Unsupported`
        (slots that aren't marked, where they have to be), and writes nothing then. O(n); one
        launch. Spec: §8, IH §5.2.
        """
        loc = self._target("set_kv_buffer", loc_info)
        self._store(
            "set_kv_buffer", layer_of(layer, layer_id_override), loc, None,
            cache_k, cache_v, k_scale, v_scale,
        )  # fmt: skip

    def set_kv_buffer_prefix_valid(
        self,
        layer: Any,
        loc_2d: torch.Tensor,
        commit_lens: torch.Tensor,
        cache_k: torch.Tensor,
        cache_v: torch.Tensor,
        k_scale: Scale = None,
        v_scale: Scale = None,
        layer_id_override: int | None = None,
    ) -> None:
        """`set_kv_buffer` of slots int [B, S], of which row b commits its first `commit_lens[b]`.

        Keys and values [B * S, …]. Raises as there; slots that aren't committed may be anything.
        O(B * S); one launch. Spec: §8, WP-6.
        """
        call = "set_kv_buffer_prefix_valid"
        if (
            not isinstance(loc_2d, torch.Tensor)
            or loc_2d.dim() != 2
            or loc_2d.layout is not torch.strided
        ):
            raise WrongShape(f"{call}: loc_2d must be [requests, steps], a dense tensor.")
        loc = loc_2d.reshape(-1)
        checks.require_ids(loc, "loc_2d", self.device)
        checks.require_ids(commit_lens, "commit_lens", self.device)
        if commit_lens.shape[0] != loc_2d.shape[0]:
            found = f"{commit_lens.shape[0]} commit_lens for {loc_2d.shape[0]} rows"
            raise BadLengths(f"{call}: {found}. Give one for each.")
        self._store(
            call, layer_of(layer, layer_id_override), loc, commit_lens,
            cache_k, cache_v, k_scale, v_scale,
        )  # fmt: skip

    def _store(
        self, call: str, layer_id: Any, loc: torch.Tensor, limits: torch.Tensor | None,
        cache_k: Any, cache_v: Any, k_scale: Scale, v_scale: Scale,
    ) -> None:  # fmt: skip
        local, n = self._local(call, layer_id), loc.shape[0]
        due = (n, self.head_num, self.head_dim), (n, self.head_num, self.v_head_dim)
        if not (
            self._fit(cache_k, due[0])
            and self._fit(cache_v, due[1])
            and cache_k.dtype == cache_v.dtype
            and k_scale is v_scale is None
        ):
            checks.raise_first(
                [
                    self._values_fault(call, "cache_k", cache_k, due[0]),
                    self._values_fault(call, "cache_v", cache_v, due[1]),
                    *checks.collected(lambda: same_dtype(call, cache_k, cache_v)),
                    *scale_faults(call, self.device, k_scale=k_scale, v_scale=v_scale),
                ]
            )
        parts = [
            Part(self.buffers[local], cache_k, self.dtype, k_scale),
            Part(self.buffers[self.layer_num + local], cache_v, self.dtype, v_scale),
        ]
        self._door.store(call, parts, loc, limits)

    def get_kv_size_bytes(self) -> tuple[int, int]:
        """Bytes of keys and of values, the first page's too. O(layers). Spec: §8."""
        return self._bytes_of("k"), self._bytes_of("v")


class MHATokenToKOnlyPool(KVCache):
    """Keys alone: per layer `k_buffer` [num_rows, head_num, head_dim]. Raises as above. §13."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: torch.dtype,
        head_num: int,
        head_dim: int,
        layer_num: int,
        **options: Any,
    ) -> None:
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(head_num, "head_num", least=1),
                lambda: checks.host_size(head_dim, "head_dim", least=1),
            )
        )
        super().__init__(size, page_size, dtype, layer_num, **options)
        self.head_num, self.head_dim = int(head_num), int(head_dim)
        self.k_buffer = self._new_stack("k", (self.head_num, self.head_dim))

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        """Keys of all slots of a global layer, once it has arrived. `OutOfRange`. O(1). §13."""
        return self._as_read(self.k_buffer[self._arrived("get_key_buffer", layer_id)])

    def view_key_buffer(self, layer_id: int) -> torch.Tensor:
        """The same without waiting."""
        return self._as_read(self.k_buffer[self._local("view_key_buffer", layer_id)])

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        """`Unsupported`: there are no values. Spec: §13."""
        raise Unsupported("get_value_buffer: the pool has keys alone. Use get_key_buffer.")

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`Unsupported`: there are no values. Spec: §13."""
        raise Unsupported("get_kv_buffer: the pool has keys alone. Use get_key_buffer.")

    def set_kv_buffer(self, *args: Any, **kwargs: Any) -> None:
        """`Unsupported`: there are no values. Spec: §13."""
        raise Unsupported("set_kv_buffer: the pool has keys alone. Use set_k_buffer.")

    def set_k_buffer(
        self, layer: Any, loc_info: Any, cache_k: torch.Tensor, k_scale: Scale = None
    ) -> None:
        """Keys [n, H, D] for slots int [n] of a global layer (trap 6), as `set_kv_buffer`. §13."""
        call = "set_k_buffer"
        loc = self._target(call, loc_info)
        local, n = self._local(call, layer_of(layer, None)), loc.shape[0]
        checks.raise_first(
            [
                self._values_fault(call, "cache_k", cache_k, (n, self.head_num, self.head_dim)),
                *scale_faults(call, self.device, k_scale=k_scale),
            ]
        )
        part = Part(self.buffers[local], cache_k, self.dtype, k_scale)
        self._door.store(call, [part], loc, None)

    def get_kv_size_bytes(self) -> tuple[int, int]:
        """Bytes of keys, and 0. O(layers). Spec: §13."""
        return self._bytes_of("k"), 0


def layer_of(layer: Any, override: int | None) -> Any:
    """The id of a layer: the override, an id itself, or an object's `layer_id`."""
    if override is not None:
        return override
    return getattr(layer, "layer_id", layer)


def same_dtype(call: str, one: Any, other: Any) -> None:
    """Raise unless two tensors are of one type."""
    types = [each.dtype for each in (one, other) if isinstance(each, torch.Tensor)]
    if len(set(types)) > 1:
        raise WrongDtype(f"{call}: {types[0]} and {types[1]}. Give both in one type.")


def scale_faults(call: str, device: torch.device, **scales: Any) -> list[PoolError | None]:
    """What is wrong with scales: numbers, or tensors of one."""
    found: list[PoolError | None] = []
    for name, scale in scales.items():
        if scale is None or (isinstance(scale, (int, float)) and not isinstance(scale, bool)):
            continue
        if not isinstance(scale, torch.Tensor) or not scale.is_floating_point():
            got = scale.dtype if isinstance(scale, torch.Tensor) else type(scale).__name__
            found.append(WrongDtype(f"{call}: {name} must be a number, got {got}."))
        elif scale.numel() != 1:
            found.append(WrongShape(f"{call}: {name} must be one number, got {scale.numel()}."))
    return found
