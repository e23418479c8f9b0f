"""The reference behind the Subject interface, and what stands in for storage and requests.

Both sides of a lockstep run build the requests of the row system in one way, from plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from properties.commands import Call


class EchoCache:
    """A storage pool that keeps nothing: a copy of some slots is the list of the slots."""

    def get_cpu_copy(
        self, indices: Any, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> Any:
        return list(indices) if isinstance(indices, list) else indices.clone()

    def load_cpu_copy(
        self, kv_cache_cpu: Any, indices: Any, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> None:
        return None


class ReferenceSubject:
    """Calls a reference with plain lists; a refusal passes through as `Refused`."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def call(self, call: Call) -> Any:
        return getattr(self.target, call.method)(**call.args)

    def observe(self) -> dict[str, Any]:
        state: dict[str, Any] = self.target.snapshot()
        state["available"] = self.target.available_size()
        return state


class Requests:
    """Request objects as an engine has them, made from plain values for one call."""

    def __init__(self) -> None:
        self.last: list[Any] = []

    def arguments(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with plain requests replaced by objects; one object for each name."""
        made: dict[int, Any] = {}
        for plain in [*args.get("reqs", ()), *([args["req"]] if "req" in args else ())]:
            kv = SimpleNamespace(
                req_pool_idx=plain["row"],
                kv_allocated_len=plain["allocated"],
                holds_kv=plain["holds"],
            )
            made.setdefault(plain["name"], SimpleNamespace(kv=kv))
        self.last = list(made.values())
        found = dict(args)
        if "reqs" in args:
            found["reqs"] = [made[plain["name"]] for plain in args["reqs"]]
        if "req" in args:
            found["req"] = made[args["req"]["name"]]
        return found

    def rows(self) -> list[int | None]:
        """The rows that the last call's requests know of now."""
        return [request.kv.req_pool_idx for request in self.last]


class RowReference:
    """The reference of the request rows, with requests, the hook and the table in view."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.requests = Requests()
        self.hooked: list[int] = []
        target.register_on_alloc_rows(self._hook)

    def _hook(self, rows: list[int]) -> None:
        self.hooked = list(rows)

    def call(self, call: Call) -> Any:
        return getattr(self.target, call.method)(**self.requests.arguments(call.args))

    def observe(self) -> dict[str, Any]:
        state: dict[str, Any] = self.target.snapshot()
        state["available"] = self.target.available_size()
        state["requests"] = self.requests.rows()
        state["hooked"] = self.hooked
        state["table"] = [list(row) for row in self.target.req_to_token]
        return state


#: which calls of the paged allocator's rows system are calls of its table
TABLE_CALLS = frozenset({"alloc_rows", "free_rows", "write"})


class PagedRowsReference(ReferenceSubject):
    """The reference of the paged allocator with a row table, and another table beside it.

    Calls name tables by their place. All rows of the other one are held: a call that names it has
    no fault but that it is another one.
    """

    def __init__(self, target: Any, table: Any, other: Any) -> None:
        super().__init__(target)
        self.tables = (table, other)
        other.alloc_rows(other.size)

    def call(self, call: Call) -> Any:
        target = self.tables[0] if call.method in TABLE_CALLS else self.target
        args = dict(call.args)
        if "table" in args:
            args["table"] = self.tables[args["table"]]
        return getattr(target, call.method)(**args)

    def observe(self) -> dict[str, Any]:
        state = super().observe()
        state["rows"] = self.tables[0].snapshot()
        state["table"] = [list(row) for row in self.tables[0].req_to_token]
        return state
