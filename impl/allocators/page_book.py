"""The book of the paged allocator in the torch form. Spec: `spec/core.md` §4, §5a."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from impl.allocators import faults
from impl.allocators.book import Book, joined
from impl.allocators.free_list import FreeList, PageStack
from impl.allocators.states import PARKED_PAGES, PARKED_SLOTS, sent_holders
from impl.errors import refuse
from impl.kernels import decode, extend, release
from impl.kernels.arrays import Array, HostArray
from impl.kernels.decode import DecodePlan
from impl.kernels.extend import ExtendPlan
from impl.rows import Handle

#: a device tensor of lengths and its host copy, int64
Lens = tuple[torch.Tensor, HostArray]


class RowBatch(NamedTuple):
    """The rows of a batch: where the table lies, and who the requests are."""

    table: torch.Tensor  # int32 [rows, width]; may be a strided view
    on_device: torch.Tensor
    rows: HostArray
    generations: HostArray


class PageBook(Book):
    """Pages on a stack; extends, decodes and releases by numpy or torch operations."""

    def __init__(self, num_pages: int, page_size: int, **options: Any) -> None:
        super().__init__(num_pages, page_size, **options)
        self.offsets = self.arrays.view(torch.arange(page_size, device=self.device))

    def _new_list(self) -> FreeList:
        return PageStack(self.num_pages, self.device, self.arrays, need_sort=self.need_sort)

    def forget_group(self) -> None:
        super().forget_group()
        self.slot_piles: list[Array] = []

    # Taking

    def take_slots(self, num_pages: int) -> torch.Tensor:
        """All slots of the first `num_pages` free pages."""
        return self.arrays.tensor(self._expand(self.take(num_pages)))

    def extend(
        self, plan: ExtendPlan, lens: Sequence[Lens], last_loc: torch.Tensor
    ) -> torch.Tensor:
        """Slots of a batch that fits; lengths as (prefix, seq)."""
        last = self.arrays.ids(last_loc)
        half_starts = last + 1 - self.arrays.send(plan.offsets)[0]
        if self.validate and not self._batch_agrees(plan, lens, last, half_starts):
            self._refuse_batch("alloc_extend", lens, last)
        return self.arrays.tensor(self._place_extend(plan, half_starts))

    def decode(self, plan: DecodePlan, seq_lens: Lens, last_loc: torch.Tensor) -> torch.Tensor:
        """One slot for each request of a batch that fits."""
        last = self.arrays.ids(last_loc)
        if self.validate:
            half_starts = last + 1 - self.arrays.send(plan.offsets)[0]
            if not self._batch_agrees(plan, [seq_lens], last, half_starts):
                self._refuse_batch("alloc_decode", [seq_lens], last)
        pages = self.take(plan.num_pages)
        slots = decode.place(self.arrays, plan, last, pages, self.page_size)
        return self.arrays.tensor(slots)

    def extend_rows(self, plan: ExtendPlan, lens: Sequence[Lens], batch: RowBatch) -> torch.Tensor:
        """`extend` behind the last slots in the table, and the new slots written there."""
        last = self._last_of_rows(batch, plan.prefix_lens)
        half_starts = last + 1 - self.arrays.send(plan.offsets)[0]
        self._check_rows("alloc_extend_rows", plan, lens, last, half_starts, batch)
        slots = self._place_extend(plan, half_starts, batch)
        starts = plan.new_tokens.cumsum() - plan.new_tokens
        positions = (plan.prefix_lens - starts).repeat(plan.new_tokens)
        positions += np.arange(plan.num_tokens)
        self._write(batch.table, batch.rows.repeat(plan.new_tokens), positions, slots)
        return self.arrays.tensor(slots)

    def decode_rows(self, plan: DecodePlan, seq_lens: Lens, batch: RowBatch) -> torch.Tensor:
        """`decode` behind the last slots in the table, and the new slots written there."""
        last = self._last_of_rows(batch, plan.prefix_lens)
        half_starts = last + 1 - self.arrays.send(plan.offsets)[0]
        self._check_rows("alloc_decode_rows", plan, [seq_lens], last, half_starts, batch)
        pages = self.take(plan.num_pages)
        self._hold(pages, batch, (plan.offsets == 0).astype(np.int64))
        slots = decode.place(self.arrays, plan, last, pages, self.page_size)
        self._write(batch.table, batch.rows, plan.prefix_lens, slots)
        return self.arrays.tensor(slots)

    def _place_extend(
        self, plan: ExtendPlan, half_starts: Array, batch: RowBatch | None = None
    ) -> Array:
        pages = self.take(plan.num_pages)
        if batch is not None:
            self._hold(pages, batch, plan.new_pages)
        return extend.place(self.arrays, plan, half_starts, pages, self.offsets, self.page_size)

    def _hold(self, pages: Array, batch: RowBatch, new_pages: HostArray) -> None:
        if pages.shape[0]:
            holders = sent_holders(self.arrays, batch.rows, batch.generations, new_pages)
            self.states.hold(pages, *holders)

    def _last_of_rows(self, batch: RowBatch, prefix_lens: HostArray) -> Array:
        """The slot of each request's last token by the table, -1 without one."""
        begun = prefix_lens.nonzero()[0]
        last = self.arrays.empty(prefix_lens.shape[0])
        last[:] = -1
        rows, at, begun = self.arrays.send(batch.rows[begun], prefix_lens[begun] - 1, begun)
        last[begun] = self.arrays.wide(self.arrays.view(batch.table)[rows, at])
        return last

    def _write(
        self, table: torch.Tensor, rows: HostArray, columns: HostArray, slots: Array
    ) -> None:
        at = tuple(self.arrays.send(rows, columns))
        self.arrays.view(table)[at] = self.arrays.narrow(slots)

    # Checks of a batch

    def _batch_agrees(
        self,
        plan: ExtendPlan | DecodePlan,
        lens: Sequence[Lens],
        last: Array,
        half_starts: Array,
        batch: RowBatch | None = None,
    ) -> bool:
        """Whether nothing is wrong with a batch; what looks wrong is searched for exactly."""
        fresh = (plan.prefix_lens == 0).nonzero()[0]
        half = plan.offsets.nonzero()[0]
        *sent, fresh, half = self.arrays.send(*(host for _, host in lens), fresh, half)
        truths = [
            self.arrays.same(self.arrays.ids(tensor), host)
            for (tensor, _), host in zip(lens, sent, strict=True)
        ]
        # the first slot of a request's half-filled page, or of the page it would open next
        truths.append(half_starts % self.page_size == 0)
        if fresh.shape[0]:
            truths.append(last[fresh] == -1)
        if half.shape[0]:
            pages = self.states.clip(half_starts[half] // self.page_size)
            truths += [self.states.owned(pages), self.states.once(pages)]
        if batch is not None:
            truths += self._rows_agree(plan, last, half_starts, batch)
        return self.arrays.all_hold(truths)

    def _rows_agree(
        self,
        plan: ExtendPlan | DecodePlan,
        last: Array,
        half_starts: Array,
        batch: RowBatch,
    ) -> list[Any]:
        """What a batch through the table must fulfil besides."""
        begun, half = plan.prefix_lens.nonzero()[0], plan.offsets.nonzero()[0]
        half_rows, half_generations = batch.rows[half], batch.generations[half]
        rows, begun, half, half_rows, half_generations = self.arrays.send(
            batch.rows, begun, half, half_rows, half_generations
        )
        pages = self.states.clip(half_starts[half] // self.page_size)
        return [
            self.arrays.same(self.arrays.ids(batch.on_device), rows),
            last[begun] >= self.page_size,
            self.states.held_by(pages, half_rows, half_generations),
        ]

    def _check_rows(
        self,
        call: str,
        plan: ExtendPlan | DecodePlan,
        lens: Sequence[Lens],
        last: Array,
        half_starts: Array,
        batch: RowBatch,
    ) -> None:
        if self.validate and not self._batch_agrees(plan, lens, last, half_starts, batch):
            self._refuse_batch(call, lens, last, batch)

    def _refuse_batch(
        self, call: str, lens: Sequence[Lens], last: Array, batch: RowBatch | None = None
    ) -> None:
        """Raise the smallest fault of the values, if there is one."""
        pages = self.states.clip(last // self.page_size)
        found = faults.of_batch(
            [(tensor.tolist(), host.tolist()) for tensor, host in lens],
            last.tolist(),
            self.states.look(pages).tolist(),
            self.page_size,
        )
        if batch is not None:
            found += faults.of_rows(
                (batch.on_device.tolist(), batch.rows.tolist(), batch.generations.tolist()),
                lens[0][1].tolist() if len(lens) > 1 else (lens[0][1] - 1).tolist(),
                last.tolist(),
                self.states.holders(pages),
                self.page_size,
            )
        refuse(call, found, faults.TODO)

    # Giving back

    def free_slots(self, call: str, slots: Sequence[torch.Tensor]) -> None:
        """Free or park the distinct pages of each of `slots`, which share none."""
        ids = [self.arrays.ids(each) for each in slots]
        piles = [
            self.states.clip(release.distinct_pages(self.arrays, each, self.page_size))
            for each in ids
        ]
        pages = joined(self.arrays, piles)
        num_new = pages.shape[0]
        if self.validate or self.parked_slots:
            states = self.states.look(pages)
            truths = [states >= PARKED_SLOTS]
            if len(piles) > 1:
                truths.append(self.states.once(pages))
            if self.parked_slots:
                num_new = int((states != PARKED_SLOTS).sum())
            if self.validate and not self.arrays.all_hold(truths):
                self._refuse_slots(call, ids)
        self.require_out(call, num_new)
        if not self.group_is_open:
            for pile in piles:
                self.release(pile)
            return
        self.states.mark(pages, PARKED_SLOTS)
        self.num_parked += num_new
        self.slot_piles += piles
        self.parked_slots += [self.arrays.joined((each,)) for each in ids]

    def _refuse_slots(self, call: str, slots: Sequence[Array]) -> None:
        named = [each.tolist() for each in slots]
        pages = self.states.clip(joined(self.arrays, slots) // self.page_size)
        states = self.states.look(pages).tolist()
        flat = (slot for each in named for slot in each)
        new_pages = {
            slot // self.page_size
            for slot, state in zip(flat, states, strict=True)
            if state != PARKED_SLOTS
        }
        self.require_out(call, len(new_pages))
        refuse(call, faults.of_slots(named, states, self.page_size, self.num_pages), faults.TODO)

    def free_pages(self, page_ids: torch.Tensor) -> None:
        """Free or park exactly these pages, at least one and no more than are out."""
        ids = self.arrays.ids(page_ids)
        pages = self.states.clip(ids)
        if self.validate and not self._owned_once(pages):
            states = self.states.look(pages).tolist()
            found = faults.of_pages(enumerate(ids.tolist()), states, self.num_pages)
            refuse("free_page_ids", found, faults.TODO)
        self._free_piles([pages], pages)

    def free_segments(self, call: str, segments: Sequence[torch.Tensor]) -> None:
        """Free or park the pages of segments, no more than are out."""
        self._free_segments(call, [self.arrays.ids(each) for each in segments])

    def free_row(self, table: torch.Tensor, holder: Handle, start: int, end: int) -> None:
        """Free or park the pages of positions start..end-1 of a row, no more than are out."""
        slots = self.arrays.wide(self.arrays.view(table)[holder.row, start:end])
        self._free_segments("free_rows_segment", [slots], holder)

    def _free_segments(
        self, call: str, slots: Sequence[Array], holder: Handle | None = None
    ) -> None:
        ids = [each[:: self.page_size] // self.page_size for each in slots]
        piles = [self.states.clip(each) for each in ids]
        pages = joined(self.arrays, piles)
        if self.validate:
            truths = [
                self.arrays.same(each, self._expand(pages_of)[: each.shape[0]])
                for each, pages_of in zip(slots, ids, strict=True)
            ]
            truths += [self.states.owned(pages), self.states.once(pages)]
            if holder is not None:
                truths.append(self.states.held_by(pages, *holder))
            if not self.arrays.all_hold(truths):
                self._refuse_segments(call, slots, ids, holder)
        self._free_piles(piles, pages)

    def _owned_once(self, pages: Array) -> bool:
        """Whether all of `pages`, clipped, are owned and named once."""
        return self.arrays.all_hold([self.states.owned(pages), self.states.once(pages)])

    def _refuse_segments(
        self, call: str, slots: Sequence[Array], ids: Sequence[Array], holder: Handle | None
    ) -> None:
        named = [each.tolist() for each in slots]
        starts = [0]
        for each in named:
            starts.append(starts[-1] + len(each))
        items = [
            (start + at * self.page_size, page)
            for start, each in zip(starts, ids, strict=False)
            for at, page in enumerate(each.tolist())
        ]
        pages = self.states.clip(joined(self.arrays, ids))
        states = self.states.look(pages).tolist()
        found = faults.of_consecutive(named, self.page_size)
        found += faults.of_pages(items, states, self.num_pages)
        if holder is not None:
            found += faults.of_strangers(items, self.states.holders(pages), holder)
        refuse(call, found, faults.TODO)

    def _free_piles(self, piles: list[Array], pages: Array) -> None:
        """Free or park page ids, checked; `pages` are those of all `piles`."""
        if not self.group_is_open:
            for pile in piles:
                self.release(pile)
            return
        self.states.mark(pages, PARKED_PAGES)
        self.num_parked += pages.shape[0]
        self.parked_pages += piles

    def release_parked(self) -> None:
        piles = []
        if self.slot_piles:
            piles.append(self.arrays.distinct(self.arrays.joined(self.slot_piles)))
        if self.parked_pages:
            piles.append(self.arrays.joined(self.parked_pages))
        for pile in piles:
            self.release(pile)

    def _expand(self, pages: Array) -> Array:
        return release.expand_pages(pages, self.offsets, self.page_size)
