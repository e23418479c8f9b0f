"""Full attention and sliding windows, one allocator for both.

Whoever takes a full slot takes a window slot with it; once the window has passed, the window slot
goes back and the full slot stays. Spec: `spec/swa_unified.md` §2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from impl import checks
from impl.allocators.base import Segment
from impl.allocators.batches import int_or_none, plan_decode, plan_extend, usable
from impl.allocators.page_pair import PagePair
from impl.allocators.pair_book import Gives
from impl.allocators.segments import parse as parse_segments
from impl.allocators.slot_pair import SlotPair
from impl.allocators.swa_room import SWARoom
from impl.allocators.window_moves import assign, unassign
from impl.errors import BadLengths, Misaligned, NegativeSize, PoolError, Unsupported
from impl.kernels.arrays import HostArray
from impl.storage.swa import translated


class SWATokenToKVPoolAllocator(SWARoom):
    """`alloc` where a page is a slot, extend and decode where it is several.

    `None` leaves both sides as they were, nothing sorted in. Frees come in three kinds: of both
    sides, of the window side (`free_swa…`), and of full slots whose windows have gone back
    (`free_full…`). In a group slots of a page count once for slot frees. Spec: §2.4, §2.5.
    """

    # Taking

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Slots int64 [need_size] with as many window slots; None when either side is short.

        Raises `NegativeSize`, `WrongDtype`; `Unsupported` with pages. O(need_size). Spec: §2.4.
        """
        if not isinstance(self._pair, SlotPair):
            raise Unsupported(
                "alloc: pages of several slots are taken by alloc_extend and alloc_decode."
            )
        self._enter()
        size = checks.host_size(need_size, "need_size")
        return self._pair.take_slots(size) if self._pair.fits(size, size) else None

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
        """Slots as `PagedTokenToKVPoolAllocator.alloc_extend`, each with a window slot.

        None when either side is short. Raises as there, and `NoWindowPeer` for a request that goes
        on in a page whose window was released; `Unsupported` without pages.
        O(n + extend_num_tokens). Spec: §2.4.
        """
        pair = self._paged("alloc_extend")
        plan, hosts = self._plan(
            (prefix_lens, seq_lens, last_loc),
            (prefix_lens_cpu, seq_lens_cpu),
            extend_num_tokens,
            num_new_pages,
        )
        if not pair.fits(plan.num_pages, plan.num_pages):
            return None
        batch_size = last_loc.shape[0]
        bound = plan.num_tokens // self.page_size + batch_size + 1
        if not batch_size:
            return pair.nothing(bound)
        lens = ((prefix_lens, hosts[0]), (seq_lens, hosts[1]))
        return pair.extend(plan, lens, last_loc, bound)

    def alloc_extend_swa_tail(
        self,
        prefix_lens: torch.Tensor,
        prefix_lens_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
        last_loc: torch.Tensor,
        extend_num_tokens: int,
        swa_tail_len: int,
    ) -> torch.Tensor | None:
        """`alloc_extend` of one request; only its last `swa_tail_len` tokens have window slots.

        The tail begins at a page border, on fresh window pages; 0 takes none. None when either
        side is short. Raises as `alloc_extend`, but never `NoWindowPeer`, and `NegativeSize`,
        `Misaligned`, `BadLengths` (a batch of another size, a tail longer than the extend).
        O(extend_num_tokens). Spec: §2.4.
        """
        pair = self._paged("alloc_extend_swa_tail")
        tail, errors = _tail(prefix_lens_cpu, seq_lens_cpu, swa_tail_len, self.page_size)
        try:
            plan, hosts = self._plan(
                (prefix_lens, seq_lens, last_loc),
                (prefix_lens_cpu, seq_lens_cpu),
                extend_num_tokens,
                None,
            )
        except PoolError as error:
            errors.append(error)
        checks.raise_first(errors)
        if not pair.fits(plan.num_pages, -(-tail // self.page_size)):
            return None
        lens = ((prefix_lens, hosts[0]), (seq_lens, hosts[1]))
        bound = plan.num_tokens // self.page_size + 2
        return pair.extend_tail(plan, lens, last_loc, bound, tail)

    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        """Slots as `PagedTokenToKVPoolAllocator.alloc_decode`, each with a window slot.

        None when either side is short; then neither has given anything (D1). Raises as
        `alloc_extend`. O(n). Spec: §2.4.
        """
        pair = self._paged("alloc_decode")
        plan, host = plan_decode((seq_lens, last_loc), seq_lens_cpu, self.device, self.page_size)
        if not pair.fits(plan.num_pages, plan.num_pages):
            return None
        if not last_loc.shape[0]:
            return pair.nothing(0)
        return pair.decode(plan, (seq_lens, host), last_loc)

    def _paged(self, call: str) -> PagePair:
        if not isinstance(self._pair, PagePair):
            raise Unsupported(f"{call}: a page is a slot here. Use alloc(num_tokens).")
        self._enter()
        return self._pair

    def _plan(
        self,
        on_device: Sequence[torch.Tensor],
        on_host: Sequence[torch.Tensor],
        extend_num_tokens: Any,
        num_new_pages: Any,
    ) -> tuple[Any, list[HostArray]]:
        return plan_extend(
            on_device, on_host, extend_num_tokens, num_new_pages, self.device, self.page_size
        )

    # Giving back

    def free(self, free_index: torch.Tensor) -> None:
        """Give back the pages of any slots [k] and their windows.

        Raises as `PagedTokenToKVPoolAllocator.free`, and `NoWindowPeer` for a page whose window
        has gone back already. O(k log k). Spec: §2.5.
        """
        self._free_slots("free", free_index, Gives.BOTH)

    def free_swa(self, free_index: torch.Tensor) -> None:
        """Give back the windows of these slots' pages; the slots stay. Raises as `free`.

        Nothing with rings. O(k log k). Spec: §2.5.
        """
        self._free_slots("free_swa", free_index, Gives.WINDOWS)

    def free_full(self, free_index: torch.Tensor) -> None:
        """Give back pages whose windows have gone back. Raises as `free`, and `StillOwned`.

        O(k log k). Spec: §2.5.
        """
        self._free_slots("free_full", free_index, Gives.FULL)

    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        """Give back exactly these pages and their windows, in the order given.

        Raises as `PagedTokenToKVPoolAllocator.free_page_ids`, and `NoWindowPeer`. O(k).
        """
        self._enter()
        checks.require_ids(page_ids, "page_ids", self.device)
        if page_ids.shape[0]:
            if self.page_size > 1:
                self.full_attn_allocator._book.require_out("free_page_ids", page_ids.shape[0])
            self._pair.free_pages(page_ids)

    def free_segment(self, free_index: torch.Tensor, *, start_pos: int) -> None:
        """`free_segments` of a single one."""
        self.free_segments([(free_index, start_pos)])

    def free_swa_segment(self, free_index: torch.Tensor, *, start_pos: int) -> None:
        """`free_swa_segments` of a single one."""
        self.free_swa_segments([(free_index, start_pos)])

    def free_full_segment(self, free_index: torch.Tensor, *, start_pos: int) -> None:
        """`free_full_segments` of a single one."""
        self.free_full_segments([(free_index, start_pos)])

    def free_segments(self, segments: Iterable[Segment]) -> None:
        """Give back segments and their windows, as `PagedTokenToKVPoolAllocator.free_segments`.

        All are checked before one is freed (D14). Raises as there, and `NoWindowPeer`, in a group
        too. O(slots). Spec: §2.5.
        """
        self._free_segments("free_segments", segments, Gives.BOTH)

    def free_swa_segments(self, segments: Iterable[Segment]) -> None:
        """Give back the windows of segments; the slots stay. Raises as `free_segments`.

        With rings segments are checked and nothing is freed. O(slots). Spec: §2.5.
        """
        self._free_segments("free_swa_segments", segments, Gives.WINDOWS)

    def free_full_segments(self, segments: Iterable[Segment]) -> None:
        """Give back segments whose windows have gone back, in the order given.

        Raises as `free_segments`, and `StillOwned`. O(slots). Spec: §2.5.
        """
        self._free_segments("free_full_segments", segments, Gives.FULL)

    def _free_slots(self, call: str, slots: torch.Tensor, gives: Gives) -> None:
        self._enter()
        checks.require_ids(slots, "free_index", self.device)
        if slots.shape[0] and not (self.swa_req_ring and gives is Gives.WINDOWS):
            self._pair.free_slots(call, slots, gives)

    def _free_segments(self, call: str, segments: Iterable[Segment], gives: Gives) -> None:
        self._enter()
        slots = parse_segments(segments, self.page_size, self.device)
        if not slots or (self.swa_req_ring and gives is Gives.WINDOWS):
            return
        if self.page_size > 1:
            num_pages = sum(-(-each.shape[0] // self.page_size) for each in slots)
            self.full_attn_allocator._book.require_out(call, num_pages)
        self._pair.free_segments(call, slots, gives)

    # The map

    def translate_loc_from_full_to_swa(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """Window slots int64 [k] of full slots [k]: 0 for none, -1 for -1.

        Raises `OutOfRange`, `WrongDtype`, `WrongDevice`, `WrongShape`. O(k). Spec: §2.4.
        """
        self._enter()
        return translated(self.full_to_swa_index_mapping, kv_indices)

    def translate_swa_indices_for_transfer(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """The same, as a transfer of the window side asks for it."""
        return self.translate_loc_from_full_to_swa(kv_indices)

    def set_full_to_swa_mapping(
        self, full_indices: torch.Tensor, swa_indices: torch.Tensor
    ) -> None:
        """Give full slots [k] these window slots [k], which nobody has: a window passes on.

        Both are owned, at equal offsets of their pages. Raises `WrongShape` for different numbers,
        `Misaligned`, `OutOfRange`, `Reserved`, `NotOwned`, `Duplicate`, `StillOwned` (a page has
        another window, a window page another full page), `WrongDtype`, `WrongDevice`;
        `Unsupported` with rings. O(k). Spec: §2.4, §2.7.
        """
        self._enter()
        self._require_map("set_full_to_swa_mapping")
        assign(self._pair, full_indices, swa_indices)

    def clear_full_to_swa_mapping(self, full_indices: torch.Tensor) -> None:
        """Full slots [k] let go of their window slots, which stay owned, by the caller.

        Raises `OutOfRange`, `Reserved`, `NotOwned`, `WrongDtype`, `WrongDevice`, `WrongShape`;
        `Unsupported` with rings. O(k). Spec: §2.4, §2.7.
        """
        self._enter()
        self._require_map("clear_full_to_swa_mapping")
        unassign(self._pair, full_indices)

    def _require_map(self, call: str) -> None:
        if self.swa_req_ring:
            raise Unsupported(f"{call}: windows are rings of rows, and no slot is mapped.")


def _tail(
    prefix_lens: Any, seq_lens: Any, swa_tail_len: Any, page_size: int
) -> tuple[int, list[PoolError | None]]:
    """The tail of one request's extend, and what is wrong with it."""
    call = "alloc_extend_swa_tail"
    errors: list[PoolError | None] = []
    tail = int_or_none(swa_tail_len, "swa_tail_len", errors) or 0
    if tail < 0:
        errors.append(NegativeSize(f"{call}: a tail of {tail} tokens. Give at least 0."))
    if not usable((prefix_lens, seq_lens)):
        return tail, errors
    requests = list(zip(prefix_lens.tolist(), seq_lens.tolist(), strict=True))
    if len(requests) != 1:
        errors.append(BadLengths(f"{call}: {len(requests)} requests. Give one at a time."))
        return tail, errors
    ((prefix, seq),) = requests
    if tail > seq - prefix:
        errors.append(BadLengths(f"{call}: a tail of {tail} tokens of {seq - prefix} new ones."))
    first = seq - tail
    if tail > 0 and first % page_size:
        errors.append(
            Misaligned(
                f"{call}: the tail begins at position {first}, inside a page of {page_size}. "
                "Begin it at a page border."
            )
        )
    return tail, errors
