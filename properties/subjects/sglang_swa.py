"""SGLang 0.5.23's own sliding-window pair, unmodified, as a subject; and what it does wrong.

It imports on a CPU behind the stand-ins of `sglang_standins.py`. The order of its lists is visible
and is the spec's, so it is judged on the exact level. Spec: `spec/swa_unified.md` §2, §11.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

import impl
from properties.commands import Call
from properties.subjects.protocol import TensorSubject
from properties.subjects.reference import EchoCache
from properties.subjects.sglang_standins import pool_class
from properties.subjects.swa import LIFE, life, sizes

# Page size 1 is the token class's; the paged one takes no page there when it decodes.
PAGE_SIZES = (1, 2, 3, 4, 2, 3, 4, 16)
LIMITS: dict[str, tuple[Any, ...]] = {"page_size": PAGE_SIZES, "ring": (0,)}
#: what it has of the pair's interface, and works
CALLS = (
    "alloc", "alloc_extend", "alloc_extend_swa_tail", "alloc_decode", "free", "free_swa",
    "free_full", "free_segment", "free_segments", "free_swa_segment", "free_full_segment",
    "free_full_segments", "free_group_begin", "free_group_end", "set_full_to_swa_mapping",
    "clear_full_to_swa_mapping", "translate_loc_from_full_to_swa",
    "translate_swa_indices_for_transfer", "new_pages_available", "resize", "clear",
    "get_cpu_copy", "load_cpu_copy",
)  # fmt: skip


@cache
def cache_class() -> type[Any]:
    """A pool of no bytes for their pair, whose copies of slots are the slots."""
    base = pool_class("BaseSWAKVPool")

    class EchoWindows(EchoCache, base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            """No storage: theirs would allocate it."""

        def register_mapping(self, full_to_swa_index_mapping: torch.Tensor) -> None:
            self.full_to_swa_index_mapping = full_to_swa_index_mapping

        def translate_loc_from_full_to_swa(self, kv_indices: torch.Tensor) -> torch.Tensor:
            return self.full_to_swa_index_mapping[kv_indices]

        def get_state_buf_infos(self) -> tuple[list[int], list[int], list[int]]:
            return [], [], []

    EchoWindows.__abstractmethods__ = frozenset()
    return EchoWindows


class SglangSWA(TensorSubject):
    """Their pair and its callers."""

    def __init__(self, target: Any) -> None:
        super().__init__(target, calls=CALLS)

    def call(self, call: Call) -> Any:
        if call.method in LIFE:
            value = life(self, call, impl.window_frontier)
        elif call.method == "alloc_extend" and "num_new_pages" in call.args:
            # theirs counts the pages itself
            args = {key: each for key, each in call.args.items() if key != "num_new_pages"}
            value = super().call(call._replace(args=args))
        else:
            value = super().call(call)
        if call.method in SHARING:
            self.leave()
        return value

    def observe(self) -> dict[str, Any]:
        target = self.target
        window = _side(target.swa_attn_allocator, target.page_size)
        return {
            **_side(target.full_attn_allocator, target.page_size),
            **{f"window_{key}": value for key, value in window.items()},
            "page_size": target.page_size,
            "group": target.free_group is not None,
            "size_swa": target.size_swa,
            "mapping": target.full_to_swa_index_mapping.tolist(),
            **sizes(target),
        }


#: calls that share storage with the pool: what they gave or got isn't overwritten
SHARING = frozenset({"alloc"})


def _side(side: Any, page_size: int) -> dict[str, Any]:
    staged = (
        side.release_pages.tolist()
        if page_size == 1
        else [page for ids in side.staged_pages for page in ids.tolist()]
    )
    return {"size": side.size, "free": side.free_pages.tolist(), "staged": staged}


def make(config: Any) -> SglangSWA:
    """Theirs of this config."""
    target = pool_class("SWATokenToKVPoolAllocator")(
        config.size, config.size_swa, config.page_size, dtype=torch.int64, device="cpu",
        kvcache=cache_class()(), need_sort=config.need_sort,
    )  # fmt: skip
    for side in (target.full_attn_allocator, target.swa_attn_allocator):
        side.use_triton_kernels = False
    return SglangSWA(target)


#: legal commands that go wrong, and what a run may name: reported as sglang #35338, and nowhere
LEGAL: tuple[tuple[str, tuple[str, ...]], ...] = (
    # short on one side, it has taken the other's pages
    ("decode", ("I9",)),
    # no tail leaves what the slots were mapped to; slots without windows in a page that has one
    # are gone on with inside the padding page
    ("extend_tail_in_page", ("I17", "I18")),
)
#: misuse that only a pair knows: command, way, invariant; the single allocators' is theirs
MISUSE: tuple[tuple[str, str, str], ...] = (
    # the window of a page that has none: slot 0 enters the window free list (sglang #38519)
    ("free_window_again", "free_segment", "I23"),
    ("free_window_again", "free_swa", "I23"),
    ("free_window_again", "free_swa_segment", "I23"),
    # a window is left behind
    ("free_full_of_window", "free_full", "I4"),
    ("free_full_of_window", "free_full_segment", "I4"),
    # tokens go on in the padding page
    ("grow_released", "alloc_extend", "I23"),
    ("grow_released", "alloc_decode", "I23"),
    ("tail_inside_page", "", "I36"),
    ("window_reserved", "free_swa", "I4"),
    ("window_unissued", "free_swa_segment", "I4"),
    ("bad_mapping", "free slot", "I4"),
    ("bad_mapping", "occupied", "I4"),
    ("bad_resize", "in a group", "I21"),
    ("bad_resize", "larger", "I4"),
    ("bad_resize", "owned", "I4"),
)
#: misuse of single allocators that a pair passes on to them
PASSED_ON = (
    "negative_alloc", "free_out_of_range", "free_reserved", "free_unissued", "free_again",
    "free_too_many", "free_twice_in_call", "negative_start", "overlapping_segments",
    "scrambled_segment", "seq_below_prefix", "wrong_total", "wrong_page_count", "copies_differ",
    "copy_missing", "last_loc_of_nothing", "misplaced_last_loc", "last_loc_not_owned",
    "continue_twice", "end_without_group", "wrong_dtype", "wrong_shape", "wrong_device",
    "window_out_of_range", "back_up_dead", "restore_dead",
)  # fmt: skip


def known_pairs() -> frozenset[tuple[str, str]]:
    """(system, command) of all that is known to go wrong."""
    names = (*PASSED_ON, *(name for name, _ in LEGAL), *(name for name, _, _ in MISUSE))
    return frozenset(("swa", name) for name in names)
