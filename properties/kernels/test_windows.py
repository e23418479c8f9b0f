"""The kernel that lets go of window pages, against its torch form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from impl import SWATokenToKVPoolAllocator
from impl.kernels import arrays, windows
from impl.kernels.device import load
from properties.kernels.guards import Guards
from properties.kernels.rig import DEVICE

# Slots of three tiles, the last one of a few.
MANY = 2 * 1024 // 3 + 2


class Pair:
    """A map in which full page p has window page `peer(p)`, every other one of many pages."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.guards = Guards(DEVICE)
        size = (num_pages + 1) * page_size
        peers = [0] * (num_pages + 1)
        peers[1::2] = range(len(peers[1::2]), 0, -1)
        entries = [
            peers[slot // page_size] * page_size + slot % page_size * (peers[slot // page_size] > 0)
            for slot in range(size)
        ]
        owners = [0] * (num_pages + 1)
        for page, peer in enumerate(peers):
            owners[peer] = page * (peer > 0)
        self.mapping = self.guards.line("mapping", entries)
        self.rows = self.mapping.view(num_pages + 1, page_size)
        # where a page is a slot the map is its own index
        self.peers = self.mapping if page_size == 1 else self.guards.line("peers", peers)
        self.owners = self.guards.line("owners", owners)
        self.paired = [page for page, peer in enumerate(peers) if peer]

    def state(self) -> list[list[int]]:
        return [each.tolist() for each in (self.mapping, self.peers, self.owners)]


@pytest.mark.parametrize("page_size", [1, 2, 3, 64])
@pytest.mark.parametrize("count", [0, 1, 5, MANY])
def test_as_the_torch_form(page_size: int, count: int) -> None:
    """The same window pages, and the same map, index and owners, to the last entry and no other."""
    ours, twin = (Pair(2 * MANY, page_size) for _ in range(2))
    pages = torch.tensor(ours.paired[::-1][:count], dtype=torch.int64)
    found = load().windows.resolve_and_clear(pages.to(DEVICE), ours.rows, ours.peers, ours.owners)
    view = arrays.of(torch.device("cpu")).view
    wanted = windows.resolve_and_clear(
        view(pages), *(view(each.cpu()) for each in (twin.rows, twin.peers, twin.owners))
    )
    assert found.tolist() == wanted.tolist()
    if DEVICE == "cpu":
        assert ours.state() == twin.state()
    ours.guards.require("mapping", "owners", *(["peers"] if page_size > 1 else []))


def test_a_strided_list_of_pages() -> None:
    """Pages may be every other element of a tensor."""
    pair = Pair(8, 2)
    pages = torch.tensor([[page, -1] for page in pair.paired], dtype=torch.int64).to(DEVICE)[:, 0]
    load().windows.resolve_and_clear(pages, pair.rows, pair.peers, pair.owners)
    assert not any(pair.rows.flatten().tolist())


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("page_size", [1, 4])
def test_the_pair_goes_by_the_kernel(
    page_size: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair of that backend launches it once for a call, whatever the number of pages."""
    calls: list[int] = []
    sound = load().windows.resolve_and_clear

    def counted(pages: torch.Tensor, *others: Any) -> torch.Tensor:
        calls.append(pages.shape[0])
        made: torch.Tensor = sound(pages, *others)
        return made

    monkeypatch.setattr(load().windows, "resolve_and_clear", counted)
    pair = SWATokenToKVPoolAllocator(64, 64, page_size, device=DEVICE, backend=backend)
    if page_size == 1:
        slots = pair.alloc(12)
    else:
        zero, end, none = (torch.tensor([n]) for n in (0, 12, -1))
        at = [each.to(DEVICE) for each in (zero, end, none)]
        slots = pair.alloc_extend(at[0], zero, at[1], end, at[2], 12)
    assert slots is not None
    pair.free_swa_segment(slots, start_pos=0)
    assert calls == ([12 // page_size] if backend == "triton" else [])
    assert pair.audit() == []
    assert not any(pair.full_to_swa_index_mapping[:-1].tolist())
