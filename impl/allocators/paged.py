"""Pages of `page_size` slots, most recently freed first. Spec: `spec/core.md` §4."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from impl import checks
from impl.allocators import faults
from impl.allocators.base import BaseTokenToKVPoolAllocator, Segment
from impl.allocators.batches import plan_decode, plan_extend
from impl.allocators.free_list import FreeList, PageStack
from impl.allocators.segments import parse as parse_segments
from impl.allocators.states import PARKED_PAGES, PARKED_SLOTS
from impl.errors import NotPageMultiple, TooMany, refuse
from impl.kernels.decode import DecodePlan
from impl.kernels.extend import ExtendPlan, HostConstants
from impl.kernels.transfer import Pair, agree, int64, send


class PagedTokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    """The contract with any page size >= 1, powers of two or not. Spec: §4."""

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
        self._constants = HostConstants(self.page_size)
        # 0-d tensors: Python scalars cost several times as much in small operations.
        self._one = torch.tensor(1, device=self.device)
        self._page_size = torch.tensor(self.page_size, device=self.device)
        self._offsets = torch.arange(self.page_size, device=self.device)
        self._none = torch.empty(0, dtype=torch.int64, device=self.device)
        if self.device.type == "cuda":
            self._warm_up()

    def _warm_up(self) -> None:
        """Compile what the first free would: on AMD GPUs the first `unique` takes 200 ms."""
        # A failure costs only that time: the free will report it.
        with contextlib.suppress(RuntimeError):
            self._kernels.distinct_pages(self._offsets, self._page_size)

    def _new_free_list(self) -> FreeList:
        return PageStack(self.num_pages, self.device, self.need_sort)

    def _forget_group(self) -> None:
        super()._forget_group()
        self._slot_piles: list[torch.Tensor] = []

    # Taking

    def alloc(self, need_size: int) -> torch.Tensor | None:
        size = checks.host_size(need_size, "need_size")
        num_pages, rest = divmod(size, self.page_size)
        if rest:
            raise NotPageMultiple(
                f"alloc({size}): not a multiple of the page size {self.page_size}. Round it up."
            )
        if not self._fits(num_pages, bound=num_pages):
            return None
        return self._expand(self._take(num_pages))

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
        plan = plan_extend(
            (prefix_lens, seq_lens, last_loc),
            (prefix_lens_cpu, seq_lens_cpu),
            extend_num_tokens,
            num_new_pages,
            self.device,
            self._constants,
        )
        batch_size = last_loc.shape[0]
        bound = plan.num_tokens // self.page_size + batch_size + 1
        if not self._fits(plan.num_pages, bound):
            return None
        if not batch_size:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        last = int64(last_loc)
        half_pages = self._half_pages(plan, last)
        if self.validate:
            after_last = last + self._one
            lens = prefix_lens, seq_lens
            host_lens = prefix_lens_cpu, seq_lens_cpu
            pairs = self._length_pairs(lens, host_lens)
            pairs += self._last_loc_pairs(plan, host_lens[0], after_last, half_pages)
            if not agree(pairs):
                self._refuse_batch("alloc_extend", lens, host_lens, last)
        new_pages = self._take(plan.num_pages)
        return self._kernels.place_extend(
            plan, half_pages, new_pages, self._offsets, self._page_size
        )

    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        plan = plan_decode((seq_lens, last_loc), seq_lens_cpu, self.device, self._constants)
        batch_size = last_loc.shape[0]
        if not self._fits(plan.num_pages, bound=batch_size):
            return None
        if not batch_size:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        last = int64(last_loc)
        after_last = last + self._one
        if self.validate:
            half_pages = self._half_pages(plan, last)
            pairs = self._length_pairs((seq_lens,), (seq_lens_cpu,))
            pairs += self._last_loc_pairs(plan, plan.prefix_lens, after_last, half_pages)
            if not agree(pairs):
                lens = int64(seq_lens) - self._one, seq_lens
                self._refuse_batch("alloc_decode", lens, (plan.prefix_lens, seq_lens_cpu), last)
        if not plan.num_pages:
            return after_last
        first_slots = self._take(plan.num_pages) * self._page_size
        return self._kernels.place_decode(plan, after_last, first_slots)

    def _expand(self, pages: torch.Tensor) -> torch.Tensor:
        return self._kernels.expand_pages(pages, self._offsets, self._page_size)

    def _pages(self, slots: torch.Tensor) -> torch.Tensor:
        return torch.div(slots, self._page_size, rounding_mode="floor")

    def _half_pages(self, plan: ExtendPlan | DecodePlan, last: torch.Tensor) -> torch.Tensor:
        """The half-filled pages that the requests `plan.half` continue."""
        if not plan.half.shape[0]:
            return self._none
        (half,) = send(self.device, plan.half)
        return self._pages(last.index_select(0, half))

    def _length_pairs(
        self, lens: Sequence[torch.Tensor], host_lens: Sequence[torch.Tensor]
    ) -> list[Pair]:
        """Equal if the device's lengths are the host's."""
        sent = send(self.device, *map(int64, host_lens))
        return list(zip(map(int64, lens), sent, strict=True))

    def _last_loc_pairs(
        self,
        plan: ExtendPlan | DecodePlan,
        host_prefix_lens: torch.Tensor,
        after_last: torch.Tensor,
        half_pages: torch.Tensor,
    ) -> list[Pair]:
        """Equal if `last_loc` is right; `half_pages` are those continued."""
        if not plan.longest_prefix:
            return [(after_last, after_last.new_zeros(after_last.shape))]
        (offsets,) = send(self.device, plan.offsets)
        pairs = [(torch.remainder(after_last, self._page_size), offsets)]
        if not plan.shortest_prefix:
            # Equal where an empty prefix has -1 and others nothing negative. A longer prefix may
            # have that, unusual as it is: then the exact search runs and finds no fault.
            (prefix,) = send(self.device, int64(host_prefix_lens))
            one = self._one
            pairs.append((torch.minimum(after_last, one), torch.minimum(prefix, one)))
        if half_pages.shape[0]:
            pages = self._states.clip(half_pages)
            pairs += self._all_owned_once(pages)
        return pairs

    def _refuse_batch(
        self,
        call: str,
        lens: tuple[torch.Tensor, torch.Tensor],
        host_lens: tuple[torch.Tensor, torch.Tensor],
        last: torch.Tensor,
    ) -> None:
        """Raise the smallest fault of the values, if there is one; lengths as (prefix, seq)."""
        found = faults.of_batch(
            (lens[0].tolist(), lens[1].tolist()),
            (host_lens[0].tolist(), host_lens[1].tolist()),
            last.tolist(),
            self._states_of_slots(last),
            self.page_size,
        )
        refuse(call, found, faults.TODO)

    def _states_of_slots(self, slots: torch.Tensor) -> list[int]:
        states: list[int] = self._states.look(self._states.clip(self._pages(slots))).tolist()
        return states

    # Giving back

    def free(self, free_index: torch.Tensor) -> None:
        checks.require_ids(free_index, "free_index", self.device)
        if free_index.shape[0]:
            self._free_slots("free", [int64(free_index)])

    def free_full_segments(self, segments: Iterable[Segment]) -> None:
        slots = parse_segments(segments, self.page_size, self.device)
        if slots:
            self._free_slots("free_full_segments", slots)

    def _free_slots(self, call: str, slots: Sequence[torch.Tensor]) -> None:
        """Free or park the distinct pages of each of `slots`, which share none."""
        piles = [
            self._states.clip(self._kernels.distinct_pages(each, self._page_size)) for each in slots
        ]
        pages = _joined(piles)
        num_new = pages.shape[0]
        lowest = PARKED_SLOTS
        if self.validate or self._parked_slots:
            states = self._states.look(pages)
            if len(piles) > 1:
                # A page of two segments counts as RESERVED, which no free accepts.
                states = states * self._states.once(pages)[0]
            if self._parked_slots:
                lowest, num_new = self._states.lowest_and_unparked(states)
            else:
                lowest = int(states.amin())
        if self.validate and lowest < PARKED_SLOTS:
            self._refuse_slots(call, slots)
        self._require_out(call, num_new)
        if not self._group_is_open:
            for pile in piles:
                self._release(pile)
            return
        self._states.mark(pages, PARKED_SLOTS)
        self._num_parked += num_new
        self._slot_piles += piles
        self._parked_slots += [each.clone() for each in slots]

    def _refuse_slots(self, call: str, slots: Sequence[torch.Tensor]) -> None:
        named = [each.tolist() for each in slots]
        states = self._states_of_slots(_joined(slots))
        flat = (slot for each in named for slot in each)
        new_pages = {
            slot // self.page_size
            for slot, state in zip(flat, states, strict=True)
            if state != PARKED_SLOTS
        }
        self._require_out(call, len(new_pages))
        refuse(call, faults.of_slots(named, states, self.page_size, self.num_pages), faults.TODO)

    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        checks.require_ids(page_ids, "page_ids", self.device)
        num_pages = page_ids.shape[0]
        if not num_pages:
            return
        self._require_out("free_page_ids", num_pages)
        ids = int64(page_ids)
        pages = self._states.clip(ids)
        if self.validate and not agree(self._all_owned_once(pages)):
            states = self._states.look(pages).tolist()
            found = faults.of_pages(enumerate(ids.tolist()), states, self.num_pages)
            refuse("free_page_ids", found, faults.TODO)
        self._free_piles([pages], pages)

    def free_segments(self, segments: Iterable[Segment]) -> None:
        slots = parse_segments(segments, self.page_size, self.device)
        if not slots:
            return
        ids = [self._pages(each[:: self.page_size]) for each in slots]
        self._require_out("free_segments", sum(each.shape[0] for each in ids))
        piles = [self._states.clip(each) for each in ids]
        pages = _joined(piles)
        if self.validate:
            pairs = [
                (each, self._expand(pages_of)[: each.shape[0]])
                for each, pages_of in zip(slots, ids, strict=True)
            ]
            if not agree(pairs + self._all_owned_once(pages)):
                self._refuse_segments(slots, ids)
        self._free_piles(piles, pages)

    def _all_owned_once(self, pages: torch.Tensor) -> list[Pair]:
        """Equal if all of `pages`, clipped and at least one, are owned and named once."""
        if pages.shape[0] == 1:
            return [self._states.owned(pages)]
        return [self._states.owned(pages), self._states.once(pages)]

    def _refuse_segments(self, slots: list[torch.Tensor], ids: list[torch.Tensor]) -> None:
        named = [each.tolist() for each in slots]
        starts = [0]
        for each in named:
            starts.append(starts[-1] + len(each))
        items = [
            (start + at * self.page_size, page)
            for start, each in zip(starts, ids, strict=False)
            for at, page in enumerate(each.tolist())
        ]
        states = self._states.look(self._states.clip(_joined(ids))).tolist()
        found = faults.of_consecutive(named, self.page_size)
        found += faults.of_pages(items, states, self.num_pages)
        refuse("free_segments", found, faults.TODO)

    def _free_piles(self, piles: list[torch.Tensor], pages: torch.Tensor) -> None:
        """Free or park page ids, checked; `pages` are those of all `piles`."""
        if not self._group_is_open:
            for pile in piles:
                self._release(pile)
            return
        self._states.mark(pages, PARKED_PAGES)
        self._num_parked += pages.shape[0]
        self._parked_pages += piles

    def _require_out(self, call: str, num_pages: int) -> None:
        if num_pages > self._num_owned:
            raise TooMany(
                f"{call}: {num_pages} pages given back, {self._num_owned} are out. "
                "Free each page once."
            )

    def _release_parked(self) -> None:
        piles = []
        if self._slot_piles:
            piles.append(torch.unique(torch.cat(self._slot_piles)))
        if self._parked_pages:
            piles.append(torch.cat(self._parked_pages))
        for pile in piles:
            self._release(pile)


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tuple(tensors))
