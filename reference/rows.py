"""Request rows: who has which line of the table (`core.md` §2, `pools_states_sizing.md` §1)."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reference.audit import partition_faults
from reference.refusal import Fault, Refused, as_int, refuse_smallest
from reference.table import Columns, Rows, Values, cells_to_write


class Handle(NamedTuple):
    """A row as it is held now: another generation of it belongs to somebody else."""

    row: int
    generation: int


class ReqToTokenPool:
    """Rows `1..size` of `max_context_len` entries each. Row 0 is where padded lanes write."""

    def __init__(self, size: int, max_context_len: int) -> None:
        for number in (size, max_context_len):
            value = as_int(number)
            if value is not None and value < 0:
                raise Refused("NegativeSize")
        if as_int(size) is None or as_int(max_context_len) is None:
            raise Refused("WrongDtype")
        self.size = size
        self.max_context_len = max_context_len
        self.req_to_token = [[0] * max_context_len for _ in range(size + 1)]
        self.req_generation = [0] * (size + 1)
        self._hook: Callable[[list[int]], None] | None = None
        self.clear()

    def clear(self) -> None:
        """All rows free, in order. Generations and the table stay: held rows become stale (I28)."""
        self.free_slots = list(range(1, self.size + 1))
        self.held: set[int] = set()

    def register_on_alloc_rows(self, hook: Callable[[list[int]], None]) -> None:
        """Call `hook(rows)` after every hand-out. There is room for one."""
        if self._hook is not None:
            raise Refused("Unsupported")
        self._hook = hook

    # --- hand-out ---

    def alloc_rows(self, need_size: int) -> list[int] | None:
        """The last `need_size` free rows, in list order; None if there are fewer."""
        need = as_int(need_size)
        if need is None:
            raise Refused("WrongDtype")
        if need < 0:
            raise Refused("NegativeSize")
        if need > len(self.free_slots):
            return None
        if need == 0:
            return []  # free_slots[-0:] would be the whole list (§2)
        rows = self.free_slots[-need:]
        del self.free_slots[-need:]
        self.held.update(rows)
        for row in rows:
            self.req_generation[row] += 1
        if self._hook is not None:
            try:
                self._hook(list(rows))
            except BaseException:
                self._put_back(rows)
                raise
        return rows

    def alloc(self, reqs: Sequence[Any]) -> list[int] | None:
        """The row of every request, new ones for those that have none: all of them or none."""
        reqs = list(reqs)
        refuse_smallest(self._request_faults(reqs))
        rowless = [req for req in reqs if req.kv.req_pool_idx is None]
        rows = self.alloc_rows(len(rowless))
        if rows is None:
            return None
        for req, row in zip(rowless, rows, strict=True):
            req.kv.req_pool_idx = row
        return [req.kv.req_pool_idx for req in reqs]

    def _request_faults(self, reqs: list[Any]) -> list[Fault]:
        faults: list[Fault] = []
        seen_reqs: set[int] = set()
        seen_rows: set[int] = set()
        for index, req in enumerate(reqs):
            row = req.kv.req_pool_idx
            if id(req) in seen_reqs or row in seen_rows:
                faults.append(("Duplicate", index))
            seen_reqs.add(id(req))
            if row is None:
                if req.kv.holds_kv:
                    faults.append(("RowNotHeld", index))
                continue
            seen_rows.add(row)
            kind = self._row_fault(row)
            if kind is not None:
                faults.append((kind, index))
            elif req.kv.kv_allocated_len <= 0 or not req.kv.holds_kv:
                faults.append(("RowWithoutKV", index))
        return faults

    # --- return ---

    def free_rows(self, indices: Sequence[int]) -> None:
        """Append these rows to the free list."""
        rows = list(indices)
        refuse_smallest(self._free_faults(rows))
        self._put_back(rows)

    def _free_faults(self, rows: list[int]) -> list[Fault]:
        """Rows that somebody holds, each named once."""
        faults: list[Fault] = []
        seen: set[int] = set()
        for index, row in enumerate(rows):
            kind = self._row_fault(row)
            if kind is not None:
                faults.append((kind, index))
            if row in seen:
                faults.append(("Duplicate", index))
            seen.add(row)
        return faults

    def free(self, req: Any) -> None:
        """Take the row from a request, which then knows of none (I27)."""
        if req.kv.req_pool_idx not in self.held:
            raise Refused("RowNotHeld")
        self._put_back([req.kv.req_pool_idx])
        req.kv.req_pool_idx = None

    def _put_back(self, rows: list[int]) -> None:
        self.free_slots += rows
        self.held.difference_update(rows)

    def _row_fault(self, row: object) -> str | None:
        """Why `row` isn't a row that somebody holds."""
        number = as_int(row)
        if number is None:
            return "WrongDtype"
        if not 0 <= number <= self.size:
            return "OutOfRange"
        if number == 0:
            return "Reserved"
        return None if number in self.held else "RowNotHeld"

    # --- handles ---

    def handle(self, row: int) -> Handle:
        """The row together with its generation."""
        kind = self._row_fault(row)
        if kind is not None:
            raise Refused(kind)
        return Handle(row, self.req_generation[row])

    def is_current(self, handle: tuple[int, int]) -> bool:
        """False from the moment the row is freed, and for ever: generations never go back (R4)."""
        row, generation = handle
        return row in self.held and self.req_generation[row] == generation

    # --- the table ---

    def write(
        self,
        indices: tuple[Rows, Columns],
        values: Values,
        *,
        handle: tuple[int, int] | None = None,
    ) -> None:
        """`req_to_token[rows, cols] = values`; with a handle only in its row, if current."""
        cells = cells_to_write(
            indices,
            values,
            num_rows=self.size + 1,
            width=self.max_context_len,
            stale=handle is not None and not self.is_current(handle),
            handle_row=None if handle is None else handle[0],
        )
        for row, col, value in cells:
            self.req_to_token[row][col] = value

    def available_size(self) -> int:
        """How many rows are free."""
        return len(self.free_slots)

    # --- inspection ---

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping; the table decides no outcome and isn't in it."""
        return {
            "size": self.size,
            "max_context_len": self.max_context_len,
            "free": list(self.free_slots),
            "generations": list(self.req_generation),
            "held": sorted(self.held),
        }

    def audit(self) -> list[str]:
        """Recount everything from scratch: the invariants of `bugs.md` that are broken."""
        faults = partition_faults("row", self.free_slots, self.held, self.size)
        if min(self.req_generation) < 0 or any(self.req_generation[row] < 1 for row in self.held):
            faults.append("I28: a held row has no generation, or one is negative")
        return faults
