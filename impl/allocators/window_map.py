"""Which window slot each full slot has: the map that the pair owns, and its index by page.

A full page has a peer, a window page, while any of its slots has a window slot; those all lie in
the peer, at equal offsets. Spec: `spec/swa_unified.md` §2.2, §2.4, §2.7, §2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from impl.kernels import device as kernels
from impl.kernels import windows
from impl.kernels.arrays import Array, Arrays, Truth, Viewed

NO_LOCATION = -1


class WindowMap(Viewed):
    """Entries of all full slots, with 0 for "no window"; ids are int64 arrays.

    `mapping` is the tensor that KV pools read: an entry for each slot, and a last one for the index
    -1. Where a page is a slot it is its own index.
    """

    _views: ClassVar[Mapping[str, str]] = {
        "_mapping": "mapping",
        "_rows": "by_page",
        "_peers": "peer_pages",
        "_owners": "owner_pages",
    }
    _mapping: Array
    _rows: Array
    _peers: Array
    _owners: Array

    def __init__(
        self, size: int, page_size: int, num_windows: int, arrays: Arrays, *,
        device: torch.device, on_kernel: bool,
    ) -> None:  # fmt: skip
        self.page_size = page_size
        num_rows = size // page_size + 1
        self.mapping = torch.zeros(size + page_size + 1, dtype=torch.int64, device=device)
        self.mapping[-1] = NO_LOCATION
        self.by_page = self.mapping[: num_rows * page_size].view(num_rows, page_size)
        # one entry more than there are pages, so that any id has an entry that is no peer
        self.peer_pages = (
            self.mapping
            if page_size == 1
            else torch.zeros(num_rows + 1, dtype=torch.int64, device=device)
        )
        self.owner_pages = torch.zeros(num_windows + 2, dtype=torch.int64, device=device)
        #: whether a kernel lets go of windows, instead of the torch form
        self.on_kernel = on_kernel
        self._arrays = arrays
        self._view()

    def reset(self) -> None:
        """No slot has a window. O(pool)."""
        self.mapping[:-1] = 0
        if self.page_size > 1:
            self.peer_pages.zero_()
        self.owner_pages.zero_()

    # Questions

    def peers(self, pages: Array) -> Array:
        """The window pages of any full pages; none above 0 for those without one."""
        return self._arrays.look(self._peers, pages)

    def owners(self, window_pages: Array) -> Array:
        """The full pages whose peers these are, of any window pages; 0 where nobody's."""
        return self._arrays.look(self._owners, window_pages)

    def all_live(self, pages: Array) -> Truth:
        """That each of any full pages has a peer."""
        return self.peers(pages) > 0

    def entries(self, slots: Array) -> Array:
        """The entries of slots from -1 on, storage of their own."""
        return self._mapping[slots]

    # Changes

    def pair(self, pages: Array, window_pages: Array) -> None:
        """Make `window_pages` the peers of `pages`, neither of which is paired."""
        if self.page_size > 1:
            self._peers[pages] = window_pages
        self._owners[window_pages] = pages

    def write(self, slots: Array, window_slots: Array) -> None:
        """Map slots of paired pages to window slots of their peers."""
        self._mapping[slots] = window_slots

    def forget(self, slots: Array, pages: Array) -> None:
        """Slots of `pages` have no window slots any more; pages left with none lose their peer."""
        if self.page_size == 1:
            self._owners[self._mapping[slots]] = 0
            self._mapping[slots] = 0
            return
        self._mapping[slots] = 0
        empty = pages[(self._rows[pages] == 0).all(1)]
        peers = self._peers[empty]
        self._peers[empty] = 0
        self._owners[peers] = 0

    def release(self, pages: Array) -> Array:
        """The peers of distinct `pages`, all of which have one; from now on they have none."""
        if self.on_kernel:
            found = kernels.load().windows.resolve_and_clear(
                torch.as_tensor(pages), self.by_page, self.peer_pages, self.owner_pages
            )
            return self._arrays.view(found)
        return windows.resolve_and_clear(pages, self._rows, self._peers, self._owners)
