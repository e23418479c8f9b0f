"""Windows that pass from one full slot to another, checked. Spec: `spec/swa_unified.md` §2.7."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from impl import checks
from impl.allocators import faults
from impl.allocators.pair_book import ADVICE, PairBook
from impl.errors import (
    Duplicate,
    Fault,
    Misaligned,
    PoolError,
    StillOwned,
    WrongShape,
    refuse,
)
from impl.kernels.arrays import Array

SET, CLEAR = "set_full_to_swa_mapping", "clear_full_to_swa_mapping"


def assign(pair: PairBook[Any], full_indices: torch.Tensor, swa_indices: torch.Tensor) -> None:
    """Map full slots to window slots, or raise the smallest fault and map none. O(k)."""
    device = pair.full.device
    errors: list[PoolError | None] = [
        checks.ids_fault(full_indices, "full_indices", device),
        checks.ids_fault(swa_indices, "swa_indices", device),
    ]
    if errors == [None, None] and full_indices.shape != swa_indices.shape:
        errors.append(
            WrongShape(
                f"{SET}: {full_indices.shape[0]} slots with {swa_indices.shape[0]} window slots. "
                "Give as many of each."
            )
        )
    checks.raise_first(errors)
    if not full_indices.shape[0]:
        return
    slots, windows = pair.arrays.ids(full_indices), pair.arrays.ids(swa_indices)
    pages, peers = slots // pair.page_size, windows // pair.page_size
    if pair.validate and not _agree(pair, slots, windows, pages, peers):
        _refuse(pair, slots, windows, pages, peers)
    pair.windows.pair(pages, peers)
    pair.windows.write(slots, windows)


def unassign(pair: PairBook[Any], full_indices: torch.Tensor) -> None:
    """Full slots have no window slots any more, or raise the smallest fault. O(k)."""
    checks.require_ids(full_indices, "full_indices", pair.full.device)
    if not full_indices.shape[0]:
        return
    slots = pair.arrays.ids(full_indices)
    pages = slots // pair.page_size
    if pair.validate and not pair.arrays.all_hold([pair.full.states.owned(pages)]):
        refuse(CLEAR, faults.of_dead(slots.tolist(), pair.full.states.look(pages).tolist()), ADVICE)
    pair.windows.forget(slots, pages)


def _agree(pair: PairBook[Any], slots: Array, windows: Array, pages: Array, peers: Array) -> bool:
    """Whether nothing can be wrong: slots of one page, or pages, each new to the other."""
    arrays, map_ = pair.arrays, pair.windows
    owned = [pair.full.states.owned(pages), pair.swa.states.owned(peers)]
    if not arrays.all_hold(owned):
        return False
    step = slots - windows
    return arrays.all_hold(
        [
            arrays.same(step, (pages - peers) * pair.page_size),
            arrays.once(slots),
            (map_.peers(pages) <= 0) | (map_.peers(pages) == peers),
            (map_.owners(peers) == 0) | (map_.owners(peers) == pages),
        ]
    ) and _one_to_one(pages.tolist(), peers.tolist())


def _one_to_one(pages: list[int], peers: list[int]) -> bool:
    pairs = set(zip(pages, peers, strict=True))
    return len(pairs) == len(set(pages)) == len(set(peers))


def _refuse(
    pair: PairBook[Any], slots: Array, windows: Array, pages: Array, peers: Array
) -> NoReturn:
    found = faults.of_dead(slots.tolist(), pair.full.states.look(pages).tolist())
    found += faults.of_dead(windows.tolist(), pair.swa.states.look(peers).tolist())
    size, map_ = pair.page_size, pair.windows
    peer_here: dict[int, int] = {}
    owner_here: dict[int, int] = {}
    seen: set[int] = set()
    items = zip(
        slots.tolist(), windows.tolist(), map_.peers(pages).tolist(), map_.owners(peers).tolist(),
        strict=True,
    )  # fmt: skip
    for index, (slot, window, peer_now, owner_now) in enumerate(items):
        page, peer = slot // size, window // size
        if slot % size != window % size:
            text = f"slot {slot} and window slot {window} lie at different offsets"
            found.append(Fault(Misaligned, index, text))
        if slot in seen:
            found.append(Fault(Duplicate, index, f"slot {slot} is named already"))
        seen.add(slot)
        if peer_here.setdefault(page, peer) != peer or owner_here.setdefault(peer, page) != page:
            text = f"page {page} with window page {peer}: one of them has another in this call"
            found.append(Fault(Duplicate, index, text))
        if (peer_now > 0 and peer_now != peer) or owner_now not in (0, page):
            text = f"page {page} has window page {peer_now}, and {peer} is that of {owner_now}"
            found.append(Fault(StillOwned, index, text))
    refuse(SET, found, ADVICE)
    raise AssertionError("slots that don't agree have a fault")
