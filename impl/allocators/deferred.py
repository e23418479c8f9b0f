"""The books of both allocators on Triton kernels: faults of values are deferred.

Counts are the host's and run ahead of the device; see `deferral`. What isn't on the hot path
(the end of a group, `clear`, `snapshot`, `audit`) settles first and then does as the torch form.
Spec: `spec/core.md` §4, §5, §5a.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from impl import checks
from impl.allocators.book import Book
from impl.allocators.deferral import Deferral, packed
from impl.allocators.free_list import SlotRing
from impl.allocators.page_book import Lens, PageBook, RowBatch
from impl.allocators.slot_book import SlotBook
from impl.allocators.states import FREE, PARKED_PAGES, PARKED_SLOTS, STAGED
from impl.kernels import device as kernels
from impl.kernels import release
from impl.kernels.arrays import HostArray
from impl.kernels.decode import DecodePlan
from impl.kernels.device.pages import UNCLAIMED, Pages
from impl.kernels.extend import ExtendPlan
from impl.rows import Handle


class DeferredBook(Book):
    """What the deferred books of pages and of slots share."""

    def __init__(self, num_pages: int, page_size: int, **options: Any) -> None:
        super().__init__(num_pages, page_size, **options)
        self.deferral = Deferral(self.device, page_size=page_size, validate=self.validate)
        self.pages = Pages(
            page_size=page_size,
            states=self.states.by_page,
            holder_row=self.states.holder_rows,
            holder_gen=self.states.holder_generations,
            claim=torch.full((num_pages + 2,), UNCLAIMED, dtype=torch.int32, device=self.device),
            record=self.deferral.record,
        )

    @property
    def kernels(self) -> kernels.Device:
        """The kernels' modules; not kept, so that a book can be copied."""
        return kernels.load()

    # Faults

    def enter(self) -> None:
        super().enter()
        self.deferral.poll()

    def check(self) -> None:
        super().enter()
        self.deferral.check()

    def recover(self) -> None:
        super().enter()
        fields = self.deferral.recover()
        if fields is not None:
            self._restore(fields)

    def clear(self) -> None:
        self.deferral.forget()
        super().clear()

    def audit(self) -> list[str]:
        claims = (self.pages.claim != UNCLAIMED).nonzero()[:, 0].tolist()
        found = [f"I9: page {page} is claimed though no call is under way" for page in claims]
        return [*super().audit(), *found]

    def _fields(self) -> tuple[Any, ...]:
        """The host's fields that a call may change."""
        return (
            self.free_list.position(),
            self.num_parked,
            self.group_is_open,
            len(self.parked_slots),
            len(self.parked_pages),
            self.table,
        )

    def _restore(self, fields: tuple[Any, ...]) -> None:
        position, self.num_parked, self.group_is_open, num_slots, num_pages, self.table = fields
        self.free_list.restore(position)
        del self.parked_slots[num_slots:]
        del self.parked_pages[num_pages:]

    def _begin(self, call: str) -> int:
        return self.deferral.begin(call, self._fields())

    # Taking

    def _empty(self, length: int) -> torch.Tensor:
        return torch.empty(length, dtype=torch.int64, device=self.device)

    def take_slots(self, num_pages: int) -> torch.Tensor:
        """All slots of the first `num_pages` free ids."""
        out = self._empty(num_pages * self.page_size)
        if num_pages:
            self._begin("alloc")
            self.kernels.take.take(self.pages, self.free_list.ids, self.free_list.begin, out)
            self.free_list.advance(num_pages)
            self.deferral.launched()
        return out

    def merge(self) -> None:
        if self.free_list.num_staged:
            total = self.free_list.num_free + self.free_list.num_staged
            at = self.free_list.merged_begin
            self.kernels.merge.merge(self.pages, self.free_list.ids, at, total)
            self.free_list.merged()


class DeferredPageBook(DeferredBook, PageBook):
    """Pages on a stack, on kernels."""

    def __init__(self, num_pages: int, page_size: int, **options: Any) -> None:
        super().__init__(num_pages, page_size, **options)
        #: prefix sums of a batch: the kernels of a call leave them for each other
        self.sums = self._empty(0)

    # Taking

    def extend(
        self, plan: ExtendPlan, lens: Sequence[Lens], last_loc: torch.Tensor
    ) -> torch.Tensor:
        (prefix_lens, prefix), (seq_lens, seq) = lens
        return self._launch(
            "alloc_extend", plan.num_tokens, plan.num_pages, (prefix, seq),
            prefix_lens=prefix_lens, seq_lens=seq_lens, last_loc=last_loc,
        )  # fmt: skip

    def decode(self, plan: DecodePlan, seq_lens: Lens, last_loc: torch.Tensor) -> torch.Tensor:
        on_device, seq = seq_lens
        return self._launch(
            "alloc_decode", seq.shape[0], plan.num_pages, (seq,),
            seq_lens=on_device, last_loc=last_loc,
        )  # fmt: skip

    def extend_rows(self, plan: ExtendPlan, lens: Sequence[Lens], batch: RowBatch) -> torch.Tensor:
        (prefix_lens, prefix), (seq_lens, seq) = lens
        self.states.has_holders = True
        return self._launch(
            "alloc_extend_rows", plan.num_tokens, plan.num_pages,
            (batch.rows, prefix, seq, batch.generations),
            table=batch.table, rows=batch.on_device, prefix_lens=prefix_lens, seq_lens=seq_lens,
        )  # fmt: skip

    def decode_rows(self, plan: DecodePlan, seq_lens: Lens, batch: RowBatch) -> torch.Tensor:
        on_device, seq = seq_lens
        self.states.has_holders = True
        return self._launch(
            "alloc_decode_rows", seq.shape[0], plan.num_pages,
            (batch.rows, seq, batch.generations),
            table=batch.table, rows=batch.on_device, seq_lens=on_device,
        )  # fmt: skip

    def _launch(
        self,
        call: str,
        num_tokens: int,
        num_pages: int,
        numbers: Sequence[HostArray],
        *,
        table: torch.Tensor | None = None,
        **vectors: torch.Tensor,
    ) -> torch.Tensor:
        """Slots of a batch that fits; `numbers` are what the host knows of each request."""
        number = self._begin(call)
        scratch = self.kernels.extend.SCRATCH_ROWS * numbers[0].shape[0]
        if self.sums.shape[0] < scratch:
            self.sums = self._empty(scratch)
        out = self._empty(num_tokens)
        self.kernels.extend.place(
            self.pages, self.free_list.ids, self.free_list.begin, out,
            # the table is written to: it stays the one it is, whatever its strides
            table=table, **{name: each.contiguous() for name, each in vectors.items()},
            host=packed(self.device, numbers), sums=self.sums, seq=number, validate=self.validate,
        )  # fmt: skip
        self.free_list.advance(num_pages)
        self.deferral.launched()
        return out

    # Giving back

    def free_pages(self, page_ids: torch.Tensor) -> None:
        count = page_ids.shape[0]
        number = self._begin("free_page_ids")
        self.kernels.release.release_ids(
            self.pages, page_ids, self._target([count]), seq=number, validate=self.validate
        )
        self.deferral.launched()

    def free_segments(self, call: str, segments: Sequence[torch.Tensor]) -> None:
        lengths = [each.shape[0] for each in segments]
        number = self._begin(call)
        plan = release.plan_segments(lengths, self.page_size)
        slots, bounds = segments[0], None
        if len(segments) > 1:
            slots = torch.cat(tuple(segments))
            edges = np.cumsum([[0, *lengths], [0, *plan.num_pages]], axis=1)
            bounds = packed(self.device, list(edges))
        self.kernels.release.release_segments(
            self.pages, slots, self._target(plan.num_pages), bounds=bounds,
            num_given=plan.firsts.shape[0], seq=number, validate=self.validate,
        )  # fmt: skip
        self.deferral.launched()

    def free_row(self, table: torch.Tensor, holder: Handle, start: int, end: int) -> None:
        number = self._begin("free_rows_segment")
        num_pages = -(-(end - start) // self.page_size)
        self.kernels.release.release_row(
            self.pages, table, holder, start, end, self._target([num_pages]), seq=number,
            validate=self.validate,
        )  # fmt: skip
        self.deferral.launched()

    def _target(self, piles: Sequence[int]) -> Any:
        """Where so many pages go, which come in piles; the host counts them as there."""
        count = sum(piles)
        target = self.kernels.release.Target
        if self.group_is_open:
            buffer = self._empty(count)
            self.num_parked += count
            self.parked_pages += map(self.arrays.view, torch.split(buffer, list(piles)))
            return target(buffer, 0, PARKED_PAGES)
        if self.need_sort:
            at = self.free_list.num_staged
            self.free_list.num_staged += count
            return target(self.free_list.staged_ids, at, STAGED)
        self.free_list.grow(count)
        return target(self.free_list.ids, self.free_list.begin, FREE, reverse=True)

    def free_slots(self, call: str, slots: Sequence[torch.Tensor]) -> None:
        number = self._begin(call)
        lengths = [each.shape[0] for each in slots]
        named = slots[0] if len(slots) == 1 else torch.cat(tuple(slots))
        values, order = named.sort()
        pile = self._empty(named.shape[0]) if self.group_is_open else None
        count = self._empty(1)
        self.kernels.slots.release_sorted(
            self.pages, values, order, self._slot_target(pile), count,
            num_out=self.num_owned, seq=number, validate=self.validate,
            **self._keys(named, lengths),
        )  # fmt: skip
        given = int(count)
        if pile is not None:
            self.num_parked += given
            if given:  # never behind a fault: nothing for `recover` to take back
                self.slot_piles.append(self.arrays.view(pile)[:given])
            self.parked_slots += [self.arrays.copy(self.arrays.ids(each)) for each in slots]
        elif self.need_sort:
            self.free_list.num_staged += given
        else:
            self.free_list.grow(given)
        self.deferral.launched()
        if not given:
            # refused, or parked already: seldom, and the count has been waited for anyway
            errors = [self.deferral.refusal_of(number)]
            if errors[0] is not None:
                self.recover()
            checks.raise_first(errors)

    def _slot_target(self, pile: torch.Tensor | None) -> Any:
        target = self.kernels.release.Target
        if pile is not None:
            return target(pile, 0, PARKED_SLOTS)
        if self.need_sort:
            return target(self.free_list.staged_ids, self.free_list.num_staged, STAGED)
        return target(self.free_list.ids, self.free_list.begin, FREE, reverse=True)

    def _keys(self, named: torch.Tensor, lengths: Sequence[int]) -> dict[str, Any]:
        """What several segments need besides: which of them a slot is in, and their order."""
        if len(lengths) == 1:
            return {}
        starts = packed(self.device, [np.cumsum([0, *lengths[:-1]])])[0]
        keys = self._empty(named.shape[0])
        self.kernels.slots.segment_keys(
            keys, named, starts, num_segments=len(lengths), reverse=not self.need_sort
        )
        return {"keys": keys.sort().values, "starts": starts, "num_segments": len(lengths)}


class DeferredSlotBook(DeferredBook, SlotBook):
    """Slots in a ring, on kernels."""

    free_list: SlotRing

    def free_slots(self, call: str, slots: torch.Tensor) -> None:
        count = slots.shape[0]
        if count > self.num_owned:
            # wrong in one way or another: which, the host may take its time to find out
            self.deferral.check()
            self._refuse(call, self.arrays.ids(slots))
        number = self._begin(call)
        target = self.kernels.release.Target
        if self.group_is_open:
            buffer = self._empty(count)
            to = target(buffer, 0, PARKED_SLOTS)
            self.num_parked += count
            self.parked_slots.append(self.arrays.view(buffer))
        elif self.need_sort:
            to = target(self.free_list.staged_ids, self.free_list.num_staged, STAGED)
            self.free_list.num_staged += count
        else:
            to = target(self.free_list.ids, self.free_list.end, FREE)
            self.free_list.grow(count)
        self.kernels.release.release_ids(self.pages, slots, to, seq=number, validate=self.validate)
        self.deferral.launched()
