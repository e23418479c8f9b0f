"""One latent row for a token, whose head is its value; packed, and with index keys (§9, §10)."""

from collections.abc import Sequence
from typing import Any

from reference.refusal import Refused, refuse_smallest
from reference.storage.base import KVCache, Rows, as_loc
from reference.storage.floats import converted, decode, encode

TILE = 128
FP8 = "float8_e4m3fn"


class MLATokenToKVPool(KVCache):
    """Rows of `kv_lora_rank` and `qk_rope_head_dim` numbers."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: str,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        layer_num: int,
        *,
        widths: dict[str, tuple[int, str]] | None = None,
        **options: Any,
    ) -> None:
        self.rank, self.rope = kv_lora_rank, qk_rope_head_dim
        own = {"latent": (kv_lora_rank + qk_rope_head_dim, dtype)}
        super().__init__(size, page_size, dtype, layer_num, widths or own, **options)

    def set_kv_buffer(self, layer: int, loc_info: Any, cache_k: Rows, source: str) -> None:
        """Whole rows."""
        self._store(layer, loc_info, self.as_stored(cache_k, source, None))

    def set_mla_kv_buffer(
        self, layer: int, loc_info: Any, cache_k_nope: Rows, cache_k_rope: Rows, source: str
    ) -> None:
        """Rows from their two parts."""
        if len(cache_k_nope) != len(cache_k_rope):
            raise Refused("WrongShape")
        pairs = zip(cache_k_nope, cache_k_rope, strict=True)
        self._store(layer, loc_info, [self.joined(a, b, source) for a, b in pairs])

    def joined(self, nope: list[int], rope: list[int], source: str) -> list[int]:
        """A row as it is stored."""
        (row,) = self.as_stored([nope + rope], source, None)
        return row

    def _store(self, layer: int, loc_info: Any, rows: Rows) -> None:
        self.require_marked(loc_info)
        self.require_layer(layer)
        slots = as_loc(loc_info).loc
        if len(slots) != len(rows):
            raise Refused("WrongShape")
        refuse_smallest(self.beyond(slots))
        self.write("latent", layer, slots, rows)

    def get_value_buffer(self, layer: int) -> Rows:
        """The heads of a layer's rows."""
        self.require_layer(layer)
        return [row[: self.rank] for row in self.content["latent"][layer]]

    def get_kv_size_bytes(self) -> int:
        """Bytes of the rows."""
        return self.bytes_of("latent")


class DSATokenToKVPool(MLATokenToKVPool):
    """Latents, packed into bytes if `packed`, and for layers that aren't skipped index keys."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: str,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        layer_num: int,
        *,
        packed: bool = False,
        skip_topk_layers: Sequence[bool] | None = None,
        **options: Any,
    ) -> None:
        self.packed = packed
        self.skipped = list(skip_topk_layers or [False] * layer_num)
        tiles = kv_lora_rank // TILE
        latent = (kv_lora_rank + qk_rope_head_dim, dtype)
        if packed:
            latent = (kv_lora_rank + 4 * tiles + 2 * qk_rope_head_dim, "uint8")
        widths = {"latent": latent, "index_k": (TILE, "uint8"), "index_scale": (4, "uint8")}
        super().__init__(
            size, page_size, dtype, kv_lora_rank, qk_rope_head_dim, layer_num, widths=widths,
            **options,
        )  # fmt: skip

    def layers_of(self, name: str) -> list[int]:
        """Skipped layers have no index keys."""
        layers = super().layers_of(name)
        if name == "latent":
            return layers
        return [layer for layer, skip in zip(layers, self.skipped, strict=True) if not skip]

    def set_kv_buffer(self, *args: Any, **kwargs: Any) -> None:
        """Whole rows, unless they are packed."""
        if self.packed:
            raise Refused("Unsupported")
        super().set_kv_buffer(*args, **kwargs)

    def joined(self, nope: list[int], rope: list[int], source: str) -> list[int]:
        """Packed: fp8 numbers, a float32 scale for each 128, bfloat16 ones; all as bytes."""
        if not self.packed:
            return super().joined(nope, rope, source)
        codes: list[int] = []
        scales: list[int] = []
        for begin in range(0, self.rank, TILE):
            values = [decode(code, source) for code in nope[begin : begin + TILE]]
            scale = encode(max(abs(value) for value in values) / decode(0x7E, FP8), "float32")
            by = decode(scale, "float32") or 1.0
            codes += [encode(decode(encode(v / by, "float32"), "float32"), FP8) for v in values]
            scales += as_bytes(scale, 4)
        tail = [converted(code, source, "bfloat16", None) for code in rope]
        return codes + scales + [byte for code in tail for byte in as_bytes(code, 2)]

    def set_index_k_scale_buffer(
        self, layer: int, loc_info: Any, index_k: Rows, index_k_scale: Rows
    ) -> None:
        """Keys and scales, as bytes."""
        self.require_marked(loc_info)
        self.require_layer(layer)
        if layer not in self.content["index_k"]:
            raise Refused("Unsupported")
        slots = as_loc(loc_info).loc
        if not len(slots) == len(index_k) == len(index_k_scale):
            raise Refused("WrongShape")
        refuse_smallest(self.beyond(slots))
        self.write("index_k", layer, slots, index_k)
        self.write("index_scale", layer, slots, index_k_scale)

    def get_kv_size_bytes(self) -> int:
        """Bytes of the rows, and of index pages: 132 for each slot of whole pages."""
        pages = (self.size + self.page_size + 1) // self.page_size
        keys = pages * self.page_size * (TILE + 4) * len(self.content["index_k"])
        return super().get_kv_size_bytes() + keys


def as_bytes(code: int, count: int) -> list[int]:
    """The bytes of a code, as they lie in memory."""
    return list(code.to_bytes(count, "little"))
