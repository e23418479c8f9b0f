"""The contract of every token-to-KV allocator, and what all of them share.

An allocator owns ids only: which slots are free, staged, parked or out. It never touches the
bytes that the slots name. Three outcomes are never mixed up: a result; `None` when capacity is
short, with nothing changed except that staged ids may have been sorted in; a `PoolError` for
misuse, with nothing changed besides that. Faults are looked for in a fixed order: what host data
decides, then capacity, then the values of tensors. Spec: `spec/core.md` §4, §4a, §4b.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from impl import checks, kernels
from impl.allocators.book import Book
from impl.allocators.forwarding import KVCacheForwarding
from impl.errors import GroupNotOpen, GroupOpen, StillOwned
from impl.rows import Handle, ReqToTokenPool

Segment = tuple[torch.Tensor, int]


class PoolConfig(Protocol):
    """What `resize` reads of an engine's configuration."""

    @property
    def max_total_num_tokens(self) -> int: ...


class BaseTokenToKVPoolAllocator(KVCacheForwarding):
    """Hands out and takes back KV slots `page_size .. (num_pages + 1) * page_size - 1`.

    `size` in slots, `page_size` in slots; what is left of `size` below a whole page is never
    issued. `dtype` is that of the KV data, kept for the engine. `kvcache` is the pool that
    copies are forwarded to. `need_sort` stages frees and issues ascending ids after a merge.
    `backend` "torch" raises faults of tensor values at the call; "triton" (on the CPU in Triton's
    interpreter only) defers them, see `check` and `recover`; "auto" is "triton" on CUDA, else
    "torch". `validate=False` removes the checks of tensor values only.
    Raises `NegativeSize`, `OutOfRange` (size + page_size >= 2^31), `WrongDtype`, `Unsupported`.
    O(pool). Spec: §4, §4a.
    """

    def __init__(
        self,
        size: int,
        page_size: int,
        *,
        device: torch.device | str,
        dtype: torch.dtype | None,
        kvcache: Any,
        need_sort: bool,
        backend: str,
        validate: bool,
    ) -> None:
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(page_size, "page_size", least=1),
                lambda: checks.pool_size(size, page_size),
            )
        )
        self.page_size, self.size = operator.index(page_size), operator.index(size)
        self.dtype = dtype
        self.need_sort = need_sort
        self.validate = validate
        # A tensor knows the index that a bare "cuda" leaves open.
        self.device = torch.empty((), device=device).device
        self.backend = kernels.resolve(backend, self.device)
        self._kvcache = kvcache
        self._build()

    def _build(self) -> None:
        self.num_pages = self.size // self.page_size
        self._book = self._new_book()

    @abstractmethod
    def _new_book(self) -> Book:
        """A book of `num_pages` free ids, of this family and backend."""

    # Taking

    @abstractmethod
    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Slots int64 [need_size] of the first whole pages; None when short.

        `need_size` in slots, a multiple of the page size; 0 gives an empty tensor. Raises
        `NegativeSize`, `NotPageMultiple`, `WrongDtype`. O(need_size). Spec: §3, §4.
        """

    @abstractmethod
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
        """Slots int64 [extend_num_tokens] for positions prefix..seq-1 of every request.

        Tensors [n] int32 or int64, lengths in tokens before and after, with host copies;
        `last_loc` is the slot of position prefix - 1, -1 without one. Batch order, then position
        order; None when short of pages. Raises `BadLengths`, `BadLastLoc`, `Duplicate`, and
        `WrongDtype`, `WrongDevice`, `WrongShape`; `Unsupported` without pages. No device value
        is read for the placement. O(n + extend_num_tokens). Spec: §4.
        """

    @abstractmethod
    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        """Slots int64 [n] for position seq - 1 of every request; seq counts the new token.

        Arguments, errors and None as for `alloc_extend`. O(n). Spec: §4.
        """

    # Through the row table

    @abstractmethod
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
        """`alloc_extend` of rows that the batch holds, written into the table as well.

        `rows` [n] int32 or int64 with their host copy. The last slot of row i is read from
        `table` at position prefix - 1; on success positions prefix..seq-1 hold the new slots, and
        (row, generation) holds the new pages; else the table is as before. The first row call
        binds the allocator to its table until `clear` or `resize`. Raises as `alloc_extend`, and
        `OutOfRange`, `Reserved`, `RowNotHeld`; `Unsupported` for another table or without pages.
        O(n + extend_num_tokens). Spec: §5a.
        """

    @abstractmethod
    def alloc_decode_rows(
        self,
        table: ReqToTokenPool,
        rows: torch.Tensor,
        rows_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
    ) -> torch.Tensor | None:
        """`alloc_decode` through the table, as `alloc_extend_rows` is an extend. O(n). §5a."""

    @abstractmethod
    def free_rows_segment(
        self, handle: Handle, start: int, end: int, *, table: ReqToTokenPool | None = None
    ) -> None:
        """Give back the pages of positions start..end-1 of a held row, read from the table.

        `start` at a page border. `table` need be given only before any other row call. Sees what
        a plain free can't: a page that has passed to another row since. Raises `StaleHandle`,
        `NegativeSize`, `Misaligned`, `OutOfRange`, `NotConsecutive`, `Reserved`, `NotOwned` (also
        of a page held by another row), `DoubleFree`, `Duplicate`, `TooMany`, `WrongDtype`,
        `WrongShape`, `Unsupported`. The table isn't changed. O(end - start). Spec: §5a.
        """

    # Giving back

    @abstractmethod
    def free(self, free_index: torch.Tensor) -> None:
        """Give back the pages of `free_index`, slots int32 or int64 [k].

        Naming any slot of a page frees the whole page. Slots carry no generation: a page that
        was freed and issued again in between can't be told from one's own. Raises `TooMany`,
        `OutOfRange`, `Reserved`, `NotOwned`, `DoubleFree` (and `Duplicate` where a slot is a
        page), `WrongDtype`, `WrongDevice`, `WrongShape`. O(k log k). Spec: §3, §4.
        """

    def free_full(self, free_index: torch.Tensor) -> None:
        """The same as `free` on a single pool. Spec: §4a."""
        self.free(free_index)

    def free_segment(self, free_index: torch.Tensor, *, start_pos: int) -> None:
        """Give back the pages of one segment: `free_segments` of a single one. Spec: §4."""
        self.free_segments([(free_index, start_pos)])

    @abstractmethod
    def free_segments(self, segments: Iterable[Segment]) -> None:
        """Give back segments (slots [k], start_pos): consecutive positions of one request.

        Each starts at a page border; they ascend and share no page. All are checked before one
        is freed; empty ones are skipped. Keeps the order given. Raises `NegativeSize`,
        `Misaligned`, `OverlappingSegments`, `NotConsecutive`, `Duplicate` and as `free`.
        O(slots). Spec: §4.
        """

    def free_full_segment(self, free_index: torch.Tensor, *, start_pos: int) -> None:
        """`free_full_segments` of a single one. Spec: §4a."""
        self.free_full_segments([(free_index, start_pos)])

    @abstractmethod
    def free_full_segments(self, segments: Iterable[Segment]) -> None:
        """Checks segments like `free_segments`, then frees each one's slots like `free`.

        A page in two of them is a `Duplicate`; slots need not be consecutive. Spec: §4a.
        """

    @abstractmethod
    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        """Give back exactly these pages, int32 or int64 [k], in the order given.

        Raises `TooMany`, `OutOfRange`, `Reserved`, `NotOwned`, `DoubleFree`, `Duplicate`,
        `WrongDtype`, `WrongDevice`, `WrongShape`. O(k). Spec: §4.
        """

    # Groups of frees

    def free_group_begin(self) -> None:
        """Park the frees that follow until `free_group_end`. `GroupOpen` when nested. Spec: §4."""
        self._book.enter()
        if self._book.group_is_open:
            raise GroupOpen("free_group_begin: a group is open already. End it first.")
        self._book.group_is_open = True

    def free_group_end(self) -> None:
        """Release what the group parked. `GroupNotOpen` without one. O(parked). Spec: §4."""
        self._book.check()
        if not self._book.group_is_open:
            raise GroupNotOpen("free_group_end: no group is open. Begin one first.")
        if self._book.num_parked:
            self._book.release_parked()
        self._book.forget_group()

    @contextmanager
    def free_group(self) -> Iterator[None]:
        """`free_group_begin`, and `free_group_end` however the body ends. Spec: §4."""
        self.free_group_begin()
        try:
            yield
        finally:
            # `clear` inside the body has closed it.
            if self._book.group_is_open:
                self.free_group_end()

    # Bookkeeping

    @property
    def _owners(self) -> Book:
        return self._book

    def check(self) -> None:
        """Wait for every call so far and raise what it deferred; nothing where none is deferred."""
        self._book.check()

    def recover(self) -> None:
        """Back to the state just before the call whose fault was deferred; nothing without one."""
        self._book.recover()

    def merge_and_sort_free(self) -> None:
        """Sort staged ids in; nothing if none are staged. O(pool log pool). Spec: §4."""
        self._book.enter()
        self._book.merge()

    def available_size(self) -> int:
        """Slots free or staged; parked ones aren't available. O(1). Spec: §6."""
        self._book.enter()
        return (self._book.free_list.num_free + self._book.free_list.num_staged) * self.page_size

    @property
    def size_full(self) -> int:
        """Slots of the full-attention pool: `size`. Spec: §4a."""
        return self.size

    def get_all_free_pages(self) -> torch.Tensor:
        """Free then staged ids, int64, storage of their own. O(pool). Spec: §4a."""
        self._book.check()
        return self._book.all_free()

    def clear(self) -> None:
        """The initial state; closes an open group. Never raises. O(pool). Spec: §4."""
        self._book.clear()

    def resize(self, config: PoolConfig) -> None:
        """Make the pool `config.max_total_num_tokens` slots large, in its initial state.

        Raises `NegativeSize`, `OutOfRange`, `GroupOpen`, `StillOwned`, `WrongDtype`. O(pool).
        Spec: §4a.
        """
        size = checks.pool_size(getattr(config, "max_total_num_tokens", None), self.page_size)
        self._book.check()
        if self._book.group_is_open:
            raise GroupOpen("resize: a group is open. End it first.")
        if owned := self._book.num_owned:
            raise StillOwned(f"resize: {owned} pages are out. Free them or clear first.")
        self.size = size
        self._build()

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping as plain Python; two of a kind behave alike. O(pool).

        Keys: size, page_size, free, staged, group, parked_slots, parked_pages, holders, issued,
        bound.
        """
        self._book.check()
        return {"size": self.size, "page_size": self.page_size, **self._book.snapshot()}

    def audit(self) -> list[str]:
        """Recount everything from scratch: violated invariants, [] when healthy. O(pool)."""
        self._book.check()
        return self._book.audit()
