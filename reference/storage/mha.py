"""Keys and values of every token; keys alone (§8, §13)."""

from collections.abc import Sequence
from typing import Any

from reference.refusal import Refused, refuse_smallest
from reference.storage.base import KVCache, Rows, as_loc


class MHATokenToKVPool(KVCache):
    """`head_num` heads of `head_dim` numbers, and of `v_head_dim` for values."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: str,
        head_num: int,
        head_dim: int,
        layer_num: int,
        *,
        v_head_dim: int | None = None,
        **options: Any,
    ) -> None:
        value_dim = head_dim if v_head_dim is None else v_head_dim
        widths = {"k": (head_num * head_dim, dtype), "v": (head_num * value_dim, dtype)}
        super().__init__(size, page_size, dtype, layer_num, widths, **options)

    def set_kv_buffer(
        self,
        layer: int,
        loc_info: Any,
        cache_k: Rows,
        cache_v: Rows,
        source: str,
        k_scale: float | None = None,
        v_scale: float | None = None,
    ) -> None:
        """Keys and values, codes of type `source`, under slots of a layer."""
        self.require_marked(loc_info)
        self.require_layer(layer)
        slots = as_loc(loc_info).loc
        if not len(slots) == len(cache_k) == len(cache_v):
            raise Refused("WrongShape")
        refuse_smallest(self.beyond(slots))
        self.write("k", layer, slots, self.as_stored(cache_k, source, k_scale))
        self.write("v", layer, slots, self.as_stored(cache_v, source, v_scale))

    def set_kv_buffer_prefix_valid(
        self,
        layer: int,
        loc_2d: Sequence[Sequence[int]],
        commit_lens: Sequence[int],
        cache_k: Rows,
        cache_v: Rows,
        source: str,
    ) -> None:
        """`set_kv_buffer` of each row's first `commit_lens` slots (WP-6)."""
        self.require_layer(layer)
        if len(commit_lens) != len(loc_2d):
            raise Refused("BadLengths")
        slots = [
            slot if column < limit else -1
            for row, limit in zip(loc_2d, commit_lens, strict=True)
            for column, slot in enumerate(row)
        ]
        if not len(slots) == len(cache_k) == len(cache_v):
            raise Refused("WrongShape")
        refuse_smallest(self.beyond(slots))
        self.write("k", layer, slots, self.as_stored(cache_k, source, None))
        self.write("v", layer, slots, self.as_stored(cache_v, source, None))

    def get_kv_buffer(self, layer: int) -> tuple[Rows, Rows]:
        """The rows of a layer."""
        self.require_layer(layer)
        return self.content["k"][layer], self.content["v"][layer]

    def get_kv_size_bytes(self) -> tuple[int, int]:
        """Bytes of keys and of values."""
        return self.bytes_of("k"), self.bytes_of("v")


class MHATokenToKOnlyPool(KVCache):
    """Keys alone."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: str,
        head_num: int,
        head_dim: int,
        layer_num: int,
        **options: Any,
    ) -> None:
        widths = {"k": (head_num * head_dim, dtype)}
        super().__init__(size, page_size, dtype, layer_num, widths, **options)

    def set_k_buffer(
        self, layer: int, loc_info: Any, cache_k: Rows, source: str, k_scale: float | None = None
    ) -> None:
        """Keys under slots of a global layer."""
        self.require_marked(loc_info)
        self.require_layer(layer)
        slots = as_loc(loc_info).loc
        if len(slots) != len(cache_k):
            raise Refused("WrongShape")
        refuse_smallest(self.beyond(slots))
        self.write("k", layer, slots, self.as_stored(cache_k, source, k_scale))

    def set_kv_buffer(self, *args: Any, **kwargs: Any) -> None:
        """There are no values."""
        raise Refused("Unsupported")

    def get_kv_buffer(self, layer: int) -> tuple[Rows, Rows]:
        """There are no values."""
        raise Refused("Unsupported")

    def get_kv_size_bytes(self) -> tuple[int, int]:
        """Bytes of keys, and none."""
        return self.bytes_of("k"), 0
