"""What the sliding-window pair is made of, and what it can say of itself.

Spec: `spec/swa_unified.md` §2.2, §2.3, §2.6, §2.8, §2.10.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol

import torch

from impl import checks, kernels
from impl.allocators import window_audit
from impl.allocators.book import Book
from impl.allocators.forwarding import KVCacheForwarding
from impl.allocators.page_pair import PagePair
from impl.allocators.paged import PagedTokenToKVPoolAllocator
from impl.allocators.slot_pair import SlotPair
from impl.allocators.swa_sides import construction_errors, new_side, smaller
from impl.allocators.token import TokenToKVPoolAllocator
from impl.allocators.window_map import WindowMap
from impl.errors import GroupNotOpen, GroupOpen, PoolError, StillOwned, Unsupported
from impl.storage.swa import BaseSWAKVPool


class Rows(Protocol):
    """What a pair with rings asks of the request rows."""

    def available_size(self) -> int: ...


class PairConfig(Protocol):
    """What `resize` reads of an engine's configuration."""

    @property
    def full_max_total_num_tokens(self) -> int: ...

    @property
    def swa_max_total_num_tokens(self) -> int: ...


class SWAPair(KVCacheForwarding):
    """Two allocators and the map between their slots; callers see full slots only.

    `size` and `size_swa` in slots. `kvcache`, a `BaseSWAKVPool`, is given the map. Where it says
    that windows are rings of request rows (`swa_req_ring_size`), `req_to_token_pool` tells how
    many are free: a row's ring costs whole pages, and windows are never counted in slots. `backend`
    says what lets go of windows: "triton" a kernel, "torch" its torch form, "auto" as for single
    allocators. With each, faults of tensor values are raised at the call, on every device: a pair
    has to know that one side takes a call before the other one does. The rest is as for single
    allocators. Raises `NegativeSize`, `OutOfRange`, `WrongDtype`; `Unsupported` for a backend that
    can't run, for another kind of `kvcache`, and for rings without rows or pages. O(pool). Spec:
    §2.2, §2.8.
    """

    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int,
        *,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
        kvcache: BaseSWAKVPool | None = None,
        need_sort: bool = False,
        req_to_token_pool: Rows | None = None,
        backend: str = "auto",
        validate: bool = True,
    ) -> None:
        checks.raise_first(construction_errors(size, size_swa, page_size, kvcache))
        self.backend = kernels.resolve(backend, torch.device(device))
        self.page_size = operator.index(page_size)
        self.dtype = dtype
        self.need_sort = need_sort
        self.validate = validate
        self._kvcache = kvcache
        self._rows = req_to_token_pool
        self._ring_cost = 0
        if kvcache is not None and kvcache.swa_req_ring_size is not None:
            self._ring_cost = self._cost_of(kvcache.swa_req_ring_size)
            size_swa = 0
        options: dict[str, Any] = {
            "device": device, "dtype": dtype, "need_sort": need_sort, "backend": "torch",
            "validate": validate,
        }  # fmt: skip
        self.full_attn_allocator = new_side(size, self.page_size, options)
        self.swa_attn_allocator = new_side(size_swa, self.page_size, options)
        self.device = self.full_attn_allocator.device
        self._ring_slots = self._ring_available()
        full, swa = self.full_attn_allocator, self.swa_attn_allocator
        self._windows = WindowMap(
            full.size, self.page_size, swa.num_pages, full._book.arrays, device=self.device,
            on_kernel=self.backend == "triton",
        )  # fmt: skip
        self.full_to_swa_index_mapping = self._windows.mapping
        self._pair = self._new_pair()
        if kvcache is not None:
            kvcache.register_mapping(self.full_to_swa_index_mapping)

    def _cost_of(self, ring_size: int) -> int:
        """Window slots of one row's ring, whole pages."""
        if self._rows is None:
            raise Unsupported(
                "windows are rings of request rows, but there are none. Give req_to_token_pool=."
            )
        if self.page_size == 1:
            raise Unsupported("rings need pages: use a page size above 1, or window slots.")
        return -(-ring_size // self.page_size) * self.page_size

    def _new_pair(self) -> SlotPair | PagePair:
        full, swa, rings = self.full_attn_allocator, self.swa_attn_allocator, self.swa_req_ring
        if isinstance(full, PagedTokenToKVPoolAllocator):
            assert isinstance(swa, PagedTokenToKVPoolAllocator), "sides are of a kind"
            return PagePair(full._book, swa._book, self._windows, rings=rings)
        assert isinstance(swa, TokenToKVPoolAllocator), "sides are of a kind"
        return SlotPair(full._book, swa._book, self._windows, rings=rings)

    # Sizes

    @property
    def swa_req_ring(self) -> bool:
        """Whether windows are rings of request rows."""
        return self._ring_cost > 0

    @property
    def swa_ring_cost_tokens(self) -> int:
        """Window slots that a row's ring costs; 0 without rings."""
        return self._ring_cost

    @property
    def size_full(self) -> int:
        """Slots of the full side."""
        return self.full_attn_allocator.size

    @property
    def size_swa(self) -> int:
        """Slots of the window side; with rings those of the rows free at construction."""
        return self._ring_slots if self.swa_req_ring else self.swa_attn_allocator.size

    @property
    def size(self) -> int:
        """The smaller of the two. Spec: §2.3."""
        return min(self.size_full, self.size_swa)

    def full_available_size(self) -> int:
        """Full slots free or staged. O(1)."""
        return self.full_attn_allocator.available_size()

    def swa_available_size(self) -> int:
        """Window slots free or staged; with rings those of the rows that are free. O(1)."""
        return self._ring_available() if self.swa_req_ring else self._swa_slots()

    def _swa_slots(self) -> int:
        return self.swa_attn_allocator.available_size()

    def _ring_available(self) -> int:
        return self._rows.available_size() * self._ring_cost if self._rows is not None else 0

    def available_size(self) -> int:
        """Slots that both sides have; with rings those of the full side. O(1). Spec: §2.3, §2.8."""
        full = self.full_available_size()
        return full if self.swa_req_ring else min(full, self._swa_slots())

    def new_pages_available(self, num_full_pages: int, num_swa_pages: int) -> bool:
        """Whether each side has so many pages. `NegativeSize`, `WrongDtype`. O(1). Spec: §2.3."""
        counts: list[int] = []
        checks.raise_first(
            checks.collected(
                lambda: counts.append(checks.host_size(num_full_pages, "num_full_pages")),
                lambda: counts.append(checks.host_size(num_swa_pages, "num_swa_pages")),
            )
        )
        return self._pair.fits(*counts)

    def get_all_free_pages(self) -> torch.Tensor:
        """Free then staged ids of the full side, storage of their own. O(pool)."""
        return self.full_attn_allocator.get_all_free_pages()

    def merge_and_sort_free(self) -> None:
        """Sort in what is staged, on both sides. O(pool log pool)."""
        self.full_attn_allocator.merge_and_sort_free()
        self.swa_attn_allocator.merge_and_sort_free()

    # Groups

    def free_group_begin(self) -> None:
        """Park releases until `free_group_end`; windows are resolved at each call. §2.6."""
        self.full_attn_allocator.free_group_begin()
        self.swa_attn_allocator.free_group_begin()

    def free_group_end(self) -> None:
        """Release window page ids, then window slots, then the full side's. O(parked). §2.6."""
        self.full_attn_allocator._book.check()
        if not self._group_is_open:
            raise GroupNotOpen("free_group_end: no group is open. Begin one first.")
        self._pair.release_parked()
        self._pair.forget_group()
        self.full_attn_allocator.free_group_end()

    @contextmanager
    def free_group(self) -> Iterator[None]:
        """`free_group_begin`, and `free_group_end` however the body ends."""
        self.free_group_begin()
        try:
            yield
        finally:
            # `clear` inside the body has closed it.
            if self._group_is_open:
                self.free_group_end()

    @property
    def _group_is_open(self) -> bool:
        return self.full_attn_allocator._book.group_is_open

    # From the beginning

    def clear(self) -> None:
        """The initial state on both sides, nothing mapped; closes a group. O(pool). §2.10."""
        self._pair.forget_group()
        self.swa_attn_allocator.clear()
        self.full_attn_allocator.clear()
        self._windows.reset()

    def resize(self, config: PairConfig) -> None:
        """Make the sides smaller, in their initial state; the map keeps its length.

        With rings the window side follows the rows: only the full side is looked at. Raises
        `NegativeSize`, `OutOfRange` (a side would grow), `GroupOpen`, `StillOwned`, `WrongDtype`.
        O(pool). Spec: §2.10.
        """
        sides = [(self.full_attn_allocator, "full_max_total_num_tokens")]
        if not self.swa_req_ring:
            sides.append((self.swa_attn_allocator, "swa_max_total_num_tokens"))
        errors: list[PoolError | None] = []
        sizes = []
        for side, name in sides:
            errors += checks.collected(
                lambda side=side, name=name: sizes.append(  # type: ignore[misc]
                    smaller(getattr(config, name, None), side, name)
                )
            )
        if self._group_is_open:
            errors.append(GroupOpen("resize: a group is open. End it first."))
        owned = [side._book.num_owned for side, _ in sides]
        if any(owned):
            errors.append(StillOwned(f"resize: {owned} pages are out. Free them or clear first."))
        checks.raise_first(errors)
        for (side, _), size in zip(sides, sizes, strict=True):
            side.resize(SimpleNamespace(max_total_num_tokens=size))
        self._windows.reset()
        self._pair = self._new_pair()

    # Inspection

    @property
    def _owners(self) -> Book:
        return self.full_attn_allocator._book

    def check(self) -> None:
        """Nothing: no fault is deferred."""
        self.full_attn_allocator.check()

    def recover(self) -> None:
        """Nothing: no fault is deferred."""
        self.full_attn_allocator.recover()

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping as plain Python; two of a kind behave alike. O(pool).

        Keys of the full side's snapshot; size_swa; window, the window side's; mapping; again: full
        pages that slot frees of the open group may name again.
        """
        return {
            **self.full_attn_allocator.snapshot(),
            "size_swa": self.size_swa,
            "window": self.swa_attn_allocator.snapshot(),
            "mapping": self.full_to_swa_index_mapping.tolist(),
            "again": self._pair.named_again(),
        }

    def audit(self) -> list[str]:
        """Recount both sides and the map: violated invariants, [] when healthy. O(pool)."""
        window_side = [f"{line} (window side)" for line in self.swa_attn_allocator.audit()]
        return [
            *self.full_attn_allocator.audit(),
            *window_side,
            *window_audit.audit(self._windows, self.full_attn_allocator, self.swa_attn_allocator),
        ]
