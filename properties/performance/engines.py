"""Whose allocators and pools are timed: ours, with the checks of values and without, and SGLang's.

SGLang's run as they are: on a GPU with its Triton kernels, on a CPU with its torch fallback. Pools
of KV are also timed beside nothing but tensors: `Plain`.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from impl import (
    MHATokenToKVPool,
    PagedTokenToKVPoolAllocator,
    SWATokenToKVPoolAllocator,
    TokenToKVPoolAllocator,
)

OURS, UNCHECKED, SGLANG, PLAIN = "ours", "ours unchecked", "sglang", "plain"
#: heads of a layer and their width, as a pool of KV has them here
HEADS, WIDTH = 8, 128
DTYPE = torch.bfloat16


class Engine(ABC):
    """Makes the allocators of one contender on `device`."""

    def __init__(self, label: str, device: torch.device) -> None:
        self.label, self.device = label, device

    @abstractmethod
    def paged(self, num_pages: int, page_size: int) -> Any:
        """A paged allocator, everything free."""

    @abstractmethod
    def token(self, size: int) -> Any:
        """A token allocator, everything free."""

    @abstractmethod
    def pair(self, num_pages: int, num_windows: int, page_size: int) -> Any:
        """A sliding-window pair, everything free."""

    @abstractmethod
    def heads(self, size: int, page_size: int, layers: int) -> Any:
        """A pool of keys and values of `HEADS` heads."""

    def writing(self) -> AbstractContextManager[None]:
        """What writes to such a pool take place in."""
        return nullcontext()

    def both(self, host: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A tensor on the device, and its host copy."""
        return host.to(self.device).clone(), host


class Ours(Engine):
    """`impl`."""

    def __init__(self, device: torch.device, *, validate: bool) -> None:
        super().__init__(OURS if validate else UNCHECKED, device)
        self.validate = validate

    def paged(self, num_pages: int, page_size: int) -> PagedTokenToKVPoolAllocator:
        return PagedTokenToKVPoolAllocator(
            num_pages * page_size, page_size, device=self.device, validate=self.validate
        )

    def token(self, size: int) -> TokenToKVPoolAllocator:
        return TokenToKVPoolAllocator(size, device=self.device, validate=self.validate)

    def pair(self, num_pages: int, num_windows: int, page_size: int) -> SWATokenToKVPoolAllocator:
        sizes = (num_pages * page_size, num_windows * page_size, page_size)
        return SWATokenToKVPoolAllocator(*sizes, device=self.device, validate=self.validate)

    def heads(self, size: int, page_size: int, layers: int) -> MHATokenToKVPool:
        shape = (size, page_size, DTYPE, HEADS, WIDTH, layers)
        return MHATokenToKVPool(*shape, device=self.device, validate=self.validate)


class Sglang(Engine):
    """SGLang 0.5.23's own classes."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(SGLANG, device)
        self._common = {
            "dtype": torch.int64,
            "device": str(device),
            "kvcache": None,
            "need_sort": False,
        }

    def paged(self, num_pages: int, page_size: int) -> Any:
        from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator as Theirs

        made = Theirs(num_pages * page_size, page_size, **self._common)
        if self.device.type == "cpu":
            made.use_triton_kernels = False
        return made

    def token(self, size: int) -> Any:
        from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator as Theirs

        return Theirs(size, **self._common)

    def pair(self, num_pages: int, num_windows: int, page_size: int) -> Any:
        from properties.subjects.sglang_standins import pool_class
        from properties.subjects.sglang_swa import cache_class

        sizes = (num_pages * page_size, num_windows * page_size, page_size)
        common = {**self._common, "kvcache": cache_class()()}
        made = pool_class("SWATokenToKVPoolAllocator")(*sizes, **common)
        if self.device.type == "cpu":
            for side in (made.full_attn_allocator, made.swa_attn_allocator):
                side.use_triton_kernels = False
        return made

    def heads(self, size: int, page_size: int, layers: int) -> Any:
        from properties.subjects.sglang_kv_pools import heads_pool

        made = heads_pool(
            size=size, page_size=page_size, dtype=DTYPE, head_num=HEADS, head_dim=WIDTH,
            layer_num=layers, device=str(self.device), enable_memory_saver=False,
        )  # fmt: skip
        # its kernel's place is taken by indexing, as an environment variable of its own chooses
        made.use_native_move_kv_cache = self.device.type == "cpu"
        return made

    def writing(self) -> AbstractContextManager[None]:
        from properties.subjects.sglang_kv_pools import captured_nowhere

        return captured_nowhere()


class Plain:
    """Tensors and their indexing: what the bytes of a job cost without a pool."""

    label = PLAIN

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def heads(self, size: int, page_size: int, layers: int) -> PlainHeads:
        """The same buffers as those of a pool."""
        return PlainHeads(size + page_size, layers, self.device)

    def writing(self) -> AbstractContextManager[None]:
        """Nothing is needed."""
        return nullcontext()


class PlainHeads:
    """Buffers of keys and values, with a pool's methods as an operation of torch for each."""

    def __init__(self, rows: int, layers: int, device: torch.device) -> None:
        shape = (rows, HEADS, WIDTH)
        self.k, self.v = (
            [torch.zeros(shape, dtype=DTYPE, device=device) for _ in range(layers)]
            for _ in range(2)
        )

    def set_kv_buffer(
        self, layer: Any, loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """Indexed assignment."""
        self.k[layer.layer_id][loc] = k
        self.v[layer.layer_id][loc] = v

    def move_kv_cache(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Indexed assignment of indexed values."""
        for each in (*self.k, *self.v):
            each[target] = each[source]

    def get_cpu_copy(self, slots: torch.Tensor) -> Any:
        """`index_select`."""
        return [each.index_select(0, slots).cpu() for each in (*self.k, *self.v)]

    def load_cpu_copy(self, copy: Any, slots: torch.Tensor) -> None:
        """`index_copy_`."""
        for each, rows in zip((*self.k, *self.v), copy, strict=True):
            each.index_copy_(0, slots, rows.to(each.device))


def has_sglang() -> bool:
    """Whether SGLang is installed."""
    return importlib.util.find_spec("sglang") is not None


def engines(device: torch.device, beside: str = SGLANG) -> list[Engine | Plain]:
    """Ours twice, and who they are timed beside, where that is there."""
    found: list[Engine | Plain] = [Ours(device, validate=True), Ours(device, validate=False)]
    if beside == PLAIN:
        return [*found, Plain(device)]
    return [*found, Sglang(device)] if has_sglang() else found
