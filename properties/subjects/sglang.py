"""SGLang 0.5.23's own allocators and pools, unmodified, as subjects; and what they do wrong.

They import and run on a CPU with the small packages of the extra `sglang`. The order of their lists
is visible and is the spec's, so they are judged on the exact level. What they are known to do wrong
stands beside this file, in `sglang_known.py`.
"""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

from properties.commands import Call
from properties.subjects import (
    Factory,
    UnusableSubject,
    sglang_engine,
    sglang_hybrid,
    sglang_kv,
    sglang_states,
    sglang_swa,
)
from properties.subjects.protocol import Subject, TensorSubject
from properties.subjects.reference import EchoCache
from properties.subjects.sglang_known import SHARED_STORAGE, known_pairs

# Page size 1 is the token class's: the paged one takes no page there when it decodes.
SYSTEMS = frozenset(
    ("token", "paged", "state_pools", "state_slots", "hybrid_rows", "swa", "kv_pools", "engine")
)
PAGE_SIZES = (2, 3, 4, 2, 3, 4, 16, 64)


class SglangSubject(TensorSubject):
    """One of SGLang's allocators; the driver is kept off storage that it is known to share.

    `exposed` is the one method that is not shielded so, for the test that finds it.
    """

    def __init__(self, target: Any, system: str, exposed: str = "") -> None:
        super().__init__(target)
        self.system = system
        self.exposed = exposed

    def call(self, call: Call) -> Any:
        value = super().call(call)
        if call.method != self.exposed and (self.system, call.method) in _SHARING:
            self.leave()
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


class SglangSlots(SglangSubject):
    """SGLang's state slot allocator; a group that `clear` leaves behind is closed for it.

    Whether a group is open can't be seen where it parked nothing.
    """

    def call(self, call: Call) -> Any:
        value = super().call(call)
        if call.method == "clear" != self.exposed:
            self.target._alloc_iter = None
        return value

    def observe(self) -> dict[str, Any]:
        target = self.target
        # a copy of the iterator goes on without it
        parked = [] if target._alloc_iter is None else list(copy.copy(target._alloc_iter))
        return {
            "size": target.size,
            "free": target.free_slots.tolist(),
            "parked": [slot for ids in parked for slot in ids.tolist()],
            "available": target.available_size(),
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


def make(system: str, config: Any, *, exposed: str = "") -> Subject:
    """The subject for a system's config."""
    if system == "state_pools":
        return sglang_states.make(config)
    if system == "kv_pools":
        return sglang_kv.make(config, exposed=exposed)
    if system == "engine":
        return sglang_engine.make(config)
    if system == "state_slots":
        from sglang.srt.mem_cache.allocator.mamba import MambaSlotAllocator

        return SglangSlots(MambaSlotAllocator(config.size, "cpu"), system, exposed)
    if system == "swa":
        return sglang_swa.make(config)
    if system == "hybrid_rows":
        return sglang_hybrid.make(config, exposed=exposed)
    return SglangSubject(_build(system, config), system, exposed)


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
        systems=SYSTEMS,
        limits={
            "paged": {"page_size": PAGE_SIZES},
            "swa": sglang_swa.LIMITS,
            "kv_pools": sglang_kv.LIMITS,
            "engine": sglang_engine.LIMITS,
        },
        level="exact",
        known=known_pairs()
        | sglang_states.known_pairs()
        | sglang_swa.known_pairs()
        | sglang_hybrid.known_pairs()
        | sglang_kv.known_pairs()
        | sglang_engine.known_pairs(),
    )
