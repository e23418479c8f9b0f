"""The reference of the KV pools behind the Subject interface: codes in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from properties.commands import Call
from reference.refusal import Refused
from reference.storage import (
    DSATokenToKVPool,
    HybridLinearKVPool,
    KVWriteLoc,
    MHATokenToKOnlyPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    SWAKVPool,
)
from reference.storage.floats import plain, size_bytes

Content = dict[str, dict[int, list[list[int]]]]


class KVPoolsReference:
    """A pool of a config, with the map of its windows."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.variant = 0
        self.pool: Any = made(config)
        #: name → the pools that have buffers
        self.sides: dict[str, Any] = {"": self.pool}
        if config.kind == "hybrid":
            self.sides = {"": self.pool.full_kv_pool}
        if config.kind == "swa":
            self.pool.mapping = [0] * (config.size + config.page_size) + [-1]
            self.sides = {"full": self.pool.full_kv_pool, "swa": self.pool.swa_kv_pool}

    @property
    def target(self) -> KVPoolsReference:
        """What a model reads: all of it."""
        return self

    def call(self, call: Call) -> Any:
        return getattr(self, f"_{call.method}", self._plainly)(call.method, dict(call.args))

    def _plainly(self, method: str, args: dict[str, Any]) -> Any:
        target = self.sides.get("", self.pool)
        return normal(self.config, getattr(target, method)(**args))

    # ---- writes --------------------

    def _write(self, method: str, args: dict[str, Any], *values: Any) -> None:
        loc = KVWriteLoc(args["loc"], args["swa_loc"], None, args["marked"])
        if self.config.kind in ("hybrid", "swa"):
            self.pool.write(method, args["layer"], loc, *values)
        else:
            getattr(self.pool, method)(args["layer"], loc, *values)

    def _set_kv_buffer(self, method: str, args: dict[str, Any]) -> None:
        rows = [args["k"]] if self.config.is_latent else [args["k"], args["v"]]
        scales = [] if self.config.is_latent else [args["k_scale"], args["v_scale"]]
        self._write(method, args, *rows_of(rows), args["source"], *scales)

    def _set_k_buffer(self, method: str, args: dict[str, Any]) -> None:
        self._write(method, args, *rows_of([args["k"]]), args["source"], args["k_scale"])

    def _set_mla_kv_buffer(self, method: str, args: dict[str, Any]) -> None:
        self._write(method, args, *rows_of([args["nope"], args["rope"]]), args["source"])

    def _set_index_k_scale_buffer(self, method: str, args: dict[str, Any]) -> None:
        self._write(method, args, *rows_of([args["index_k"], args["index_scale"]]))

    def _set_kv_buffer_prefix_valid(self, method: str, args: dict[str, Any]) -> None:
        rows = rows_of([args["k"], args["v"]])
        self.pool.set_kv_buffer_prefix_valid(
            args["layer"], args["loc_2d"], args["commit_lens"], *rows, args["source"]
        )

    # ---- both sides --------------------

    def _register_mapping(self, method: str, args: dict[str, Any]) -> None:
        self.variant = args["variant"]
        self.pool.mapping = list(args["mapping"])

    def _move_kv_cache(self, method: str, args: dict[str, Any]) -> None:
        target = self.pool if self.config.kind == "swa" else self.sides[""]
        target.move_kv_cache(**args)

    def _get_cpu_copy(self, method: str, args: dict[str, Any]) -> Any:
        if self.config.kind != "swa":
            return normal(self.config, self.sides[""].get_cpu_copy(**args))
        full, swa, mask = self.pool.get_cpu_copy(**args)
        return normal(self.config, full), normal(self.config, swa), mask

    def _load_cpu_copy(self, method: str, args: dict[str, Any]) -> None:
        target = self.pool if self.config.kind == "swa" else self.sides[""]
        target.load_cpu_copy(**args)

    # ---- reads --------------------

    def _read(self, method: str, args: dict[str, Any]) -> Any:
        layer, config = args["layer_id"], self.config
        if layer not in config.layer_ids:
            raise Refused("OutOfRange")
        if config.kind == "k_only" and "key" not in method:
            raise Refused("Unsupported")
        place = config.layer_ids.index(layer)
        side: Any = self.sides.get("")
        at = layer
        if config.kind == "hybrid":
            at = place
        if config.kind == "swa":
            side = self.sides["swa" if layer % 2 else "full"]
            at = layer // 2
        waited = [] if method.startswith("view") else [place if at == layer else layer]
        names = {"get_key_buffer": "k", "view_key_buffer": "k", "get_value_buffer": "v"}
        if config.is_latent:
            rows = normal(config, {"latent": side.content["latent"]})["latent"][at]
            heads = [row[: config.rank] for row in rows]
            return {"v": heads, "k": rows}.get(names.get(method, ""), (rows, heads)), waited
        found = normal(config, side.content)
        if method in names:
            return found[names[method]][at], waited
        return (found["k"][at], found["v"][at]), waited

    _get_key_buffer = _get_value_buffer = _get_kv_buffer = _read
    _view_kv_buffer = _view_key_buffer = _read

    def _get_mla_kv_buffer(self, method: str, args: dict[str, Any]) -> Any:
        rows = normal(self.config, self.pool.content)["latent"][args["layer"]]
        chosen, rank = [rows[slot] for slot in args["loc"]], self.config.rank
        return [row[:rank] for row in chosen], [row[rank:] for row in chosen]

    def _pages(self, layer: int) -> list[list[int]]:
        """Index pages: keys of all slots, then their scales; one page may be beyond the slots."""
        size = self.config.page_size
        keys, scales = (self.pool.content[name][layer] for name in ("index_k", "index_scale"))
        found = []
        for page in range((self.config.size + size + 1) // size):
            slots = range(page * size, page * size + size)
            inside = [slot for slot in slots if slot < len(keys)]
            line = [byte for slot in inside for byte in keys[slot]]
            line += [0] * 128 * (size - len(inside))
            line += [byte for slot in inside for byte in scales[slot]]
            found.append(line + [0] * 4 * (size - len(inside)))
        return found

    def _get_index_k_with_scale_buffer(self, method: str, args: dict[str, Any]) -> Any:
        layer = args["layer_id"]
        self.pool.require_layer(layer)
        if layer not in self.pool.content["index_k"]:
            raise Refused("Unsupported")
        return self._pages(layer), [layer - self.config.start]

    def _get_index_k_scale_buffer(self, method: str, args: dict[str, Any]) -> Any:
        content, layer = self.pool.content, args["layer_id"]
        slots = [
            pages[at // self.config.page_size] * self.config.page_size + at % self.config.page_size
            for pages, length in zip(args["page_indices"], args["seq_lens"], strict=True)
            for at in range(length)
        ]
        return tuple(
            [list(content[name][layer][slot]) for slot in slots]
            for name in ("index_k", "index_scale")
        )

    # ---- reports --------------------

    def _get_kv_size_bytes(self, method: str, args: dict[str, Any]) -> Any:
        found = [side.get_kv_size_bytes() for side in self.sides.values()]
        if self.config.kind == "swa":
            return [one + other for one, other in zip(*found, strict=True)]
        return list(found[0]) if isinstance(found[0], tuple) else found[0]

    def _get_contiguous_buf_infos(self, method: str, args: dict[str, Any]) -> Any:
        return self._infos(next(iter(self.sides.values())), ("k", "v", "latent"))

    def _get_state_buf_infos(self, method: str, args: dict[str, Any]) -> Any:
        if self.config.kind == "swa":
            return self._infos(self.sides["swa"], ("k", "v"))
        item = self.config.page_size * 132
        pages = (self.config.size + self.config.page_size + 1) // self.config.page_size
        return [[0, 0] if skip else [pages * item, item] for skip in self.config.skipped]

    def _infos(self, side: Any, names: Sequence[str]) -> list[list[int]]:
        """Bytes, and bytes of a page, of each buffer."""
        found = []
        for name in names:
            if name in side.widths:
                width, dtype = side.widths[name]
                row = width * size_bytes(dtype)
                found += [[row * side.end, row * side.page_size]] * len(side.content[name])
        return found

    def _get_kv_layer_ids(self, method: str, args: dict[str, Any]) -> list[int]:
        return list(self.config.layer_ids) * 2

    def _translate_kv_indices_for_transfer(self, method: str, args: dict[str, Any]) -> list[int]:
        return list(args["kv_indices"])

    def _translate_loc_from_full_to_swa(self, method: str, args: dict[str, Any]) -> list[int]:
        return [self.pool.mapping[slot] for slot in args["kv_indices"]]

    def observe(self) -> dict[str, Any]:
        return shown(self.config, {name: side.content for name, side in self.sides.items()})


def rows_of(values: Sequence[Any]) -> list[list[list[int]]]:
    """Tuples of codes as lists."""
    return [[list(row) for row in each] for each in values]


def dtype_of(config: Any, name: str) -> str:
    """The type of a buffer's codes."""
    if name.startswith("index") or (name == "latent" and config.kind == "packed"):
        return "uint8"
    found: str = config.dtype
    return found


def normal(config: Any, content: Any) -> Any:
    """Content in which every NaN is one."""
    if not isinstance(content, dict):
        return content
    found: Content = {}
    for name, layers in content.items():
        dtype = dtype_of(config, name)
        found[name] = {
            layer: [
                list(row) if dtype == "uint8" else [plain(code, dtype) for code in row]
                for row in rows
            ]
            for layer, rows in layers.items()
        }
    return found


def shown(config: Any, sides: dict[str, Content]) -> dict[str, Any]:
    """What is compared: the first page by itself, the other slots by buffer."""
    found: dict[str, Any] = {}
    reserved: list[Any] = []
    for side, content in sides.items():
        for name, layers in normal(config, content).items():
            lines = [rows for _, rows in sorted(layers.items())]
            found[f"{side}{name}"] = [rows[config.page_size :] for rows in lines]
            reserved += [rows[: config.page_size] for rows in lines]
    return {**found, "reserved": reserved}


def made(config: Any) -> Any:
    """The pool of a config."""
    options: dict[str, Any] = {"requires_physical_write_loc": config.marked}
    common = (config.size, config.page_size, config.dtype)
    if config.is_latent:
        widths = (config.rank, config.v_dim, config.layers)
        options["start_layer"] = config.start
        if config.kind == "mla":
            return MLATokenToKVPool(*common, *widths, **options)
        return DSATokenToKVPool(
            *common, *widths, packed=config.kind == "packed", skip_topk_layers=config.skipped,
            **options,
        )  # fmt: skip
    widths = (config.heads, config.dim, config.layers)
    if config.kind == "k_only":
        return MHATokenToKOnlyPool(*common, *widths, start_layer=config.start, **options)
    options["v_head_dim"] = config.v_dim
    if config.kind == "mha":
        return MHATokenToKVPool(*common, *widths, start_layer=config.start, **options)
    dense = MHATokenToKVPool(*common, *widths, **options)
    if config.kind == "hybrid":
        return HybridLinearKVPool(dense, config.layer_ids)
    windows = MHATokenToKVPool(*common, *widths, **options)
    return SWAKVPool(dense, windows, config.layer_ids[1::2], config.layer_ids[::2])
