"""The map of a pair against its sides, entry by entry, in plain Python.

Spec: `spec/swa_unified.md` §2.13 (A2, A3, A4).
"""

from __future__ import annotations

from impl.allocators.base import BaseTokenToKVPoolAllocator
from impl.allocators.states import OWNED
from impl.allocators.window_map import NO_LOCATION, WindowMap


def audit(
    windows: WindowMap, full: BaseTokenToKVPoolAllocator, swa: BaseTokenToKVPoolAllocator
) -> list[str]:
    """Violations of: only owned slots are mapped, to owned window slots, one to one, in step."""
    size = windows.page_size
    full_states = full._book.states.by_page.tolist()
    swa_states = swa._book.states.by_page.tolist()
    *entries, last = windows.mapping.tolist()
    problems = [] if last == NO_LOCATION else [f"I23: the map's last entry is {last}, not -1"]
    peer_of: dict[int, int] = {}
    owner_of: dict[int, int] = {}
    for slot, window in enumerate(entries):
        if not window:
            continue
        page, peer = slot // size, window // size
        if not _is_owned(full_states, page):
            problems.append(f"I17: slot {slot} isn't owned and has window slot {window}")
        if not _is_owned(swa_states, peer):
            problems.append(f"I17: slot {slot} has window slot {window}, which isn't owned")
        if slot % size != window % size or peer_of.setdefault(page, peer) != peer:
            problems.append(f"I17: slot {slot} has window slot {window}, out of step with its page")
        if owner_of.setdefault(peer, page) != page:
            problems.append(f"I17: window page {peer} is that of pages {owner_of[peer]} and {page}")
    if size > 1:
        problems += _differences("peer", windows.peer_pages.tolist(), peer_of)
    return problems + _differences("owner", windows.owner_pages.tolist(), owner_of)


def _is_owned(states: list[int], page: int) -> bool:
    # a map is longer than a pool that was made smaller
    return page in range(len(states)) and states[page] == OWNED


def _differences(name: str, index: list[int], wanted: dict[int, int]) -> list[str]:
    return [
        f"I17: the {name} of page {page} is {found} by the index, {wanted.get(page, 0)} by the map"
        for page, found in enumerate(index)
        if found != wanted.get(page, 0)
    ]
