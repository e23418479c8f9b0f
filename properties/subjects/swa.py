"""The sliding-window pair as a subject: ours, the reference, and what their callers do with them.

Calls of `LIFE` are several calls of the pair each, made here in one way for every subject.
Follows `spec/swa_unified.md` §2.7, §10.2, §10.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import impl
import reference
from properties.commands import Call
from properties.invariants import violation
from properties.subjects.impl import ImplSubject
from properties.subjects.reference import EchoCache, ReferenceSubject

#: request rows of a pair with rings
ROWS = 3


class Ids(Protocol):
    """A list of ids as a subject takes them."""

    def __call__(self, plain: list[int], on_host: bool = False) -> Any: ...


Args = Mapping[str, Any]


class Tree:
    """A prefix cache that has nothing, and remembers what it was asked for."""

    def __init__(self, *, sharing: bool) -> None:
        self.sharing = sharing
        self.asked = [0, 0]

    def supports_prefix_sharing(self) -> bool:
        return self.sharing

    def evict_for_alloc(self, params: Any) -> None:
        self.asked = [params.num_tokens, params.swa_num_tokens]
        if not any(self.asked):
            raise violation("I11", "the cache was asked for nothing")


def evict_window(target: Any, args: Args, ids: Ids, frontier_of: Callable[..., int]) -> int:
    """The windows of a request that have fallen behind; up to which position."""
    start, page_size = args["start_pos"], target.page_size
    frontier = frontier_of(args["length"], args["window"], page_size, args["bigram"])
    if frontier > start:
        slots = ids(args["free_index"][: frontier - start])
        target.free_swa_segment(slots, start_pos=start)
    return frontier


def release_row(target: Any, args: Args, ids: Ids, frontier_of: Any) -> None:
    """A whole row: first what has no windows any more."""
    gone, kept, start = args["gone"], args["kept"], args["start_pos"]
    if args["grouped"]:
        target.free_group_begin()
    if gone:
        target.free_full_segments([(ids(gone), start)])
    if kept:
        target.free_segments([(ids(kept), start + len(gone))])
    if args["grouped"]:
        target.free_group_end()


def adopt(target: Any, args: Args, ids: Ids, frontier_of: Any) -> None:
    """The windows of the given slots pass on to the kept ones; the given slots go back."""
    windows = target.translate_loc_from_full_to_swa(ids(args["given"]))
    target.clear_full_to_swa_mapping(ids(args["cleared"]))
    target.set_full_to_swa_mapping(ids(args["kept"]), windows)
    target.free_full(ids(args["freed"]))


def admit_queue(target: Any, args: Args, ids: Ids, frontier_of: Any) -> list[list[int]]:
    """The slots of each request; none where one is short, or all are aborted: they go back."""
    taken: list[tuple[Any, int]] = []
    for extend, tail in args["each"]:
        slots = _taken(target, extend, tail, ids)
        if slots is None:
            break
        taken.append((slots, 0 if tail < 0 else len(slots) - tail))
    if len(taken) == len(args["each"]) and not args["aborted"]:
        return [[int(slot) for slot in slots] for slots, _ in taken]
    for slots, without in reversed(taken):
        if without:
            target.free_full_segments([(slots[:without], 0)])
        target.free_segments([(slots[without:], without)])
    return []


def _taken(target: Any, extend: Mapping[str, list[int]], tail: int, ids: Ids) -> Any:
    """Slots of one new request by the call that its page size and its tail ask for."""
    (tokens,) = extend["seq_lens"]
    if target.page_size == 1:
        return target.alloc(tokens)
    made = {name: ids(value, name.endswith("_cpu")) for name, value in extend.items()}
    if tail < 0:
        return target.alloc_extend(**made, extend_num_tokens=tokens)
    return target.alloc_extend_swa_tail(**made, extend_num_tokens=tokens, swa_tail_len=tail)


def make_room(target: Any, args: Args, ids: Ids, frontier_of: Any) -> list[int]:
    """What the cache is asked for."""
    tree = Tree(sharing=args["sharing"])
    target.evict_to_free_tokens(None, args["num_tokens"])
    target.evict_to_free_tokens(tree, args["num_tokens"])
    return tree.asked


def reclaim(target: Any, args: Args, ids: Ids, frontier_of: Any) -> list[int]:
    """What the cache is asked for, and whether there is room."""
    tree = Tree(sharing=True)
    lacking = target.reclaim_for_prealloc(tree, args["full_tokens"], args["swa_tokens"])
    return [*tree.asked, int(lacking is None)]


LIFE: dict[str, Callable[[Any, Args, Ids, Any], Any]] = {
    each.__name__: each
    for each in (evict_window, release_row, adopt, admit_queue, make_room, reclaim)
}


class EchoWindows(EchoCache, impl.StoragelessSWAKVPool):
    """A pool of no bytes for ours, whose copies of slots are the slots."""


class EchoRings(EchoCache):
    """The same for the reference."""

    def __init__(self, swa_req_ring_size: int | None) -> None:
        self.swa_req_ring_size = swa_req_ring_size

    def register_mapping(self, mapping: list[int]) -> None:
        """Nobody here reads it."""


def shown(target: Any) -> dict[str, Any]:
    """The snapshot of a pair, its window side's keys among the others, and what is available."""
    state = target.snapshot()
    window = state.pop("window")
    state.update((f"window_{key}", value) for key, value in window.items())
    return {**state, **sizes(target)}


def sizes(target: Any) -> dict[str, int]:
    """What is available, by the pair's own word."""
    return {
        "available": target.full_available_size(),
        "available_swa": target.swa_available_size(),
        "available_pair": target.available_size(),
    }


def as_it_is(plain: list[int], on_host: bool = False) -> list[int]:
    """A list for the reference."""
    return list(plain)


class SWAReference(ReferenceSubject):
    """The reference of the pair, and its callers."""

    @classmethod
    def of(cls, config: Any) -> SWAReference:
        """The reference of this config."""
        rows = reference.ReqToTokenPool(ROWS, 1) if config.ring else None
        return cls(
            reference.SWATokenToKVPoolAllocator(
                config.size, config.size_swa, config.page_size, need_sort=config.need_sort,
                kvcache=EchoRings(config.ring or None), req_to_token_pool=rows,
            )
        )  # fmt: skip

    def call(self, call: Call) -> Any:
        if call.method in LIFE:
            return LIFE[call.method](self.target, call.args, as_it_is, reference.window_frontier)
        return super().call(call)

    def observe(self) -> dict[str, Any]:
        return shown(self.target)


class ImplSWA(ImplSubject):
    """`impl.SWATokenToKVPoolAllocator` and its callers."""

    def __init__(self, target: Any, device: str) -> None:
        super().__init__(target, device, target.full_attn_allocator, target.swa_attn_allocator)

    @classmethod
    def of(cls, config: Any, device: str, **options: Any) -> ImplSWA:
        """Ours of this config."""
        rows = impl.ReqToTokenPool(ROWS, 1, device=device) if config.ring else None
        target = impl.SWATokenToKVPoolAllocator(
            config.size, config.size_swa, config.page_size, device=device,
            need_sort=config.need_sort, req_to_token_pool=rows,
            kvcache=EchoWindows(swa_req_ring_size=config.ring or None), **options,
        )  # fmt: skip
        return cls(target, device)

    def call(self, call: Call) -> Any:
        if call.method not in LIFE:
            return super().call(call)
        return life(self, call, impl.window_frontier)

    def observe(self) -> dict[str, Any]:
        return shown(self.target)


def life(subject: Any, call: Call, frontier_of: Callable[..., int]) -> Any:
    """A call of `LIFE` on a subject of tensors."""
    subject.lent, subject.passed = [], []

    def ids(plain: list[int], on_host: bool = False) -> Any:
        return subject._tensor(plain, call.dtype, on_host)

    try:
        return LIFE[call.method](subject.target, call.args, ids, frontier_of)
    finally:
        for memory, given in subject.passed:
            if memory.tolist() != given:
                raise violation("I54", f"{call.method} wrote to its arguments")
