"""Single slots, first freed last reused. Spec: `spec/core.md` §3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import torch

from impl import checks
from impl.allocators.base import BaseTokenToKVPoolAllocator, Segment
from impl.allocators.segments import parse as parse_segments
from impl.allocators.slot_book import SlotBook
from impl.errors import Unsupported
from impl.rows import Handle, ReqToTokenPool


class TokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    """The contract with a page of one slot: ids are slots 1..size. Spec: §3."""

    _book: SlotBook

    def __init__(
        self,
        size: int,
        *,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
        kvcache: Any = None,
        need_sort: bool = False,
        backend: str = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__(
            size,
            1,
            device=device,
            dtype=dtype,
            kvcache=kvcache,
            need_sort=need_sort,
            backend=backend,
            validate=validate,
        )

    def _new_book(self) -> SlotBook:
        kind = SlotBook
        if self.backend == "triton":
            # imports triton, which the torch form does without
            from impl.allocators.deferred import DeferredSlotBook

            kind = DeferredSlotBook
        return kind(
            self.num_pages,
            1,
            device=self.device,
            need_sort=self.need_sort,
            validate=self.validate,
        )

    def alloc(self, need_size: int) -> torch.Tensor | None:
        self._book.enter()
        size = checks.host_size(need_size, "need_size")
        if not self._book.fits(size, bound=size):
            return None
        return self._book.take_slots(size)

    def alloc_extend(
        self,
        prefix_lens: torch.Tensor,
        prefix_lens_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
        last_loc: torch.Tensor,
        extend_num_tokens: int,
        num_new_pages: int | None = None,
    ) -> NoReturn:
        """Always `Unsupported`: without pages nothing is continued; use `alloc`. Spec: §3."""
        raise Unsupported("alloc_extend: this allocator has no pages. Use alloc(num_tokens).")

    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> NoReturn:
        """Always `Unsupported`: without pages nothing is continued; use `alloc`. Spec: §3."""
        raise Unsupported("alloc_decode: this allocator has no pages. Use alloc(batch_size).")

    def alloc_extend_rows(
        self,
        table: ReqToTokenPool,
        rows: torch.Tensor,
        rows_cpu: torch.Tensor,
        prefix_lens: torch.Tensor,
        prefix_lens_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
        extend_num_tokens: int,
    ) -> NoReturn:
        """Always `Unsupported`: without pages nothing is continued; use `alloc`. Spec: §5a."""
        raise Unsupported("alloc_extend_rows: this allocator has no pages. Use alloc and write.")

    def alloc_decode_rows(
        self,
        table: ReqToTokenPool,
        rows: torch.Tensor,
        rows_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
    ) -> NoReturn:
        """Always `Unsupported`: without pages nothing is continued; use `alloc`. Spec: §5a."""
        raise Unsupported("alloc_decode_rows: this allocator has no pages. Use alloc and write.")

    def free_rows_segment(
        self, handle: Handle, start: int, end: int, *, table: ReqToTokenPool | None = None
    ) -> NoReturn:
        """Always `Unsupported`: slots have no holders here; use `free`. Spec: §5a."""
        raise Unsupported("free_rows_segment: this allocator has no holders. Use free.")

    def free(self, free_index: torch.Tensor) -> None:
        self._free("free", "free_index", free_index)

    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        """The same as `free`: a page is a slot. Spec: §3."""
        self._free("free_page_ids", "page_ids", page_ids)

    def free_segments(self, segments: Iterable[Segment]) -> None:
        """Checks positions as the contract says, then frees all slots in the order given.

        `NotConsecutive` can't be: without pages any slots may follow each other. Spec: §3.
        """
        self._free_segments("free_segments", segments)

    def free_full_segments(self, segments: Iterable[Segment]) -> None:
        """The same as `free_segments`. Spec: §4a."""
        self._free_segments("free_full_segments", segments)

    def _free_segments(self, call: str, segments: Iterable[Segment]) -> None:
        self._book.enter()
        slots = parse_segments(segments, 1, self.device)
        if slots:
            self._book.free_slots(call, torch.cat(slots))

    def _free(self, call: str, name: str, slots: torch.Tensor) -> None:
        self._book.enter()
        checks.require_ids(slots, name, self.device)
        if slots.shape[0]:
            self._book.free_slots(call, slots)
