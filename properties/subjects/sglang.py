"""SGLang 0.5.23's own token and paged allocators, unmodified, as subjects; and what they do wrong.

They import and run on a CPU with the small packages of the extra `sglang`. The order of their lists
is visible and is the spec's, so they are judged on the exact level. What they are known to do wrong
stands here as tables; `test_sglang.py` has the harness find each entry, and nothing else.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from properties.commands import Call
from properties.subjects import Factory, UnusableSubject
from properties.subjects.protocol import Subject, TensorSubject
from properties.subjects.reference import EchoCache

# Page size 1 is the token class's: the paged one takes no page there when it decodes.
PAGE_SIZES = (2, 3, 4, 2, 3, 4, 16, 64)


@dataclass(frozen=True)
class Shared:
    """A legal call whose argument or result shares storage with the pool (I54)."""

    system: str
    method: str
    what: str
    upstream: str


@dataclass(frozen=True)
class Accepted:
    """A misuse that is not refused: (system, command), the invariant, and where it is reported."""

    system: str
    command: str
    invariant: str
    upstream: str


SHARED_STORAGE: tuple[Shared, ...] = (
    Shared(
        "paged", "free_page_ids", "under need_sort the caller's tensor is staged", "not reported"
    ),
    Shared("token", "alloc", "the result is a view of the free list", "not reported"),
    Shared("token", "get_all_free_pages", "the result is the free list itself", "not reported"),
)
ACCEPTED: tuple[Accepted, ...] = ()


class SglangSubject(TensorSubject):
    """One of SGLang's allocators; `shielded` keeps the driver off the storage they share."""

    def __init__(self, system: str, config: Any, shielded: bool) -> None:
        super().__init__(_build(system, config))
        self.system = system
        self.shielded = shielded

    def call(self, call: Call) -> Any:
        value = super().call(call)
        if self.shielded and (self.system, call.method) in _SHARING:
            self.lent = []
        return value

    def observe(self) -> dict[str, Any]:
        target = self.target
        state = {
            "size": target.size,
            "page_size": target.page_size,
            "free": target.free_pages.tolist(),
            "group": target.free_group is not None,
            "available": target.available_size(),
        }
        if self.system == "token":
            return {**state, "staged": target.release_pages.tolist()}
        return {
            **state,
            "staged": [page for ids in target.staged_pages for page in ids.tolist()],
            "parked_slots": [ids.tolist() for ids in target.free_group or ()],
            "parked_pages": [ids.tolist() for ids in target.free_page_ids_group],
        }


_SHARING = frozenset((entry.system, entry.method) for entry in SHARED_STORAGE)


def _build(system: str, config: Any) -> Any:
    import torch
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator

    common: dict[str, Any] = {
        "dtype": torch.int64,
        "device": "cpu",
        "kvcache": EchoCache(),
        "need_sort": config.need_sort,
    }
    if system == "token":
        return TokenToKVPoolAllocator(config.size, **common)
    made = PagedTokenToKVPoolAllocator(config.size, config.page_size, **common)
    made.use_triton_kernels = False
    return made


def make(system: str, config: Any, *, shielded: bool = True) -> Subject:
    """The subject for a system's config."""
    return SglangSubject(system, config, shielded)


def factory() -> Factory:
    """The factory; raises UnusableSubject where SGLang isn't installed."""
    if importlib.util.find_spec("sglang") is None:
        raise UnusableSubject(
            "subject 'sglang' needs SGLang: pip install 'kvledger[sglang]'"
            " && pip install --no-deps sglang==0.5.23"
        )
    return Factory(
        name="sglang",
        make=make,
        systems=frozenset(("token", "paged")),
        limits={"paged": {"page_size": PAGE_SIZES}},
        level="exact",
        known=frozenset((entry.system, entry.command) for entry in ACCEPTED),
    )
