"""Single slots, first freed last reused. Spec: `spec/core.md` §3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import torch

from impl import checks
from impl.allocators import faults
from impl.allocators.base import BaseTokenToKVPoolAllocator, Segment
from impl.allocators.free_list import FreeList, SlotRing
from impl.allocators.segments import parse as parse_segments
from impl.allocators.states import PARKED_SLOTS
from impl.errors import TooMany, Unsupported, refuse
from impl.kernels.transfer import agree, int64


class TokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    """The contract with a page of one slot: ids are slots 1..size. Spec: §3."""

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

    def _new_free_list(self) -> FreeList:
        return SlotRing(self.num_pages, self.device, self.need_sort)

    def alloc(self, need_size: int) -> torch.Tensor | None:
        size = checks.host_size(need_size, "need_size")
        if not self._fits(size, bound=size):
            return None
        return self._take(size).clone()

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
        slots = parse_segments(segments, 1, self.device)
        if slots:
            self._free(call, "segments", torch.cat(slots))

    def _free(self, call: str, name: str, slots: torch.Tensor) -> None:
        checks.require_ids(slots, name, self.device)
        count = slots.shape[0]
        if not count:
            return
        ids = int64(slots)
        clipped = self._states.clip(ids)
        if count > self._num_owned:
            self._refuse(call, ids, clipped)
        if self.validate and not agree([self._states.owned(clipped), self._states.once(clipped)]):
            self._refuse(call, ids, clipped)
        if self._group_is_open:
            self._states.mark(clipped, PARKED_SLOTS)
            self._num_parked += count
            self._parked_slots.append(clipped)
        else:
            self._release(clipped)

    def _refuse(self, call: str, ids: torch.Tensor, clipped: torch.Tensor) -> None:
        """Name the smallest fault of `ids`, of which not all are out, or some are twice."""
        named, states = ids.tolist(), self._states.look(clipped).tolist()
        new = {slot for slot, state in zip(named, states, strict=True) if state != PARKED_SLOTS}
        # Unchecked values may repeat ids; still no more may come back than are out.
        num_new = len(new) if self.validate else len(named)
        if num_new > self._num_owned:
            raise TooMany(
                f"{call}: {num_new} slots given back, {self._num_owned} are out. "
                "Free each slot once."
            )
        refuse(call, faults.of_pages(enumerate(named), states, self.num_pages), faults.TODO)

    def _release_parked(self) -> None:
        self._release(torch.cat(self._parked_slots))
