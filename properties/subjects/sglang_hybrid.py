"""SGLang 0.5.23's own rows of hybrid models, unmodified, as a subject; and what they do wrong.

They come with their own state pool, siblings and slot allocator, by way of `sglang_standins`; an
engine is around them (`hybrid_engine.py`). Spec: `spec/pools_states_sizing.md` §4, §25.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from properties.commands import Call
from properties.subjects import hybrid_engine
from properties.subjects.hybrid import HybridSubject
from properties.subjects.hybrid_engine import Engine
from properties.subjects.hybrid_reference import LAYERS, of_slots, parts
from properties.subjects.sglang_standins import pool_class

#: what it has of the interface
CALLS = (
    "alloc", "alloc_rows", "free", "free_rows", "clear", "free_mamba_cache",
    "copy_mamba_state", "get_mamba_indices", "get_mamba_ping_pong_keep_idx",
    "get_mamba_ping_pong_other_idx", "set_mamba_ping_pong_slot", "donate_mamba_ping_pong_slot",
    "translate_mamba_indices", "mamba2_layer_index", "register_on_alloc_rows",
)  # fmt: skip
#: what its slot allocator has
OF_SLOTS = ("alloc_group_begin", "alloc_group_end")


class Wrong(NamedTuple):
    """Legal use that goes wrong where the driver isn't kept off it."""

    method: str
    invariant: str
    what: str


#: what is wrong → where, and which invariant it breaks
FOUND: dict[str, Wrong] = {
    "short": Wrong("alloc", "I28", "short of state slots it asserts, with rows and slots taken"),
    "empty": Wrong("alloc", "I26", "an empty batch has no tensors to stack"),
    "flags": Wrong(
        "free_mamba_cache", "I27", "without buffers what was planned for the state stays planned"
    ),
    "queue": Wrong(
        "free_mamba_cache", "I34", "of a request without a buffer yet it raises, the state freed"
    ),
    "group": Wrong("clear", "I66", "inside a group, parked slots stay beside the whole list"),
    "view": Wrong("alloc", "I54", "the slots of a request are a view of the free list"),
}
#: misuse that is accepted or refused with something changed: command → invariant
MISUSE: dict[str, str] = {
    "finish_with_state": "I4",
    "give_row_with_state": "I4",
    "keep_outside": "I4",
    "keep_nothing": "I4",
    "admit_twice": "I4",
    "use_lost": "I4",
    "set_wrong_slot": "I4",
    "donate_for_nothing": "I4",
    "outside": "I4",
    # the slots that the outer group took ahead are lost
    "nested_group": "I21",
}
#: misuse of what is left to callers, who are ours
OURS = frozenset(
    {"collect_stateless", "match_nothing", "track_back", "track_untracked", "lazy_unasked"}
)


class Bytes:
    """Its state pool and siblings, of one value each, which is the tag of the slot's state."""

    def __init__(self, rows: Any, parts: Sequence[str]) -> None:
        pool = rows.mamba_pool
        slots = pool.mamba_cache.temporal.shape[1]
        named = {
            "conv": pool.mamba_cache.conv[0], "temporal": pool.mamba_cache.temporal,
            "short_conv": rows.short_conv_pool.conv_state, "ngram": rows.ngram_pool.context,
        }  # fmt: skip
        self.pieces = [named[part].view(1, slots) for part in parts]

    def write(self, slots: Sequence[int], value: int) -> None:
        at = torch.tensor(slots)
        for each in self.pieces:
            each.index_fill_(1, at, value)

    def tags(self) -> list[list[int]]:
        return [tags for each in self.pieces for tags in each.to(torch.int64).tolist()]


class SglangHybrid(HybridSubject):
    """Their rows, with an engine around them that keeps off what is known to be wrong.

    `exposed` is what of `FOUND` it isn't kept off, for the test that finds it.
    """

    def __init__(self, target: Any, config: Any, exposed: str = "") -> None:
        super().__init__(target, calls=CALLS)
        self.calls |= {*OF_SLOTS, *hybrid_engine.CALLS}
        self.slots = target.mamba_allocator
        self.engine = Engine(target)
        self.exposed = exposed
        self.bytes = Bytes(target, parts(config))
        self.begin(config)

    def free_slots(self) -> list[int]:
        found: list[int] = self.slots.free_slots.tolist()
        return found

    def call(self, call: Call) -> Any:
        if call.method == "clear":
            self.forward.poisoned = frozenset()  # it resets the siblings' slots, free ones too
        value = super().call(call)
        if call.method == "clear" and self.exposed != "group":
            self.slots._alloc_iter = None
        if of_slots(call.method, call.args) and self.exposed != "view":
            self.leave()
        return value

    def method(self, name: str) -> Any:
        if name in hybrid_engine.CALLS:
            return getattr(self.engine, name)
        own = {
            "alloc": self._alloc,
            "free_mamba_cache": self._free_mamba_cache,
            "donate_mamba_ping_pong_slot": self._donate,
        }
        return own.get(name) or super().method(name)

    def parked(self) -> list[int]:
        """What an open group took ahead and didn't hand out; a copy of its iterator tells."""
        ahead = self.slots._alloc_iter
        return [] if ahead is None else [int(each) for each in copy.copy(ahead)]

    def _alloc(self, **args: Any) -> Any:
        """The engine admits somebody, and looks whether there are slots: it has to."""
        if args.get("reqs") == [] and self.exposed != "empty":
            return []
        if "reqs" in args and self.exposed != "short" and not self._has_slots(args["reqs"]):
            return None
        return super().method("alloc")(**args)

    def _has_slots(self, reqs: Sequence[Any]) -> bool:
        initial, counts = self.target.mamba_initial_tracking_slots, []
        for kv in (req.kv for req in reqs):
            counts += [] if kv.holds_mamba else [1]
            untracked = kv.mamba_ping_pong_track_buffer is None
            counts += [initial] if initial and untracked else []
        from_group = min(counts.count(1), len(self.parked()))
        return sum(counts) - from_group <= len(self.free_slots())

    def _free_mamba_cache(self, req: Any, **args: Any) -> Any:
        """The engine notes what is kept, and ends by itself who has no buffer yet."""
        kv, keep = req.kv, args.get("mamba_ping_pong_track_buffer_to_keep")
        buffer = kv.mamba_ping_pong_track_buffer
        queued = self.target.enable_mamba_extra_buffer and buffer is None and kv.holds_mamba
        if queued and self.exposed != "queue":
            self.slots.free(kv.mamba_pool_idx.reshape(1))
            return hybrid_engine.forget(kv)
        kept = None if keep is None or buffer is None else buffer[keep : keep + 1].clone()
        self.target.free_mamba_cache(req, **args)
        if buffer is None and self.exposed != "flags":
            hybrid_engine.forget(kv)
        return kept

    def _donate(self, req: Any, new_slot: torch.Tensor) -> torch.Tensor:
        """The engine knows that the latest tracked state went with its slot."""
        donated: torch.Tensor = self.target.donate_mamba_ping_pong_slot(req, new_slot)
        req.kv.mamba_last_track_seqlen = None
        return donated

    def run_deferred(self, work: tuple[torch.Tensor, ...]) -> None:
        clear, src, dst = work
        if len(clear):
            self.target.mamba_pool.clear_slots(clear)
        self.target.copy_mamba_state(src, dst)

    def observe(self) -> dict[str, Any]:
        target, state = self.target, super().observe()
        state |= {
            "size": target.size,
            "free": list(target.free_slots),
            "generations": target.req_generation.tolist(),
            "available": target.available_size(),
            "mapping": target.req_index_to_mamba_index_mapping.tolist(),
            "slots_free": self.free_slots(),
            "slots_parked": self.parked(),
        }
        if target.enable_mamba_extra_buffer:
            tracks = target.req_index_to_mamba_ping_pong_track_buffer_mapping
            state["track_mapping"] = tracks.tolist()
        return state


def make(config: Any, *, exposed: str = "") -> SglangHybrid:
    """Theirs of a config, with siblings as it says."""
    options = {**config.options}
    layers = list(LAYERS)
    dtype = pool_class("Mamba2StateDType")(conv=torch.float32, temporal=torch.float32)
    shape = pool_class("Mamba2StateShape")(
        conv=[(1, 1)], temporal=(1, 1, 1), conv_kernel=2, num_heads=1, head_dim=1,
        intermediate_size=1, conv_dim=1, ssm_state_size=1, state_size=1,
    )  # fmt: skip
    params = pool_class("Mamba2CacheParams")(shape=shape, dtype=dtype, layers=layers)
    siblings: dict[str, Any] = {}
    if config.short_conv:
        siblings |= {"short_conv_layer_ids": [0], "short_conv_state_shape": (1, 1)}
    if config.ngram:
        siblings |= {"ngram_context_len": 1, "ngram_eos_token_id": 0}
    target = pool_class("HybridReqToTokenPool")(
        size=config.size, max_context_len=1, mamba_spec_state_size=0, device="cpu",
        enable_memory_saver=False, cache_params=params, mamba_layer_ids=layers,
        **options, **siblings,
    )  # fmt: skip
    return SglangHybrid(target, config, exposed)


def known_pairs() -> frozenset[tuple[str, str]]:
    """(system, command) of all misuse that isn't refused, and of what isn't theirs."""
    return frozenset(("hybrid_rows", name) for name in {*MISUSE, *OURS})
