"""Allocation and release through the row table, and who holds a page (`spec/core.md` §5a).

A row call finds a request's last slot in the table and writes the new slots there, one position
after the other. Pages taken so are held by (row, generation): what a slot number can't tell, that
its page was freed and handed out again in between, the holder tells.
"""

from abc import abstractmethod
from typing import NamedTuple

from reference.allocators.base import BaseTokenToKVPoolAllocator
from reference.allocators.segments import Ids, segment_pages
from reference.refusal import Fault, as_int, refuse_smallest
from reference.rows import Handle, ReqToTokenPool


class Batch(NamedTuple):
    """The requests of one call: tensors, and their host copies."""

    rows: Ids
    rows_cpu: Ids
    prefix_lens: Ids
    prefix_lens_cpu: Ids
    seq_lens: Ids
    seq_lens_cpu: Ids

    def on_host(self) -> list[tuple[int, int, int]]:
        """(row, prefix, seq) of each request."""
        return list(zip(self.rows_cpu, self.prefix_lens_cpu, self.seq_lens_cpu, strict=True))


class RowCalls(BaseTokenToKVPoolAllocator):
    """The three calls, for an allocator of pages."""

    @abstractmethod
    def _release(self, pages: list[int]) -> None:
        """Give back these pages, in this order."""

    # --- allocation ---

    def alloc_extend_rows(
        self,
        table: ReqToTokenPool,
        rows: Ids,
        rows_cpu: Ids,
        prefix_lens: Ids,
        prefix_lens_cpu: Ids,
        seq_lens: Ids,
        seq_lens_cpu: Ids,
        extend_num_tokens: int,
    ) -> list[int] | None:
        """Slots for positions `prefix .. seq - 1` of each row, which the table has afterwards."""
        batch = Batch(rows, rows_cpu, prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu)
        faults = self._batch_faults(table, batch)
        num_tokens = sum(seq_lens_cpu) - sum(prefix_lens_cpu)
        stated_tokens = as_int(extend_num_tokens)
        if stated_tokens is None:
            faults.append(("WrongDtype", 0))
        elif stated_tokens != num_tokens:
            faults.append(("BadLengths", 0))
        refuse_smallest(faults)
        bound_pages = num_tokens // self.page_size + len(rows_cpu) + 1
        return self._alloc_in_rows(table, batch, bound_pages)

    def alloc_decode_rows(
        self, table: ReqToTokenPool, rows: Ids, rows_cpu: Ids, seq_lens: Ids, seq_lens_cpu: Ids
    ) -> list[int] | None:
        """One slot per row for position `seq - 1`: an extend by one, with a tighter bound."""
        before = [seq - 1 for seq in seq_lens]
        before_cpu = [seq - 1 for seq in seq_lens_cpu]
        batch = Batch(rows, rows_cpu, before, before_cpu, seq_lens, seq_lens_cpu)
        refuse_smallest(self._batch_faults(table, batch))
        return self._alloc_in_rows(table, batch, bound_pages=len(rows_cpu))

    def _pages_of(self, num_tokens: int) -> int:
        """ceil(num_tokens / page_size)"""
        return (num_tokens + self.page_size - 1) // self.page_size

    def _batch_faults(self, table: ReqToTokenPool, batch: Batch) -> list[Fault]:
        """What host data tell, before anything else is looked at."""
        if not isinstance(table, ReqToTokenPool):
            return [("WrongDtype", 0)]
        if len({len(column) for column in batch}) > 1:
            return [("BadLengths", 0)]
        faults: list[Fault] = []
        seen: set[int] = set()
        for index, (row, prefix, seq) in enumerate(batch.on_host()):
            if prefix < 0 or seq < prefix:
                faults.append(("BadLengths", index))
            if not 0 <= row <= table.size or seq > table.max_context_len:
                faults.append(("OutOfRange", index))
            if row == 0:
                faults.append(("Reserved", index))
            if row in seen:
                faults.append(("Duplicate", index))
            seen.add(row)
            if row not in table.held:
                faults.append(("RowNotHeld", index))
        if self.row_table not in (None, table):
            faults.append(("Unsupported", 0))
        return faults

    def _alloc_in_rows(
        self, table: ReqToTokenPool, batch: Batch, bound_pages: int
    ) -> list[int] | None:
        self.row_table = table
        requests = batch.on_host()
        need_pages = 0
        for _, prefix, seq in requests:
            need_pages += self._pages_of(seq) - self._pages_of(prefix)
        self._merge_if_short(bound_pages)
        if need_pages > len(self.free_pages):
            return None
        refuse_smallest(self._row_faults(table, batch))
        new_pages = iter(self._take(need_pages))
        slots = []
        for row, prefix, seq in requests:
            entries = table.req_to_token[row]
            for position in range(prefix, seq):
                if position % self.page_size == 0:
                    page = next(new_pages)
                    self.holder_of[page] = table.handle(row)
                    entries[position] = page * self.page_size
                else:
                    entries[position] = entries[position - 1] + 1
                slots.append(entries[position])
        return slots

    def _row_faults(self, table: ReqToTokenPool, batch: Batch) -> list[Fault]:
        """What the tensors and the table tell: faults of values."""
        faults: list[Fault] = []
        continued: set[int] = set()  # half-filled pages that a request of this call goes on with
        on_device = zip(batch.rows, batch.prefix_lens, batch.seq_lens, strict=True)
        for index, (device, host) in enumerate(zip(on_device, batch.on_host(), strict=True)):
            row, prefix, seq = host
            if device != host:
                faults.append(("BadLengths", index))
            if prefix == 0:
                continue
            last = table.req_to_token[row][prefix - 1]
            page, offset = last // self.page_size, prefix % self.page_size
            # An entry that was never written is 0, a slot of the reserved page.
            if last < self.page_size or (last + 1) % self.page_size != offset:
                faults.append(("BadLastLoc", index))
            if offset == 0:
                continue  # nothing of this page is written: it may be shared
            if page not in self.owned_pages or self._is_foreign(page, table.handle(row)):
                faults.append(("BadLastLoc", index))
            if seq > prefix:
                if page in continued:
                    faults.append(("Duplicate", index))
                continued.add(page)
        return faults

    def _is_foreign(self, page: int, handle: Handle) -> bool:
        """Whether somebody else holds the page; an anonymous one may be anybody's."""
        return self.holder_of.get(page, handle) != handle

    # --- release ---

    def free_rows_segment(
        self, handle: tuple[int, int], start: int, end: int, *, table: ReqToTokenPool | None = None
    ) -> None:
        """Give back the pages of positions `start .. end - 1`; the table isn't changed."""
        rows = self.row_table if table is None else table
        refuse_smallest(self._segment_faults(rows, handle, start, end))
        assert rows is not None  # or it was refused
        self.row_table = rows
        holder = Handle(*handle)
        entries = rows.req_to_token[holder.row][start:end]
        parts, indices, faults = segment_pages([entries], self.page_size)
        pages = parts[0]
        faults += self._page_list_faults(pages, indices)
        for page, index in zip(pages, indices, strict=True):
            if self._is_foreign(page, holder):
                faults.append(("NotOwned", index))
        refuse_smallest(faults)
        self._release(pages)

    def _segment_faults(
        self, table: ReqToTokenPool | None, handle: object, start: object, end: object
    ) -> list[Fault]:
        faults = _handle_faults(table, handle)
        first, stop = as_int(start), as_int(end)
        if first is None or stop is None:
            faults.append(("WrongDtype", 0))
        if first is not None and first < 0:
            faults.append(("NegativeSize", 0))
        if first is not None and first % self.page_size != 0:
            faults.append(("Misaligned", 0))
        if stop is not None and isinstance(table, ReqToTokenPool) and stop > table.max_context_len:
            faults.append(("OutOfRange", 0))
        if first is not None and stop is not None:
            if stop < first:
                faults.append(("NegativeSize", 0))
            if self._pages_of(stop - first) > len(self.owned_pages):
                faults.append(("TooMany", 0))
        if table is None or self.row_table not in (None, table):
            faults.append(("Unsupported", 0))
        return faults


def _handle_faults(table: object, handle: object) -> list[Fault]:
    """A handle is a pair of ints, and current in the table that it is meant for."""
    if not isinstance(table, ReqToTokenPool | None):
        return [("WrongDtype", 0)]
    if not isinstance(handle, tuple | list) or len(handle) != 2:
        return [("WrongShape", 0)]
    row, generation = as_int(handle[0]), as_int(handle[1])
    if row is None or generation is None:
        return [("WrongDtype", 0)]
    if table is not None and not table.is_current((row, generation)):
        return [("StaleHandle", 0)]
    return []
