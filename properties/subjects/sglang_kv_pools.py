"""SGLang 0.5.23's own pools of KV, made on a CPU by our configs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import torch

from properties.subjects.sglang_standins import module, pool_class


@contextmanager
def captured_nowhere() -> Iterator[None]:
    """Its writes ask a module for whether a graph is captured, which imports whole engines."""
    name = "sglang.srt.model_executor.runner"
    if name in sys.modules:
        yield
        return
    made = ModuleType(name, "Stands in for a module while SGLang's pools are written to.")
    vars(made)["get_is_capture_mode"] = lambda: False
    sys.modules[name] = made
    try:
        yield
    finally:
        del sys.modules[name]


def alone() -> AbstractContextManager[Any]:
    """What its latents ask for: this process has all of a batch."""
    parallel = importlib.import_module("sglang.srt.runtime_context").get_parallel()
    found: AbstractContextManager[Any] = parallel.override(
        dcp_enabled=False, attn_dcp_size=1, attn_dcp_rank=0
    )
    return found


def heads_pool(**arguments: Any) -> Any:
    """Its pool of heads, which quantises nothing."""
    return pool_class("MHATokenToKVPool")(quant_method=unquantised(), **arguments)


def unquantised() -> Any:
    """A recipe that quantises nothing, of which only its class is asked for."""
    return object.__new__(module("sglang.srt.mem_cache.memory_pool").UnquantizedKVCacheMethod)


def by_indexing(pool: Any, *, always: bool) -> None:
    """Moves without the kernel, as an environment variable of its own chooses."""
    for side in (pool, *(getattr(pool, name, pool) for name in ("full_kv_pool", "swa_kv_pool"))):
        if hasattr(side, "use_native_move_kv_cache"):
            side.use_native_move_kv_cache = always


def pool_of(config: Any) -> Any:
    """SGLang's pool of a config, on the CPU."""
    dtype = getattr(torch, config.dtype)
    own: dict[str, Any] = {
        "size": config.size, "page_size": config.page_size, "dtype": dtype, "device": "cpu",
        "enable_memory_saver": False,
    }  # fmt: skip
    layers = {"layer_num": config.layers}
    ranged = {
        **own, **layers, "start_layer": config.start, "end_layer": config.start + config.layers,
    }  # fmt: skip
    heads = {"head_num": config.heads, "head_dim": config.dim}
    both = {**heads, "v_head_dim": config.v_dim, "enable_kv_cache_copy": True}
    if config.kind == "mla":
        widths = {"kv_lora_rank": config.rank, "qk_rope_head_dim": config.v_dim}
        return pool_class("MLATokenToKVPool")(**widths, **ranged)
    if config.kind == "k_only":
        return pool_class("MHATokenToKOnlyPool")(**heads, **ranged)
    if config.kind == "mha":
        return heads_pool(**both, **ranged)
    if config.kind == "hybrid":
        dense = heads_pool(**both, **own, **layers)
        return pool_class("HybridLinearKVPool")(
            full_attention_layer_ids=list(config.layer_ids), mamba_pool=None, full_kv_pool=dense,
            **heads, **own,
        )  # fmt: skip
    return pool_class("SWAKVPool")(
        size_swa=config.size, swa_attention_layer_ids=list(config.layer_ids[1::2]),
        full_attention_layer_ids=list(config.layer_ids[::2]), quant_method=unquantised(),
        **both, **own,
    )  # fmt: skip
