"""SGLang 0.5.23's own pool of sparse latent attention, on a CPU: its kernels are interpreted.

It has pages of 64 slots and latents of whole tiles alone, and goes to the host by whole pages of
index keys; so it is held against ours by calls of its own, not by the commands of `kv_pools`.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from properties.subjects.sglang_kv_pools import alone, captured_nowhere
from properties.subjects.sglang_standins import pool_class

PAGE_SIZE, RANK, ROPE, LAYERS = 64, 128, 64, 2
#: the second layer has no index keys
SKIPPED = (False, True)


class SglangDSA:
    """Its `DSATokenToKVPool` of some slots; rows are packed where their width says so."""

    def __init__(self, size: int, dtype: torch.dtype, width: int) -> None:
        with alone():
            self.pool = pool_class("DSATokenToKVPool")(
                size=size, page_size=PAGE_SIZE, dtype=dtype, kv_lora_rank=RANK,
                qk_rope_head_dim=ROPE, layer_num=LAYERS, device="cpu", index_head_dim=128,
                enable_memory_saver=False, kv_cache_dim=width, skip_topk_layers=list(SKIPPED),
            )  # fmt: skip

    def call(self, method: str, layer: int | None, *args: Any) -> Any:
        """A call about a layer, or about all of them. There is no GPU to be waited for."""
        given = list(args)
        if layer is not None:
            given.insert(0, layer if "index" in method else SimpleNamespace(layer_id=layer))
        with ExitStack() as stack:
            stack.enter_context(alone())
            stack.enter_context(captured_nowhere())
            stack.enter_context(mock.patch.object(torch.cuda, "synchronize"))
            return getattr(self.pool, method)(*given)
