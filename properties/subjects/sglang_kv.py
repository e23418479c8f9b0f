"""SGLang 0.5.23's own pools of KV, unmodified, as a subject; what they do wrong under legal use.

They import by way of `sglang_standins`. What a padded lane leaves in the first page isn't shown:
SGLang writes there, which is its right (`spec/pools_states_sizing.md` §0.2). Values are such that
all types hold them: beyond their range torch, which converts there, has other answers.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import torch

from properties.commands import Call
from properties.subjects.kv_pools import KVPools, codes
from properties.subjects.kv_pools_reference import Content, dtype_of, normal, shown
from properties.subjects.sglang_standins import module, pool_class

#: configs that it has: heads and latents; slots are never marked
LIMITS: dict[str, tuple[Any, ...]] = {"family": (0, 2), "marked": (False,), "tame": (True,)}
#: on a CPU: its store of latents from two parts is a kernel's alone
CALLS = frozenset(
    {
        "set_kv_buffer", "move_kv_cache", "get_cpu_copy", "load_cpu_copy",
        "get_key_buffer", "get_value_buffer", "get_kv_buffer", "get_kv_size_bytes",
        "get_contiguous_buf_infos",
    }
)  # fmt: skip


class SglangKV(KVPools):
    """SGLang's `MHATokenToKVPool` or `MLATokenToKVPool`."""

    names_kinds: ClassVar[bool] = False
    refusals: ClassVar[tuple[type[Exception], ...]] = (Exception,)

    def __init__(self, config: Any, pool: Any) -> None:
        super().__init__(config, pool, "cpu")
        self.calls = CALLS
        pool.layer_transfer_counter = self.gate

    def call(self, call: Call) -> Any:
        parallel = importlib.import_module("sglang.srt.runtime_context").get_parallel()
        with (
            captured_nowhere(),
            parallel.override(dcp_enabled=False, attn_dcp_size=1, attn_dcp_rank=0),
        ):
            return super().call(call)

    def settle(self) -> None:
        """Nothing is deferred."""

    def _write(self, method: str, layer: int, *args: Any) -> None:
        """On copies: it divides the values that it is given."""
        given = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
        if self.config.is_latent:
            given.append(None)
        getattr(self.target, method)(SimpleNamespace(layer_id=layer), *given)

    @property
    def _buffers(self) -> dict[str, list[torch.Tensor]]:
        if self.config.is_latent:
            return {"latent": self.target.kv_buffer}
        return {"k": self.target.k_buffer, "v": self.target.v_buffer}

    def _get_cpu_copy(self, indices: list[int]) -> Any:
        copy = self.target.get_cpu_copy(self._tensor(indices, "int64"))
        found: Content = {name: {} for name in self._buffers}
        for at, chunks in enumerate(copy):
            for place, name in enumerate(found):
                parts = [chunk if self.config.is_latent else chunk[place] for chunk in chunks]
                dtype = dtype_of(self.config, name)
                rows = torch.cat(parts) if parts else torch.empty(0, 1)
                found[name][self.config.start + at] = codes(rows, dtype)
                for each in parts:
                    each.fill_(1)
        content: Content = normal(self.config, found)
        return content

    def _load_cpu_copy(self, copy: Any, indices: list[int]) -> None:
        whole = []
        for at in range(self.config.layers):
            chunk = []
            for name, buffers in self._buffers.items():
                rows = copy[name][self.config.start + at]
                made = self._codes(rows, self.config.dtype, *buffers[at].shape[1:])
                chunk.append(made.view(buffers[at].dtype))
            whole.append([chunk[0] if self.config.is_latent else chunk])
        self.target.load_cpu_copy(whole, self._tensor(indices, "int64"))

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
        content: Content = {
            name: {
                self.config.start + at: codes(each, dtype_of(self.config, name))
                for at, each in enumerate(buffers)
            }
            for name, buffers in self._buffers.items()
        }
        return {k: v for k, v in shown(self.config, {"": content}).items() if k != "reserved"}

    def audit(self) -> list[str]:
        return []


@contextmanager
def captured_nowhere() -> Iterator[None]:
    """Its writes ask a module for whether a graph is captured, which imports whole engines."""
    name = "sglang.srt.model_executor.runner"
    if name in sys.modules:
        yield
        return
    made = ModuleType(name, "Stands in for a module while SGLang's pools are written to.")
    made.get_is_capture_mode = lambda: False  # type: ignore[attr-defined]
    sys.modules[name] = made
    try:
        yield
    finally:
        del sys.modules[name]


def heads_pool(**arguments: Any) -> Any:
    """Its pool of heads, which quantises nothing."""
    # of the recipe only its class is asked for
    recipe = module("sglang.srt.mem_cache.memory_pool").UnquantizedKVCacheMethod
    return pool_class("MHATokenToKVPool")(quant_method=object.__new__(recipe), **arguments)


def make(config: Any) -> SglangKV:
    """The pool of a config, on the CPU."""
    common: dict[str, Any] = {
        "size": config.size, "page_size": config.page_size, "dtype": getattr(torch, config.dtype),
        "layer_num": config.layers, "device": "cpu", "enable_memory_saver": False,
        "start_layer": config.start, "end_layer": config.start + config.layers,
    }  # fmt: skip
    if config.kind == "mla":
        pool = pool_class("MLATokenToKVPool")(
            kv_lora_rank=config.rank, qk_rope_head_dim=config.v_dim, **common
        )
        return SglangKV(config, pool)
    pool = heads_pool(
        head_num=config.heads, head_dim=config.dim, v_head_dim=config.v_dim,
        enable_kv_cache_copy=True, **common,
    )  # fmt: skip
    return SglangKV(config, pool)
