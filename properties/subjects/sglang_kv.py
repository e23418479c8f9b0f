"""SGLang 0.5.23's own pools of KV, unmodified, as a subject; what they do wrong under legal use.

They import by way of `sglang_standins`. What a padded lane leaves in the first page isn't shown:
SGLang writes there, which is its right (`spec/pools_states_sizing.md` §0.2). Values are such that
all types hold them: beyond their range torch, which converts there, has other answers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from properties.commands import Call
from properties.subjects.kv_pools import KVPools, codes
from properties.subjects.kv_pools_reference import Content, dtype_of, normal, shown
from properties.subjects.sglang_kv_pools import alone, by_indexing, captured_nowhere, pool_of
from properties.subjects.sglang_standins import pool_class

#: configs that it has: heads, keys alone, latents, hybrid, windows
FAMILIES = (0, 1, 2, 5, 6)
LIMITS: dict[str, tuple[Any, ...]] = {"family": FAMILIES, "tame": (True,)}
#: on a CPU: what only a kernel does, of numbers as wide as models have them, see `sglang_dsa`
_POOLED = frozenset(
    {
        "set_kv_buffer", "move_kv_cache", "get_cpu_copy", "load_cpu_copy",
        "get_key_buffer", "get_value_buffer", "get_kv_buffer", "get_kv_size_bytes",
        "get_contiguous_buf_infos",
    }
)  # fmt: skip
CALLS = {
    "mha": _POOLED,
    "mla": _POOLED,
    # nothing but its keys: no move, no copies
    "k_only": frozenset(
        {"set_k_buffer", "get_key_buffer", "get_value_buffer", "get_kv_buffer", "get_kv_size_bytes"}
    ),
    "hybrid": _POOLED | {"get_kv_layer_ids"},
    "swa": _POOLED | {"register_mapping", "translate_loc_from_full_to_swa", "get_state_buf_infos"},
}
#: legal use that breaks an invariant: method → invariant, kind of pool, and what is wrong
FOUND: dict[str, tuple[str, str, str]] = {
    "move_kv_cache": (
        "I58", "swa", "where only the target has a window, the first page's bytes are moved to it"
    ),
    "set_kv_buffer": (
        "I11", "swa", "the mark of slots is lost on the way to a side, which then refuses them"
    ),
}  # fmt: skip
#: misuse that is accepted somewhere: command → invariant; what isn't here is refused cleanly
MISUSE: dict[str, str] = {
    # a layer below the first is one from the back
    "layer_outside": "I4",
    # refused by torch's indexing, once slots before it were written
    "slot_beyond": "I9",
    "reserved_slot": "I4",
    "moved_twice": "I4",
    "copy_elsewhere": "I4",
    "shape_of_others": "I4",
    "wrong_ids": "I4",
    # pools of keys alone, and of windows, don't look
    "unmarked": "I4",
}


def known_pairs() -> frozenset[tuple[str, str]]:
    """(system, command) of the misuse that it accepts."""
    return frozenset(("kv_pools", name) for name in MISUSE)


class SglangKV(KVPools):
    """One of SGLang's pools."""

    names_kinds: ClassVar[bool] = False
    refusals: ClassVar[tuple[type[Exception], ...]] = (Exception,)

    def __init__(self, config: Any, pool: Any, exposed: str = "") -> None:
        super().__init__(config, pool, "cpu")
        #: a method of `FOUND` whose results aren't mended
        self.exposed = exposed
        self.calls = CALLS[config.kind]
        pool.layer_transfer_counter = self.gate

    def call(self, call: Call) -> Any:
        with captured_nowhere(), alone():
            return super().call(call)

    def settle(self) -> None:
        """Nothing is deferred."""

    def _write(self, method: str, layer: int, *args: Any) -> None:
        """On copies: it divides the values that it is given."""
        given = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
        if self.config.is_latent:
            given.append(None)
        getattr(self.target, method)(SimpleNamespace(layer_id=layer), *given)

    def _set_k_buffer(
        self, loc: Any, swa_loc: Any, marked: bool, layer: int, source: str, k: Any, k_scale: Any
    ) -> None:
        """Bare slots and a place among its layers are what it wants; scales are the caller's."""
        keys = self._keys(k, source)
        if k_scale is not None and keys.dtype != self.target.dtype:
            keys.div_(k_scale)
        place = layer - self.config.start
        if not 0 <= place < self.config.layers:
            raise IndexError(f"layer {layer}")
        self.target.set_k_buffer(place, self._tensor(list(loc), "int64"), keys)

    def _loc(self, loc: Any, swa_loc: Any, marked: bool) -> Any:
        made = super()._loc(loc, swa_loc, marked)
        if isinstance(made, torch.Tensor):
            return made
        return pool_class("KVWriteLoc")(made.loc, made.swa_loc, physical=marked)

    @property
    def sides(self) -> dict[str, Any]:
        if self.config.kind == "hybrid":
            return {"": self.target.full_kv_pool}
        return super().sides

    def _buffers(self, side: str) -> dict[str, list[torch.Tensor]]:
        pool = self.sides[side]
        if self.config.is_latent:
            return {"latent": pool.kv_buffer}
        found = {"k": pool.k_buffer}
        return found if self.config.kind == "k_only" else {**found, "v": pool.v_buffer}

    def _layer(self, place: int) -> int:
        """The layer by which the reference knows one of a side's."""
        inner = self.config.kind in ("hybrid", "swa")
        return place if inner else self.config.start + place

    def _move_kv_cache(self, tgt_loc: list[int], src_loc: list[int]) -> None:
        """Windows that got the first page's bytes get back their own.

        What its kernel does with slots beyond the pool, or with targets that aren't paired, can't
        be tried: it writes outside of the buffers. By indexing they are refused.
        """
        target, source = self._tensor(tgt_loc, "int64"), self._tensor(src_loc, "int64")
        sound = max((*tgt_loc, *src_loc), default=0) < self.config.size + self.config.page_size
        if not sound or len(tgt_loc) != len(src_loc):
            by_indexing(self.target, always=True)
        if self.config.kind != "swa" or self.exposed == "move_kv_cache":
            self.target.move_kv_cache(target, source)
            return
        mapping = self.target.full_to_swa_index_mapping
        unpaired = mapping[target][(mapping[target] > 0) & (mapping[source] == 0)]
        buffers = [each for named in self._buffers("swa").values() for each in named]
        kept = [each[unpaired] for each in buffers]
        self.target.move_kv_cache(target, source)
        for each, rows in zip(buffers, kept, strict=True):
            each[unpaired] = rows

    # ---- copies --------------------

    def _get_cpu_copy(self, indices: list[int]) -> Any:
        copy = self.target.get_cpu_copy(self._tensor(indices, "int64"))
        if self.config.kind == "hybrid":
            return self._contents("", copy[0])
        if self.config.kind != "swa":
            return self._contents("", copy)
        # None where nothing has a window
        windows = copy["swa"] or [[]] * self.config.layers
        sides = self._contents("full", copy["full"]), self._contents("swa", windows)
        return *sides, copy["swa_mask"].tolist()

    def _contents(self, side: str, copy: Any) -> Content:
        found: Content = {name: {} for name in self._buffers(side)}
        for at, chunks in enumerate(copy):
            for place, name in enumerate(found):
                parts = [chunk if self.config.is_latent else chunk[place] for chunk in chunks]
                dtype = dtype_of(self.config, name)
                rows = torch.cat(parts) if parts else torch.empty(0, 1)
                found[name][self._layer(at)] = codes(rows, dtype)
                for each in parts:
                    each.fill_(1)
        content: Content = normal(self.config, found)
        return content

    def _load_cpu_copy(self, copy: Any, indices: list[int]) -> None:
        slots = self._tensor(indices, "int64")
        if self.config.kind == "swa":
            full, windows, mask = copy
            whole: Any = {
                "full": self._copy("full", full),
                "swa": self._copy("swa", windows) if any(mask) else None,
                "swa_mask": torch.tensor(mask, dtype=torch.bool),
            }
        else:
            whole = self._copy("", copy)
        self.target.load_cpu_copy((whole, None) if self.config.kind == "hybrid" else whole, slots)

    def _copy(self, side: str, content: Content) -> Any:
        whole = []
        for at in range(self.config.layers):
            chunk = []
            for name, buffers in self._buffers(side).items():
                rows = content[name][self._layer(at)]
                made = self._codes(rows, self.config.dtype, *buffers[at].shape[1:])
                chunk.append(made.view(buffers[at].dtype))
            whole.append([chunk[0] if self.config.is_latent else chunk])
        return whole

    # ---- reads --------------------

    def _read(self, method: str, layer_id: int) -> Any:
        found, waited = super()._read(method, layer_id)
        # who wants keys and values waits for each
        return found, list(dict.fromkeys(waited))

    def _lines(self, tensor: torch.Tensor) -> list[list[int]]:
        """The first page shows what was never written there."""
        rows, first = super()._lines(tensor), self.config.page_size
        return [[0] * len(row) for row in rows[:first]] + rows[first:]

    def _get_kv_size_bytes(self) -> Any:
        found = self.target.get_kv_size_bytes()
        return [int(each) for each in found] if isinstance(found, tuple) else int(found)

    def observe(self) -> dict[str, Any]:
        found = shown(self.config, {side: self._content(side) for side in self.sides})
        return {key: each for key, each in found.items() if key != "reserved"}

    def _content(self, side: str) -> Content:
        return {
            name: {
                self._layer(at): codes(each, dtype_of(self.config, name))
                for at, each in enumerate(buffers)
            }
            for name, buffers in self._buffers(side).items()
        }

    def audit(self) -> list[str]:
        return []


def make(config: Any, *, exposed: str = "") -> SglangKV:
    """The pool of a config, on the CPU."""
    pool = pool_of(config)
    # its moves are a kernel's, slow where it is interpreted: of small pools only
    by_indexing(pool, always=config.pages > 1)
    # as its pools of virtual ids have it
    inner = {"hybrid": ("full_kv_pool",), "swa": ()}.get(config.kind, ("",))
    if exposed == "set_kv_buffer" and config.kind == "swa":
        inner = ("full_kv_pool", "swa_kv_pool")
    for name in inner:
        getattr(pool, name, pool).requires_physical_write_loc = config.marked
    return SglangKV(config, pool, exposed)
