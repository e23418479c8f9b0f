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
from impl.kernels.arrays import Array, HostArray, Truth
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
        pages = release.expand_pages(self.take(num_pages), self.offsets, self.page_size)
        return self.arrays.tensor(pages)

    def extend(
        self, plan: ExtendPlan, lens: Sequence[Lens], last_loc: torch.Tensor
    ) -> torch.Tensor:
        """Slots of a batch that fits; lengths as (prefix, seq)."""
        after_last = self.arrays.ids(last_loc) + 1
        if self.validate and not self._batch_agrees(plan, lens, after_last):
            self._refuse_batch("alloc_extend", lens, last_loc.tolist())
        pages = self.take(plan.num_pages)
        slots = extend.place(self.arrays, plan, after_last, pages, self.page_size)
        return self.arrays.tensor(slots)

    def decode(self, plan: DecodePlan, seq_lens: Lens, last_loc: torch.Tensor) -> torch.Tensor:
        """One slot for each request of a batch that fits."""
        after_last = self.arrays.ids(last_loc) + 1
        if self.validate and not self._batch_agrees(plan, [seq_lens], after_last):
            self._refuse_batch("alloc_decode", [seq_lens], last_loc.tolist())
        pages = self.take(plan.num_pages)
        slots = decode.place(self.arrays, plan, after_last, pages, self.page_size)
        return self.arrays.tensor(slots)

    def extend_rows(self, plan: ExtendPlan, lens: Sequence[Lens], batch: RowBatch) -> torch.Tensor:
        """`extend` behind the last slots in the table, and the new slots written there."""
        after_last = self._checked_rows("alloc_extend_rows", plan, lens, batch)
        pages = self.take(plan.num_pages)
        self._hold(pages, batch, plan.each[extend.PAGES])
        slots = extend.place(self.arrays, plan, after_last, pages, self.page_size)
        new_tokens = plan.each[extend.TOKENS]
        positions = (plan.prefix_lens - plan.before[extend.TOKENS]).repeat(new_tokens)
        positions += np.arange(plan.num_tokens)
        self._write(batch.table, batch.rows.repeat(new_tokens), positions, slots)
        return self.arrays.tensor(slots)

    def decode_rows(self, plan: DecodePlan, seq_lens: Lens, batch: RowBatch) -> torch.Tensor:
        """`decode` behind the last slots in the table, and the new slots written there."""
        after_last = self._checked_rows("alloc_decode_rows", plan, [seq_lens], batch)
        pages = self.take(plan.num_pages)
        self._hold(pages, batch, (plan.offsets == 0).astype(np.int64))
        slots = decode.place(self.arrays, plan, after_last, pages, self.page_size)
        self._write(batch.table, batch.rows, plan.prefix_lens, slots)
        return self.arrays.tensor(slots)

    def _hold(self, pages: Array, batch: RowBatch, new_pages: HostArray) -> None:
        if pages.shape[0]:
            holders = sent_holders(self.arrays, batch.rows, batch.generations, new_pages)
            self.states.hold(pages, *holders)

    def _checked_rows(
        self, call: str, plan: ExtendPlan | DecodePlan, lens: Sequence[Lens], batch: RowBatch
    ) -> Array:
        """The slot after each request's last one by the table, 0 without one; checked."""
        begun = plan.prefix_lens.nonzero()[0]
        rows, at, begun = self.arrays.send(batch.rows[begun], plan.prefix_lens[begun] - 1, begun)
        after_last = self.arrays.zeros(plan.prefix_lens.shape[0])
        after_last[begun] = self.arrays.wide(self.arrays.view(batch.table)[rows, at]) + 1
        if self.validate and not self._batch_agrees(plan, lens, after_last, batch):
            self._refuse_batch(call, lens, (after_last - 1).tolist(), batch)
        return after_last

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
        after_last: Array,
        batch: RowBatch | None = None,
    ) -> bool:
        """Whether nothing is wrong with a batch; what looks wrong is searched for exactly."""
        fresh, half = (plan.prefix_lens == 0).nonzero()[0], plan.offsets.nonzero()[0]
        *hosts, offsets, at_fresh, at_half = self.arrays.send(
            *(host for _, host in lens), plan.offsets, fresh, half
        )
        truths = [
            self.arrays.same(self.arrays.ids(tensor), host)
            for (tensor, _), host in zip(lens, hosts, strict=True)
        ]
        # the page that each request continues, or would open behind its last one: 0 if fresh
        starts = after_last - offsets
        pages = starts // self.page_size
        truths.append(self.arrays.same(pages * self.page_size, starts))
        if fresh.shape[0]:
            truths.append(self.arrays.all_zero(pages[at_fresh]))
        if half.shape[0]:
            halves = pages[at_half]
            truths += [self.states.owned(halves), self.arrays.once(halves)]
            if batch is not None:
                rows, generations = batch.rows[half], batch.generations[half]
                truths.append(self.states.held_by(halves, *self.arrays.send(rows, generations)))
        if batch is not None:
            rows, begun = self.arrays.send(batch.rows, plan.prefix_lens.nonzero()[0])
            truths.append(self.arrays.same(self.arrays.ids(batch.on_device), rows))
            truths.append(after_last[begun] > self.page_size)
        return self.arrays.all_hold(truths)

    def _refuse_batch(
        self, call: str, lens: Sequence[Lens], last_loc: list[int], batch: RowBatch | None = None
    ) -> None:
        """Raise the smallest fault of the values, if there is one."""
        last = torch.tensor(last_loc, device=self.device)
        pages = self.arrays.view(last) // self.page_size
        found = faults.of_batch(
            [(tensor.tolist(), host.tolist()) for tensor, host in lens],
            last_loc,
            self.states.look(pages).tolist(),
            self.page_size,
        )
        if batch is not None:
            seq_lens = lens[-1][1].tolist()
            prefix_lens = lens[0][1].tolist() if len(lens) > 1 else [seq - 1 for seq in seq_lens]
            found += faults.of_rows(
                (batch.on_device.tolist(), batch.rows.tolist(), batch.generations.tolist()),
                prefix_lens,
                last_loc,
                self.states.holders(pages),
                self.page_size,
            )
        refuse(call, found, faults.ADVICE)

    # Giving back

    def free_slots(self, call: str, slots: Sequence[torch.Tensor]) -> None:
        """Free or park the distinct pages of each of `slots`, which share none."""
        self.give_slots(*self.checked_slots(call, slots))

    def checked_slots(
        self, call: str, slots: Sequence[torch.Tensor]
    ) -> tuple[list[Array], list[Array]]:
        """`slots` as ids, and the pages of each that a free gives back: distinct, ascending."""
        ids = [self.arrays.ids(each) for each in slots]
        named = [each // self.page_size for each in ids]
        piles = [self._newly_freed(each) for each in named]
        pages = joined(self.arrays, piles)
        if self.validate and not self.arrays.all_hold(self._slots_agree(named, pages)):
            self._refuse_slots(call, ids)
        self.require_out(call, pages.shape[0])
        return ids, piles

    def give_slots(self, ids: Sequence[Array], piles: Sequence[Array]) -> None:
        """Free or park checked slots: pages in piles, each given back by itself."""
        if not self.group_is_open:
            for pile in piles:
                self.release(pile)
            return
        pages = joined(self.arrays, piles)
        self.states.mark(pages, PARKED_SLOTS)
        self.num_parked += pages.shape[0]
        self.slot_piles += piles
        self.parked_slots += [self.arrays.copy(each) for each in ids]

    def _newly_freed(self, pages: Array) -> Array:
        """`pages` once each, ascending, without those that an earlier slot free has parked."""
        if not self.parked_slots:
            return self.arrays.distinct(pages)
        # those become page 0, which one more 0 makes sure to be there, and then leaves: asking
        # how many they are would be one host read more
        pages = pages * (self.states.look(pages) != PARKED_SLOTS)
        return self.arrays.distinct(self.arrays.joined((self.arrays.zeros(1), pages)))[1:]

    def _slots_agree(self, named: Sequence[Array], pages: Array) -> list[Truth]:
        """True if the pages `named` by slots, of which `pages` are newly freed, can be freed."""
        if self.parked_slots:
            truths = [self.states.look(each) >= PARKED_SLOTS for each in named]
        else:
            truths = [self.states.owned(pages)]
        if len(named) > 1:
            once_in_each = self.arrays.joined([self.arrays.distinct(each) for each in named])
            truths.append(self.arrays.once(once_in_each))
        return truths

    def _refuse_slots(self, call: str, slots: Sequence[Array]) -> None:
        named = [each.tolist() for each in slots]
        states = self.states.look(joined(self.arrays, slots) // self.page_size).tolist()
        flat = (slot for each in named for slot in each)
        new_pages = {
            slot // self.page_size
            for slot, state in zip(flat, states, strict=True)
            if state != PARKED_SLOTS
        }
        self.require_out(call, len(new_pages))
        refuse(call, faults.of_slots(named, states, self.page_size, self.num_pages), faults.ADVICE)

    def free_pages(self, page_ids: torch.Tensor) -> None:
        """Free or park exactly these pages, at least one and no more than are out."""
        pages = self.checked_pages(page_ids)
        self.give_pages(pages, [pages.shape[0]])

    def checked_pages(self, page_ids: torch.Tensor) -> Array:
        """`page_ids` as ids of pages that can be given back, each named once."""
        pages = self.arrays.ids(page_ids)
        if self.validate and not self.arrays.all_hold(
            [self.states.owned(pages), self.arrays.once(pages)]
        ):
            states = self.states.look(pages).tolist()
            found = faults.of_pages(enumerate(pages.tolist()), states, self.num_pages)
            refuse("free_page_ids", found, faults.ADVICE)
        return pages

    def free_segments(self, call: str, segments: Sequence[torch.Tensor]) -> None:
        """Free or park the pages of segments, no more than are out."""
        slots = [self.arrays.ids(each) for each in segments]
        self._free_segments(call, joined(self.arrays, slots), [each.shape[0] for each in slots])

    def free_row(self, table: torch.Tensor, holder: Handle, start: int, end: int) -> None:
        """Free or park the pages of positions start..end-1 of a row, no more than are out."""
        slots = self.arrays.wide(self.arrays.view(table)[holder.row, start:end])
        self._free_segments("free_rows_segment", slots, [end - start], holder)

    def _free_segments(
        self, call: str, slots: Array, lengths: list[int], holder: Handle | None = None
    ) -> None:
        """Free or park the pages of segments of these `lengths`, one behind the other."""
        pages, segments = self.checked_segments(call, slots, lengths, holder)
        self.give_pages(pages, segments.num_pages)

    def checked_segments(
        self, call: str, slots: Array, lengths: list[int], holder: Handle | None = None
    ) -> tuple[Array, release.Segments]:
        """The pages of segments of these `lengths`, and where each is named."""
        segments = release.plan_segments(lengths, self.page_size)
        (firsts,) = self.arrays.send(segments.firsts)
        pages = slots[firsts] // self.page_size
        if self.validate:
            due = self.arrays.spread(
                pages * self.page_size, segments.firsts, segments.counts, slots.shape[0]
            )
            truths = [
                self.arrays.same(slots, due),
                self.states.owned(pages),
                self.arrays.once(pages),
            ]
            if holder is not None:
                truths.append(self.states.held_by(pages, *holder))
            if not self.arrays.all_hold(truths):
                self._refuse_segments(call, slots, lengths, segments, holder)
        return pages, segments

    def _refuse_segments(
        self,
        call: str,
        slots: Array,
        lengths: list[int],
        segments: release.Segments,
        holder: Handle | None,
    ) -> None:
        flat, named, start = slots.tolist(), [], 0
        for length in lengths:
            named.append(flat[start : start + length])
            start += length
        items = [(at, flat[at] // self.page_size) for at in segments.firsts.tolist()]
        (firsts,) = self.arrays.send(segments.firsts)
        pages = slots[firsts] // self.page_size
        found = faults.of_consecutive(named, self.page_size)
        found += faults.of_pages(items, self.states.look(pages).tolist(), self.num_pages)
        if holder is not None:
            found += faults.of_strangers(items, self.states.holders(pages), holder)
        refuse(call, found, faults.ADVICE)

    def give_pages(self, pages: Array, piles: Sequence[int]) -> None:
        """Free or park checked page ids: piles of so many, each given back by itself."""
        if self.group_is_open:
            self.states.mark(pages, PARKED_PAGES)
            self.num_parked += pages.shape[0]
            pages, end = self.arrays.copy(pages), 0
            for count in piles:
                self.parked_pages.append(pages[end : end + count])
                end += count
        elif len(piles) > 1 and not self.need_sort:
            # each pile comes to lie in front of the earlier ones
            (order,) = self.arrays.send(release.last_pile_first(piles))
            self.release(pages[order])
        else:
            self.release(pages)

    def release_parked(self) -> None:
        piles = []
        if self.slot_piles:
            piles.append(self.arrays.distinct(self.arrays.joined(self.slot_piles)))
        if self.parked_pages:
            piles.append(self.arrays.joined(self.parked_pages))
        for pile in piles:
            self.release(pile)
