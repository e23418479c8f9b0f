"""Request rows: which row of the table a request holds, and where each of its tokens lies.

Row 0 is reserved for padded lanes. A row's generation counts its hand-outs and never goes back,
so a reader who kept (row, generation) notices reuse. Spec: `spec/core.md` §2 and
`spec/pools_states_sizing.md` §1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from impl import checks, table
from impl.errors import (
    Duplicate,
    Fault,
    OutOfRange,
    PoolError,
    Reserved,
    RowNotHeld,
    RowWithoutKV,
    Unsupported,
    WrongDtype,
    WrongShape,
    refuse,
)
from impl.kernels.arrays import HostArray

#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    OutOfRange: "Use rows that alloc_rows or alloc returned",
    Reserved: "Row 0 belongs to padded lanes: it is never handed out",
    Duplicate: "Name each once per call",
    RowNotHeld: "Use rows between their hand-out and their free",
    RowWithoutKV: "Free the row before the request comes back without KV",
}


class Handle(NamedTuple):
    """A row as it was handed out; current until the row is freed."""

    row: int
    generation: int


class RequestKV(Protocol):
    """What a row pool reads and sets of a request's KV."""

    req_pool_idx: int | None
    kv_allocated_len: int
    holds_kv: bool


class Request(Protocol):
    """What `alloc` and `free` take."""

    @property
    def kv(self) -> RequestKV: ...


class ReqToTokenPool:
    """Rows 1..size of an int32 table [size + 1, max_context_len] on `device`.

    Attributes: `size` and `max_context_len`; `req_to_token`, the table, entry (row, position) a
    slot; `req_generation` int64 [size + 1] on the host; `free_slots`, a list of rows, taken from
    its tail. Raises `NegativeSize`, `OutOfRange`, `WrongDtype`. O(size * max_context_len).
    Spec: `core.md` §2.
    """

    def __init__(self, size: int, max_context_len: int, *, device: torch.device | str) -> None:
        errors = checks.collected(
            lambda: checks.pool_size(size, 1),
            lambda: checks.pool_size(max_context_len, 1, "max_context_len"),
        )
        checks.raise_first(errors)
        self.size, self.max_context_len = int(size), int(max_context_len)
        self.req_to_token = torch.zeros(
            (self.size + 1, self.max_context_len), dtype=torch.int32, device=device
        )
        self.device = self.req_to_token.device
        self.req_generation = torch.zeros(self.size + 1, dtype=torch.int64)
        self._hook: Callable[[list[int]], None] | None = None
        self._num_handed_out = 0
        self.clear()

    def clear(self) -> None:
        """All rows free; held ones become stale. Table and generations stay. O(size). §2."""
        self.free_slots = list(range(1, self.size + 1))
        self._is_held = bytearray(self.size + 1)

    def available_size(self) -> int:
        """Rows that are free. O(1)."""
        return len(self.free_slots)

    def register_on_alloc_rows(self, hook: Callable[[list[int]], None]) -> None:
        """Call `hook` with every fresh list of rows, after their generations went up.

        If it raises, the rows go back and the exception passes on. One hook only:
        `Unsupported` for a second.
        """
        if self._hook is not None:
            raise Unsupported("register_on_alloc_rows: there is a hook already. Chain them.")
        self._hook = hook

    def alloc_rows(self, need_size: int) -> list[int] | None:
        """The last `need_size` free rows in list order; None when short, [] for 0.

        Raises `NegativeSize`, `WrongDtype`, and what the hook raises. O(need_size). Spec: §2.
        """
        count = checks.host_size(need_size, "need_size")
        if count > len(self.free_slots):
            return None
        if count == 0:
            return []
        rows = self.free_slots[-count:]
        del self.free_slots[-count:]
        for row in rows:
            self._is_held[row] = True
        self.req_generation[torch.tensor(rows)] += 1
        self._num_handed_out += count
        if self._hook is not None:
            try:
                self._hook(list(rows))
            except BaseException:
                self._take_back(rows)
                raise
        return rows

    def _take_back(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._is_held[row] = False
        self.free_slots += rows

    def alloc(self, reqs: Sequence[Request]) -> list[int] | None:
        """The row of every request, in order; those without one get one. None when short.

        Raises `OutOfRange`, `Reserved`, `Duplicate`, `RowNotHeld`, `RowWithoutKV`,
        `WrongDtype`; no request is changed unless all are served. O(requests). Spec: §2.
        """
        requests = checks.listed(reqs, "reqs")
        refuse("alloc", self._request_faults(requests), ADVICE)
        rowless = [req for req in requests if req.kv.req_pool_idx is None]
        rows = self.alloc_rows(len(rowless))
        if rows is None:
            return None
        for req, row in zip(rowless, rows, strict=True):
            req.kv.req_pool_idx = row
        return [int(req.kv.req_pool_idx) for req in requests if req.kv.req_pool_idx is not None]

    def _request_faults(self, reqs: Sequence[Request]) -> list[Fault]:
        faults = []
        seen: set[int] = set()
        rows_seen: set[int] = set()
        for index, req in enumerate(reqs):
            if id(req) in seen:
                faults.append(Fault(Duplicate, index, "the request is in the batch already"))
            seen.add(id(req))
            if req.kv.req_pool_idx is None:
                if req.kv.holds_kv:
                    faults.append(Fault(RowNotHeld, index, "the request has KV but no row"))
                continue
            row = checks.int_or_none(req.kv.req_pool_idx)
            if row is not None:
                if row in rows_seen:
                    faults.append(Fault(Duplicate, index, f"row {row} is in the batch already"))
                rows_seen.add(row)
            fault = self._row_fault(index, req.kv.req_pool_idx)
            tokens = checks.int_or_none(req.kv.kv_allocated_len)
            if fault is not None:
                faults.append(fault)
            elif tokens is None:
                found = f"kv_allocated_len is {req.kv.kv_allocated_len!r}"
                faults.append(Fault(WrongDtype, index, found))
            elif tokens <= 0 or not req.kv.holds_kv:
                found = f"row {row} comes with {tokens} tokens of KV"
                faults.append(Fault(RowWithoutKV, index, found))
        return faults

    def _row_fault(self, index: int, value: Any) -> Fault | None:
        """What is wrong with `value` as a row that somebody holds."""
        try:
            row = checks.host_int(value, "a row")
        except WrongDtype as error:
            return Fault(WrongDtype, index, str(error).rstrip("."))
        if not 0 <= row <= self.size:
            return Fault(OutOfRange, index, f"row {row} is outside 1..{self.size}")
        if row == 0:
            return Fault(Reserved, index, "row 0 is reserved")
        if not self._is_held[row]:
            return Fault(RowNotHeld, index, f"row {row} is free")
        return None

    def free_rows(self, indices: Sequence[int]) -> None:
        """Put rows at the tail of the free list, in the order given.

        Raises `OutOfRange`, `Reserved`, `Duplicate`, `RowNotHeld`, `WrongDtype`. O(rows). §2.
        """
        rows = checks.listed(indices, "indices")
        refuse("free_rows", self._free_faults(rows), ADVICE)
        self._take_back([int(row) for row in rows])

    def _free_faults(self, rows: Sequence[Any]) -> list[Fault]:
        """What is wrong with `rows` as those that somebody gives back."""
        faults = [
            fault for i, row in enumerate(rows) if (fault := self._row_fault(i, row)) is not None
        ]
        seen: set[int] = set()
        for index, row in enumerate(map(checks.int_or_none, rows)):
            if row is None:
                continue
            if row in seen:
                faults.append(Fault(Duplicate, index, f"row {row} is named already"))
            seen.add(row)
        return faults

    def free(self, req: Request) -> None:
        """Free the row of `req` and take it from the request; `RowNotHeld` without one. §2."""
        row = req.kv.req_pool_idx
        if row is None or self._row_fault(0, row) is not None:
            raise RowNotHeld(f"free: the request holds no row, it has {row}. Free it once.")
        self._take_back([int(row)])
        req.kv.req_pool_idx = None

    def handle(self, row: int) -> Handle:
        """(row, generation) of a held row. `OutOfRange`, `Reserved`, `RowNotHeld`. O(1). §2."""
        fault = self._row_fault(0, row)
        if fault is not None:
            refuse("handle", [fault], ADVICE)
        return Handle(int(row), int(self.req_generation[row]))

    def is_current(self, handle: Handle) -> bool:
        """Whether the row of `handle` is still held by the one it was handed to. O(1). §2."""
        row, generation = handle_fields(handle)
        return (
            0 < row <= self.size
            and bool(self._is_held[row])
            and int(self.req_generation[row]) == generation
        )

    def write(
        self, indices: tuple[Any, Any], values: torch.Tensor | int, *, handle: Handle | None = None
    ) -> None:
        """Write slots into the table at `indices` = (rows, cols).

        rows an int or int tensor [k]; cols an int, a slice of step 1 or an int tensor; values an
        int or as many slots as cells, int32 or int64. Without `handle` row 0 and free rows may
        be written; with it only its row, while it is current. Raises `OutOfRange`,
        `StaleHandle`, `WrongDtype`, `WrongDevice`, `WrongShape`. O(cells). Spec: §2.
        """
        stale, only_row = "", None
        if handle is not None:
            only_row, _ = handle_fields(handle)
            if not self.is_current(handle):
                stale = f"write: {handle} isn't current: the row was freed. Take a new handle."
        table.write(self.req_to_token, indices, values, only_row, stale)

    def snapshot(self) -> dict[str, Any]:
        """The whole bookkeeping as plain Python, the table not included. O(size)."""
        return {
            "size": self.size,
            "max_context_len": self.max_context_len,
            "free": list(self.free_slots),
            "generations": self.req_generation.tolist(),
            "held": [row for row, held in enumerate(self._is_held) if held],
        }

    def audit(self) -> list[str]:
        """Recount everything from scratch: violated invariants, [] when healthy. O(size)."""
        problems = []
        held = [row for row, is_held in enumerate(self._is_held) if is_held]
        if sorted(self.free_slots + held) != list(range(1, self.size + 1)):
            problems.append(
                f"I34: free rows {self.free_slots} and held rows {held} aren't a partition of "
                f"1..{self.size}"
            )
        generations = self.req_generation.tolist()
        if generations[0] or min(generations) < 0:
            problems.append(f"I34: generations {generations} have row 0 or a negative one")
        if sum(generations) != self._num_handed_out:
            problems.append(
                f"I34: generations add up to {sum(generations)}, rows were handed out "
                f"{self._num_handed_out} times"
            )
        problems += [
            f"I34: row {row} is held at generation 0" for row in held if not generations[row]
        ]
        return problems


def held_and_generations(pool: ReqToTokenPool, rows: HostArray) -> tuple[HostArray, HostArray]:
    """Whether each of `rows`, int64 [n] in 0..size, is held, and its generation. O(n)."""
    held = np.frombuffer(pool._is_held, np.uint8)[rows]
    return held, pool.req_generation.numpy()[rows]


def row_fault(pool: ReqToTokenPool, index: int, row: int) -> Fault | None:
    """What is wrong with `row` as one that somebody holds."""
    return pool._row_fault(index, row)


def handle_fields(handle: Any) -> tuple[int, int]:
    """Row and generation of a handle; any pair of ints is one."""
    if not isinstance(handle, (tuple, list)) or len(handle) != 2:
        raise WrongShape(f"a handle is (row, generation), got {handle!r}. Take it from handle().")
    row, generation = handle
    return checks.host_int(row, "a handle's row"), checks.host_int(generation, "its generation")
