"""Whose allocators are timed: ours, with the checks of values and without, and SGLang's own.

SGLang's run as they are: on a GPU with its Triton kernels, on a CPU with its torch fallback.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from typing import Any

import torch

from impl import (
    PagedTokenToKVPoolAllocator,
    SWATokenToKVPoolAllocator,
    TokenToKVPoolAllocator,
)

OURS, UNCHECKED, SGLANG = "ours", "ours unchecked", "sglang"


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


def has_sglang() -> bool:
    """Whether SGLang is installed."""
    return importlib.util.find_spec("sglang") is not None


def engines(device: torch.device) -> list[Engine]:
    """All contenders that there are."""
    found: list[Engine] = [Ours(device, validate=True), Ours(device, validate=False)]
    return [*found, Sglang(device)] if has_sglang() else found
