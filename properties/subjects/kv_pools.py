"""Our own KV pools as a subject: codes in and out, tensors between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from impl import PoolError
from impl.storage.buffers import KVBuffer
from impl.storage.dsa import DSATokenToKVPool
from impl.storage.hybrid_linear import HybridCopy, HybridLinearKVPool
from impl.storage.mha import MHATokenToKOnlyPool, MHATokenToKVPool
from impl.storage.mla import MLATokenToKVPool
from impl.storage.packed import calculate_mla_kv_cache_dim
from impl.storage.swa_kv import SWACopy, SWAKVPool
from impl.storage.write_loc import KVWriteLoc
from properties.commands import Call
from properties.subjects.allocated import require_reported
from properties.subjects.kv_pools_reference import Content, dtype_of, normal, shown
from properties.subjects.protocol import TensorSubject

INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
BYTE = 8


POOLS = (
    MHATokenToKVPool, MHATokenToKOnlyPool, MLATokenToKVPool, DSATokenToKVPool, HybridLinearKVPool,
    SWAKVPool,
)  # fmt: skip


class _Gate:
    """Notes for which layers a reader waits."""

    def __init__(self) -> None:
        self.waited: list[int] = []

    def wait_until(self, threshold: int) -> None:
        self.waited.append(threshold)


class KVPools(TensorSubject):
    """A pool of a config; writes by codes, reads as codes."""

    names_kinds: ClassVar[bool] = True
    refusals: ClassVar[tuple[type[Exception], ...]] = (PoolError,)

    def __init__(self, config: Any, pool: Any, device: str) -> None:
        super().__init__(pool, device=device)
        # which of them a config has its kind says, to commands too
        self.calls = frozenset(
            name for kind in POOLS for name in dir(kind) if not name.startswith("_")
        )
        self.config = config
        self.gate = pool.layer_transfer_gate = _Gate()
        if config.kind == "swa":
            end = config.size + config.page_size
            self._register_mapping(0, (*(0,) * end, -1))

    @property
    def sides(self) -> dict[str, Any]:
        """The pools that have buffers, as the reference names them."""
        if self.config.kind == "swa":
            return {"full": self.target.full_kv_pool, "swa": self.target.swa_kv_pool}
        return {"": self.target}

    def call(self, call: Call) -> Any:
        self.lent, self.passed = [], []
        self.gate.waited = []
        special = getattr(self, f"_{call.method}", None)
        if special is None or call.distortion is not None:
            return super().call(call)
        return special(**call.args)

    def settle(self) -> None:
        """What a call deferred is raised behind it, as if at the call; the pool goes on."""
        try:
            self.target.check()
        except PoolError:
            self.target.recover()
            raise

    # ---- writes --------------------

    def _codes(self, rows: Sequence[Sequence[int]], dtype: str, *shape: int) -> torch.Tensor:
        """Codes as a tensor of their type."""
        kind = torch.uint8 if dtype == "uint8" else getattr(torch, dtype)
        bits = BYTE * kind.itemsize
        signed = [code - (code >> (bits - 1) << bits) if bits > BYTE else code
                  for row in rows for code in row]  # fmt: skip
        made = torch.tensor(signed, dtype=INTS[kind.itemsize], device=self.device).view(kind)
        if not rows:
            return made.reshape(0, *(max(each, 0) for each in shape))
        return made.reshape(len(rows), *shape)

    def _loc(self, loc: Any, swa_loc: Any, marked: bool) -> Any:
        slots = [
            None if each is None else self._tensor(list(each), "int64") for each in (loc, swa_loc)
        ]
        if not marked and swa_loc is None:
            return slots[0]
        assert slots[0] is not None
        return KVWriteLoc(slots[0], slots[1], physical=marked)

    def _keys(self, rows: Any, source: str) -> torch.Tensor:
        if self.config.is_latent:
            return self._codes(rows, source, 1, self.config.rank + self.config.v_dim)
        return self._codes(rows, source, self.config.heads, self.config.dim)

    def _values(self, rows: Any, source: str) -> torch.Tensor:
        return self._codes(rows, source, self.config.heads, self.config.v_dim)

    def _write(self, method: str, *args: Any) -> None:
        """A call that leaves its arguments as they are."""
        kept = [each.clone() if isinstance(each, torch.Tensor) else None for each in args]
        getattr(self.target, method)(*args)
        for each, before in zip(args, kept, strict=True):
            if before is not None:
                assert bytes_of(each) == bytes_of(before), f"{method} wrote to its arguments"

    def _set_kv_buffer(
        self, loc: Any, swa_loc: Any, marked: bool, layer: int, source: str, k: Any,
        k_scale: Any = None, v: Any = None, v_scale: Any = None,
    ) -> None:  # fmt: skip
        target = self._loc(loc, swa_loc, marked)
        if self.config.is_latent:
            self._write("set_kv_buffer", layer, target, self._keys(k, source))
        else:
            values = self._keys(k, source), self._values(v, source)
            self._write("set_kv_buffer", layer, target, *values, k_scale, v_scale)

    def _set_k_buffer(
        self, loc: Any, swa_loc: Any, marked: bool, layer: int, source: str, k: Any, k_scale: Any
    ) -> None:
        target = self._loc(loc, swa_loc, marked)
        self._write("set_k_buffer", layer, target, self._keys(k, source), k_scale)

    def _set_mla_kv_buffer(
        self, loc: Any, swa_loc: Any, marked: bool, layer: int, source: str, nope: Any, rope: Any
    ) -> None:
        parts = (
            self._codes(nope, source, 1, self.config.rank),
            self._codes(rope, source, 1, self.config.v_dim),
        )
        self._write("set_mla_kv_buffer", layer, self._loc(loc, swa_loc, marked), *parts)

    def _set_index_k_scale_buffer(
        self, loc: Any, swa_loc: Any, marked: bool, layer: int, index_k: Any, index_scale: Any
    ) -> None:
        keys = self._codes(index_k, "uint8", 128)
        scales = self._codes(index_scale, "uint8", 4).view(torch.float32)
        target = self._loc(loc, swa_loc, marked)
        self._write("set_index_k_scale_buffer", layer, target, keys, scales)

    def _set_kv_buffer_prefix_valid(
        self, layer: int, loc_2d: Any, source: str, commit_lens: Any, k: Any, v: Any
    ) -> None:
        loc = self._tensor([slot for row in loc_2d for slot in row], "int64")
        lens = self._tensor(list(commit_lens), "int64")
        self._write(
            "set_kv_buffer_prefix_valid", layer, loc.reshape(len(loc_2d), -1 if loc_2d else 3),
            lens, self._keys(k, source), self._values(v, source),
        )  # fmt: skip

    def _register_mapping(self, variant: int, mapping: Any) -> None:
        self.target.register_mapping(torch.tensor(mapping, device=self.device))

    # ---- reads --------------------

    def _lines(self, tensor: torch.Tensor) -> list[list[int]]:
        """A buffer as codes, a row for each slot."""
        name = "latent" if self.config.is_latent else "k"
        found = {name: {0: codes(tensor, dtype_of(self.config, name))}}
        rows: list[list[int]] = normal(self.config, found)[name][0]
        return rows

    def plain(self, value: Any) -> Any:
        """Buffers as codes, with the layers that were waited for; ids as lists."""
        if isinstance(value, torch.Tensor) and value.dtype is torch.int64 and value.dim() == 1:
            return super().plain(value)
        return value

    def _read(self, method: str, layer_id: int) -> Any:
        found = getattr(self.target, method)(layer_id)
        if isinstance(found, tuple):
            return tuple(self._lines(each) for each in found), self.gate.waited
        return self._lines(found), self.gate.waited

    def _get_key_buffer(self, layer_id: int) -> Any:
        return self._read("get_key_buffer", layer_id)

    def _get_value_buffer(self, layer_id: int) -> Any:
        return self._read("get_value_buffer", layer_id)

    def _get_kv_buffer(self, layer_id: int) -> Any:
        return self._read("get_kv_buffer", layer_id)

    def _view_kv_buffer(self, layer_id: int) -> Any:
        return self._read("view_kv_buffer", layer_id)

    def _view_key_buffer(self, layer_id: int) -> Any:
        return self._read("view_key_buffer", layer_id)

    def _get_mla_kv_buffer(self, layer: int, loc: Any) -> Any:
        parts = self.target.get_mla_kv_buffer(layer, self._tensor(list(loc), "int64"))
        return tuple(self._lines(each) for each in parts)

    def _get_index_k_with_scale_buffer(self, layer_id: int) -> Any:
        return self.target.get_index_k_with_scale_buffer(layer_id).tolist(), self.gate.waited

    def _get_index_k_scale_buffer(self, layer_id: int, seq_lens: Any, page_indices: Any) -> Any:
        found = self.target.get_index_k_scale_buffer(
            layer_id, self._tensor(list(seq_lens), "int64"),
            torch.tensor(page_indices, device=self.device), sum(seq_lens),
        )  # fmt: skip
        return tuple(each.tolist() for each in found)

    # ---- copies --------------------

    def _get_cpu_copy(self, indices: list[int]) -> Any:
        copy = self.target.get_cpu_copy(self._tensor(indices, "int64"))
        if self.config.kind == "swa":
            found = self._contents("full", copy.full), self._contents("swa", copy.swa)
            return *found, copy.swa_mask.tolist()
        return self._contents("", copy.kv if self.config.kind == "hybrid" else copy)

    def _layers(self, side: str) -> list[list[KVBuffer]]:
        pool = self.sides[side]
        inner = pool.full_kv_pool if self.config.kind == "hybrid" else pool
        found: list[list[KVBuffer]] = inner._by_layer()
        return found

    def _contents(self, side: str, copy: Any) -> Content:
        """A host copy as codes; it is overwritten, so that shared storage shows."""
        found: Content = {}
        for buffers, chunks in zip(self._layers(side), copy, strict=True):
            for at, buffer in enumerate(buffers):
                words = torch.cat([chunk[at] for chunk in chunks])
                dtype = dtype_of(self.config, buffer.name)
                rows = codes(words.view(torch.uint8), dtype)
                found.setdefault(buffer.name, {})[buffer.layer] = rows
                for chunk in chunks:
                    chunk[at].fill_(1)
        content: Content = normal(self.config, found)
        return content

    def _load_cpu_copy(self, copy: Any, indices: list[int]) -> None:
        if self.config.kind == "swa":
            full, swa, mask = copy
            whole: Any = SWACopy(
                self._copy("full", full),
                self._copy("swa", swa),
                torch.tensor(mask, dtype=torch.bool),
            )
        else:
            whole = self._copy("", copy)
        if self.config.kind == "hybrid":
            whole = HybridCopy(whole, None)
        self.target.load_cpu_copy(whole, self._tensor(indices, "int64"))

    def _copy(self, side: str, content: Content) -> Any:
        """Codes as a host copy of one chunk."""
        found = []
        for buffers in self._layers(side):
            chunk = []
            for buffer in buffers:
                dtype = dtype_of(self.config, buffer.name)
                rows = self._codes(content[buffer.name][buffer.layer], dtype, -1).cpu() \
                    if content[buffer.name][buffer.layer] \
                    else torch.empty(0, buffer.row_bytes, dtype=torch.uint8)  # fmt: skip
                chunk.append(rows.contiguous().view(torch.uint8).view(buffer.rows.dtype))
            found.append([chunk])
        return found

    # ---- reports --------------------

    def _get_kv_size_bytes(self) -> Any:
        found = self.target.get_kv_size_bytes()
        require_reported(self.target, found)
        return list(found) if isinstance(found, tuple) else found

    def _get_contiguous_buf_infos(self) -> list[list[int]]:
        return lines(*self.target.get_contiguous_buf_infos())

    def _get_state_buf_infos(self) -> list[list[int]]:
        return lines(*self.target.get_state_buf_infos())

    # ---- what is seen --------------------

    def observe(self) -> dict[str, Any]:
        return shown(self.config, {name: self._content(pool) for name, pool in self.sides.items()})

    def _content(self, pool: Any) -> Content:
        inner = pool.full_kv_pool if self.config.kind == "hybrid" else pool
        every = torch.arange(inner.num_rows, device=self.device)
        found: Content = {}
        for buffer in inner.buffers:
            dtype = dtype_of(self.config, buffer.name)
            rows = codes(buffer.gather(every).view(torch.uint8), dtype)
            found.setdefault(buffer.name, {})[buffer.layer] = rows
        return found

    def audit(self) -> list[str]:
        found: list[str] = self.target.audit()
        return found


def codes(tensor: torch.Tensor, dtype: str) -> list[list[int]]:
    """Rows of a tensor, of bytes or of a type, as codes."""
    kind = torch.uint8 if dtype == "uint8" else getattr(torch, dtype)
    flat = tensor.flatten(1).contiguous().view(torch.uint8)
    if not flat.numel():
        return [[] for _ in range(flat.shape[0])]
    rows: list[list[int]] = flat.view(INTS[kind.itemsize]).tolist()
    mask = (1 << (BYTE * kind.itemsize)) - 1
    return [[code & mask for code in row] for row in rows]


def bytes_of(tensor: torch.Tensor) -> list[int]:
    """All bytes of a tensor."""
    found: list[int] = tensor.reshape(-1).view(torch.uint8).tolist()
    return found


def lines(addresses: list[int], *sizes: list[int]) -> list[list[int]]:
    """Sizes, buffer by buffer, which lie apart."""
    there = [address for address, size in zip(addresses, sizes[0], strict=True) if size]
    assert len(set(there)) == len(there)
    return [list(line) for line in zip(*sizes, strict=True)]


def make(config: Any, device: str, **options: Any) -> KVPools:
    """The pool of a config."""
    common: dict[str, Any] = {
        "size": config.size, "page_size": config.page_size, "dtype": getattr(torch, config.dtype),
        "requires_physical_write_loc": config.marked, "device": device, **options,
    }  # fmt: skip
    heads = {"head_num": config.heads, "head_dim": config.dim}
    pool: Any
    if config.kind == "swa":
        pool = SWAKVPool(
            size_swa=config.size, swa_attention_layer_ids=config.layer_ids[1::2],
            full_attention_layer_ids=config.layer_ids[::2], v_head_dim=config.v_dim,
            **heads, **common,
        )  # fmt: skip
    elif config.is_latent:
        common |= {"kv_lora_rank": config.rank, "qk_rope_head_dim": config.v_dim}
        common |= {"layer_num": config.layers, "start_layer": config.start}
        if config.kind == "mla":
            pool = MLATokenToKVPool(**common)
        else:
            width = calculate_mla_kv_cache_dim(
                config.rank, config.v_dim, common["dtype"], is_dsa=config.kind == "packed"
            )
            pool = DSATokenToKVPool(
                kv_cache_dim=width, skip_topk_layers=config.skipped, **common
            )  # fmt: skip
    elif config.kind == "k_only":
        pool = MHATokenToKOnlyPool(
            layer_num=config.layers, start_layer=config.start, **heads, **common
        )
    else:
        common |= {"layer_num": config.layers, "v_head_dim": config.v_dim, **heads}
        if config.kind == "mha":
            pool = MHATokenToKVPool(start_layer=config.start, **common)
        else:
            pool = HybridLinearKVPool(MHATokenToKVPool(**common), config.layer_ids)
    return KVPools(config, pool, device)
