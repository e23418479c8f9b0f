"""Pages of `page_size` slots, most recently freed first. Spec: `spec/core.md` §4."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch

from impl import checks
from impl.allocators.base import BaseTokenToKVPoolAllocator, Segment
from impl.allocators.batches import plan_decode, plan_extend
from impl.allocators.page_book import PageBook
from impl.allocators.row_batches import checked_handle, plan_decode_rows, plan_extend_rows
from impl.allocators.segments import parse as parse_segments
from impl.errors import NotPageMultiple
from impl.kernels.arrays import host_array
from impl.rows import Handle, ReqToTokenPool


class PagedTokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    """The contract with any page size >= 1, powers of two or not. Spec: §4."""

    _book: PageBook

    def __init__(
        self,
        size: int,
        page_size: int,
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
            page_size,
            device=device,
            dtype=dtype,
            kvcache=kvcache,
            need_sort=need_sort,
            backend=backend,
            validate=validate,
        )
        if self.device.type == "cuda":
            self._warm_up()

    def _warm_up(self) -> None:
        """Compile what the first free would: on AMD GPUs the first `unique` takes 200 ms."""
        # A failure costs only that time: the free will report it.
        with contextlib.suppress(RuntimeError):
            torch.unique(torch.zeros(2, dtype=torch.int64, device=self.device))

    def _new_book(self) -> PageBook:
        kind = PageBook
        if self.backend == "triton":
            # imports triton, which the torch form does without
            from impl.allocators.deferred import DeferredPageBook

            kind = DeferredPageBook
        return kind(
            self.num_pages,
            self.page_size,
            device=self.device,
            need_sort=self.need_sort,
            validate=self.validate,
        )

    # Taking

    def alloc(self, need_size: int) -> torch.Tensor | None:
        self._book.enter()
        size = checks.host_size(need_size, "need_size")
        num_pages, rest = divmod(size, self.page_size)
        if rest:
            raise NotPageMultiple(
                f"alloc({size}): not a multiple of the page size {self.page_size}. Round it up."
            )
        if not self._book.fits(num_pages, bound=num_pages):
            return None
        return self._book.take_slots(num_pages)

    def alloc_extend(
        self,
        prefix_lens: torch.Tensor,
        prefix_lens_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
        last_loc: torch.Tensor,
        extend_num_tokens: int,
        num_new_pages: int | None = None,
    ) -> torch.Tensor | None:
        self._book.enter()
        plan, hosts = plan_extend(
            (prefix_lens, seq_lens, last_loc),
            (prefix_lens_cpu, seq_lens_cpu),
            extend_num_tokens,
            num_new_pages,
            self.device,
            self.page_size,
        )
        batch_size = last_loc.shape[0]
        bound = plan.num_tokens // self.page_size + batch_size + 1
        if not self._book.fits(plan.num_pages, bound):
            return None
        if not batch_size:
            return self._nothing()
        lens = ((prefix_lens, hosts[0]), (seq_lens, hosts[1]))
        return self._book.extend(plan, lens, last_loc)

    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        self._book.enter()
        plan, host = plan_decode((seq_lens, last_loc), seq_lens_cpu, self.device, self.page_size)
        batch_size = last_loc.shape[0]
        if not self._book.fits(plan.num_pages, bound=batch_size):
            return None
        if not batch_size:
            return self._nothing()
        return self._book.decode(plan, (seq_lens, host), last_loc)

    def _nothing(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int64, device=self.device)

    # Through the row table

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
    ) -> torch.Tensor | None:
        self._book.enter()
        plan, batch = plan_extend_rows(
            self._book,
            table,
            (rows, prefix_lens, seq_lens),
            (rows_cpu, prefix_lens_cpu, seq_lens_cpu),
            extend_num_tokens,
        )
        batch_size = rows.shape[0]
        bound = plan.num_tokens // self.page_size + batch_size + 1
        if not self._book.fits(plan.num_pages, bound):
            return None
        if not batch_size:
            return self._nothing()
        lens = (
            (prefix_lens, host_array(prefix_lens_cpu)),
            (seq_lens, host_array(seq_lens_cpu)),
        )
        return self._book.extend_rows(plan, lens, batch)

    def alloc_decode_rows(
        self,
        table: ReqToTokenPool,
        rows: torch.Tensor,
        rows_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
    ) -> torch.Tensor | None:
        self._book.enter()
        plan, batch = plan_decode_rows(
            self._book, table, (rows, seq_lens), (rows_cpu, seq_lens_cpu)
        )
        batch_size = rows.shape[0]
        if not self._book.fits(plan.num_pages, bound=batch_size):
            return None
        if not batch_size:
            return self._nothing()
        return self._book.decode_rows(plan, (seq_lens, host_array(seq_lens_cpu)), batch)

    def free_rows_segment(
        self, handle: Handle, start: int, end: int, *, table: ReqToTokenPool | None = None
    ) -> None:
        self._book.enter()
        named = self._book.table if table is None else table
        pool, holder, first, stop = checked_handle(self._book, named, handle, start, end)
        self._book.table = pool
        if first < stop:
            self._book.free_row(pool.req_to_token, holder, first, stop)

    # Giving back

    def free(self, free_index: torch.Tensor) -> None:
        self._book.enter()
        checks.require_ids(free_index, "free_index", self.device)
        if free_index.shape[0]:
            self._book.free_slots("free", [free_index])

    def free_full_segments(self, segments: Iterable[Segment]) -> None:
        self._book.enter()
        slots = parse_segments(segments, self.page_size, self.device)
        if slots:
            self._book.free_slots("free_full_segments", slots)

    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        self._book.enter()
        checks.require_ids(page_ids, "page_ids", self.device)
        num_pages = page_ids.shape[0]
        if num_pages:
            self._book.require_out("free_page_ids", num_pages)
            self._book.free_pages(page_ids)

    def free_segments(self, segments: Iterable[Segment]) -> None:
        self._book.enter()
        slots = parse_segments(segments, self.page_size, self.device)
        if slots:
            num_pages = sum(-(-each.shape[0] // self.page_size) for each in slots)
            self._book.require_out("free_segments", num_pages)
            self._book.free_segments("free_segments", slots)
