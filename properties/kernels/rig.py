"""The kernels beside the reference: the least bookkeeping that turns launches into an allocator.

Every operation calls the reference, launches, and compares slots, refusals as (kind, index), the
whole state, and the guards. Spec: `spec/core.md` §4, §4b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from impl.allocators import states
from impl.errors import KINDS
from impl.kernels.device import load
from impl.kernels.device.pages import UNCLAIMED, Pages, Record, make_pages, read
from properties.kernels.guards import Guards
from reference import PagedTokenToKVPoolAllocator
from reference.refusal import Refused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Ints = Sequence[int]
Five = tuple[int, int, int, int, int]
#: kind and index of a fault → `named` and the fields behind it in a `Record`
Told = Callable[[str, int], Five]


def run_expects(slots: Ints, start: int, at: int, page_size: int) -> int:
    """Which slot has to stand at an index, in a run of pages that begins at `start`."""
    offset = (at - start) % page_size
    first = slots[at - offset]
    return first + offset if offset else first - first % page_size


class Rig:
    """One paged allocator; `requests` are the slots of live requests, in position order."""

    def __init__(self, num_pages: int, page_size: int, *, need_sort: bool = False) -> None:
        self.device = load()
        self.page_size = page_size
        self.num_pages = num_pages
        self.model = PagedTokenToKVPoolAllocator(
            num_pages * page_size, page_size, need_sort=need_sort
        )
        self.books = Guards(DEVICE)
        fresh = make_pages(num_pages, page_size, "cpu")
        line = self.books.line
        self.pages = Pages(
            page_size,
            line("states", fresh.states, torch.uint8),
            line("holder_row", fresh.holder_row, torch.int32),
            line("holder_gen", fresh.holder_gen),
            line("claim", fresh.claim, torch.int32),
            line("record", fresh.record),
        )
        self.ids = line("ids", range(1, num_pages + 1))
        self.staged = line("staged", range(num_pages if need_sort else 0))
        self.head = self.num_staged = self.seq = 0
        self.holders: dict[int, tuple[int, int]] = {}

    # What every call is held against

    def call(
        self,
        want: Callable[[], list[int] | None],
        launch: Callable[[Guards, int], torch.Tensor | None],
        *written: str,
        told: Told | None = None,
    ) -> list[int] | None:
        """The reference's answer and the kernels': equal slots, or the equal fault.

        `launch` gets guards for its buffers, of which it may write "out" and those `written`, and
        the call's number; `told` says what the record has to hold besides. None if refused.
        """
        self.seq += 1
        try:
            slots = want()
            fault = None
        except Refused as refused:
            slots, fault = None, (refused.kind, refused.index)
        found = self.launched(launch, *written)
        record = read(self.pages.record.tolist())
        if fault is None:
            assert record is None, f"kernels refuse: {record}"
            assert found == (slots or []), f"{found} for {slots}"
            return slots if slots is not None else []
        assert record is not None, f"kernels miss {fault}"
        assert (KINDS[record.kind].__name__, record.at) == fault, f"{record} for {fault}"
        assert record.seq == self.seq
        assert told is not None
        assert record[3:] == told(*fault), f"the record of {fault}"
        assert not any(found), f"a refused call gives {found}"
        self.require_void(launch, record, *written)
        return None

    def page_told(self, named: int, extra: int = 0, *, is_id: bool = False) -> Five:
        """What a record says of an id: whose page it names, and what that is."""
        page = named if is_id else named // self.page_size
        entry = min(max(page, 0), self.num_pages + 1)
        holder_row = self.holders.get(entry, (0, 0))[0]
        since, state = int(self.pages.holder_gen[entry]), int(self.pages.states[entry])
        return named, holder_row, since, state, extra

    def launched(
        self, launch: Callable[[Guards, int], torch.Tensor | None], *written: str
    ) -> list[int]:
        """What a launch gives; guards and inputs are compared."""
        guards = Guards(DEVICE)
        self.books.remember()
        out = launch(guards, self.seq)
        guards.require("out", *written)
        self.books.require(*self.books.zones)
        return [] if out is None else out.tolist()

    def take_one(self, guards: Guards, seq: int) -> torch.Tensor:
        """The first page that is free, if there is one."""
        out = guards.empty("out", self.page_size if self.num_free else 0)
        self.device.take.take(self.pages, self.ids, self.head, out)
        return out

    def require_void(
        self,
        launch: Callable[[Guards, int], torch.Tensor | None],
        record: Record,
        *written: str,
    ) -> None:
        """The same call again, a take and a merge change nothing; then the record is emptied."""
        self.seq += 1
        self.books.remember()
        assert not any(self.launched(launch, *written))
        assert not any(self.launched(self.take_one))
        self.device.merge.merge(self.pages, self.ids, 0, self.num_pages)
        self.books.require()
        assert tuple(self.pages.record.tolist()) == record
        self.pages.record.zero_()

    def require_equal(self) -> None:
        """The whole state is the reference's."""
        model = self.model
        free = self.ids[self.head :].tolist()
        assert free == model.free_pages, f"free list {free} for {model.free_pages}"
        assert self.staged[: self.num_staged].tolist() == model.staged_pages, "staged pages"
        wanted = [states.RESERVED] + [states.NEVER] * self.num_pages + [states.BEYOND]
        for group, state in (
            (model.issued_pages, states.FREE),
            (model.staged_pages, states.STAGED),
            (model.slot_parked_pages, states.PARKED_SLOTS),
            ((page for pages in model.parked_pages for page in pages), states.PARKED_PAGES),
            (model.owned_pages, states.OWNED),
        ):
            for page in group:
                wanted[page] = state
        assert self.pages.states.tolist() == wanted, "states of pages"
        rows, since = self.pages.holder_row.tolist(), self.pages.holder_gen.tolist()
        held = {page: (row, since[page]) for page, row in enumerate(rows) if row}
        assert held == self.holders, "holders of pages"
        assert set(self.pages.claim.tolist()) == {UNCLAIMED}, "claims left behind"
        assert not self.pages.record.any()

    def fits(self, need_pages: int, bound_pages: int) -> bool:
        """The host's capacity test; staged pages are merged as the reference merges them."""
        if bound_pages > self.num_pages - self.head and self.num_staged:
            self.merge()
        return need_pages <= self.num_pages - self.head

    @property
    def num_free(self) -> int:
        """Pages in the free list."""
        return self.num_pages - self.head

    def merge(self) -> None:
        """Launch a merge; the reference does its own."""
        self.head -= self.num_staged
        self.num_staged = 0
        self.device.merge.merge(self.pages, self.ids, self.head, self.num_free)
