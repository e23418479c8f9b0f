"""Our own allocators as subjects: whole snapshots, named kinds of refusal, audits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from impl import (
    PagedTokenToKVPoolAllocator,
    PoolError,
    ReqToTokenPool,
    TokenToKVPoolAllocator,
)
from impl.allocators.deferral import HostMailbox
from impl.states.slots import MambaSlotAllocator
from properties.commands import Call
from properties.interpreter import kernels_run
from properties.invariants import violation
from properties.subjects import engine_tensors, impl_states, kv_pools
from properties.subjects.protocol import Memory, Subject, TensorSubject
from properties.subjects.reference import TABLE_CALLS, EchoCache, Requests


class ImplSubject(TensorSubject):
    """An allocator of `impl`; `beside` are objects of ours that it works with."""

    names_kinds: ClassVar[bool] = True
    refusals: ClassVar[tuple[type[Exception], ...]] = (PoolError,)
    #: whether faults may stay under way until the driver settles
    late = False

    def __init__(self, target: Any, device: str, *beside: Any) -> None:
        super().__init__(target, device=device)
        self._parts = (target, *beside)
        self._own = storages_of(*self._parts)
        self._shared = ""

    def call(self, call: Call) -> Any:
        self._shared = ""
        try:
            value = super().call(call)
        except PoolError:
            if not self.late:
                self.target.recover()
            raise
        if call.method in ("clear", "resize"):
            self._own = storages_of(*self._parts)
        return value

    def settle(self) -> None:
        """What a call deferred is raised behind it, as if at the call; the pool goes on."""
        try:
            self.target.check()
        except PoolError:
            self.target.recover()
            raise

    def plain(self, value: Any) -> Any:
        """Ours are int64, in storage that is neither the pool's nor the caller's."""
        if isinstance(value, torch.Tensor):
            if value.dtype != torch.int64:
                raise violation("I53", f"a result is {value.dtype}, int64 is due")
            at = value.untyped_storage().data_ptr()
            if at and at in map(address, self.lent):
                raise violation("I54", "a result is an argument given back")
            if at in self._own:
                # what was the pool's once may have been given up, and be anybody's memory now
                self._own = storages_of(*self._parts)
                if at in self._own:
                    self._shared = f"{len(value)} values of a result"
        return super().plain(value)

    def observe(self) -> dict[str, Any]:
        state: dict[str, Any] = self.target.snapshot()
        state["available"] = self.target.available_size()
        return state

    def shares(self) -> str:
        """By storage, beside the check by effect: our own tensors are known."""
        return self._shared

    def audit(self) -> list[str]:
        found: list[str] = self.target.audit()
        return found


class ImplHost(ImplSubject):
    """A part whose books are the host's: nothing is deferred."""

    def call(self, call: Call) -> Any:
        self._shared = ""
        value = TensorSubject.call(self, call)
        if call.method == "clear":
            self._own = storages_of(*self._parts)
        return value

    def settle(self) -> None:
        """Every fault was raised at its call."""


class ImplRows(ImplSubject):
    """`impl.ReqToTokenPool`, with request objects, the hook and the table in view."""

    def __init__(self, target: Any, device: str) -> None:
        super().__init__(target, device)
        self.requests = Requests()
        self.hooked: list[int] = []
        target.register_on_alloc_rows(self._hook)

    def settle(self) -> None:
        """Rows are the host's: nothing is deferred."""

    def _hook(self, rows: list[int]) -> None:
        self.hooked = list(rows)

    def call(self, call: Call) -> Any:
        self.lent, self.passed = [], []
        args = self.requests.arguments(call.args)
        if call.method == "write":
            rows, columns = args["indices"]
            args["indices"] = (self._maybe_tensor(rows), self._maybe_tensor(columns))
            args["values"] = self._tensor(args["values"], "int64")
        return self.plain(getattr(self.target, call.method)(**args))

    def _maybe_tensor(self, value: Any) -> Any:
        return self._tensor(value, "int64") if isinstance(value, list) else value

    def observe(self) -> dict[str, Any]:
        state = super().observe()
        state["requests"] = self.requests.rows()
        state["hooked"] = self.hooked
        state["table"] = self.target.req_to_token.tolist()
        return state


class ImplPagedRows(ImplSubject):
    """`impl.PagedTokenToKVPoolAllocator` with a row table, and another table beside it."""

    def __init__(self, target: Any, table: Any, other: Any, device: str) -> None:
        super().__init__(target, device, table, other)
        self.tables = (table, other)
        self.calls |= TABLE_CALLS
        other.alloc_rows(other.size)

    def call(self, call: Call) -> Any:
        if call.method in ("alloc_rows", "free_rows"):  # host data in and out
            self.lent, self.passed = [], []
            return getattr(self.tables[0], call.method)(**call.args)
        args = dict(call.args)
        if "table" in args:
            args["table"] = self.tables[args["table"]]
        return super().call(call._replace(args=args))

    def method(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(
            self.tables[0] if name in TABLE_CALLS else self.target, name
        )
        return found

    def observe(self) -> dict[str, Any]:
        state = super().observe()
        state["rows"] = self.tables[0].snapshot()
        state["table"] = self.tables[0].req_to_token.tolist()
        return state

    def audit(self) -> list[str]:
        found: list[str] = super().audit() + self.tables[0].audit()
        return found


def address(memory: Memory) -> int:
    """Where the storage under some memory begins; 0 where there is none."""
    if isinstance(memory, torch.Tensor):
        return memory.untyped_storage().data_ptr()
    return memory.buffer_info()[0]


def tensors_of(target: Any, depth: int = 2) -> list[torch.Tensor]:
    """The tensors that an object keeps, its parts' included."""
    found = []
    for value in vars(target).values():
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif depth and hasattr(value, "__dict__") and type(value).__module__.startswith("impl"):
            found += tensors_of(value, depth - 1)
    return found


def storages_of(*targets: Any) -> frozenset[int]:
    """Addresses of the storages that objects keep; empty ones have none."""
    return frozenset(address(tensor) for each in targets for tensor in tensors_of(each)) - {0}


def systems(backend: str) -> frozenset[str]:
    """The systems that a backend of ours has here: kernels need triton to run."""
    found = {"rows", "state_slots", "hybrid_rows", "host_tier"}
    if backend != "triton" or kernels_run():
        found |= {"token", "paged", "paged_rows", "overlap", "state_pools", "swa", "kv_pools"}
        found |= {"engine"}
    if backend != "torch" and kernels_run():
        found |= {"token_deferred", "paged_deferred"}
    return frozenset(found)


def make(system: str, config: Any, **options: Any) -> ImplSubject:
    """The subject for a system's config, on the GPU where there is one.

    `options` go to the allocator's constructor; request rows have none of them.
    """
    device = options.pop("device", None) or default_device()
    if system.endswith("_deferred"):
        return _late(system.removesuffix("_deferred"), config, device)
    if system == "rows":
        return ImplRows(ReqToTokenPool(config.size, config.width, device=device), device)
    if system == "state_slots":
        return ImplHost(MambaSlotAllocator(config.size, device=device), device)
    if system == "hybrid_rows":
        # the adapter is an heir of what stands here
        from properties.subjects.impl_hybrid import ImplHybrid

        return ImplHybrid(config, device, **options)
    if system == "host_tier":
        from properties.subjects.host_tier import HostTierSubject

        return HostTierSubject(config, device)
    if system == "swa":
        from properties.subjects.swa import ImplSWA

        return ImplSWA.of(config, device, **options)
    kind: dict[str, Any] = {"need_sort": config.need_sort, "kvcache": EchoCache(), **options}
    if system == "token":
        return ImplSubject(TokenToKVPoolAllocator(config.size, device=device, **kind), device)
    paged = PagedTokenToKVPoolAllocator(config.size, config.page_size, device=device, **kind)
    if system == "paged":
        return ImplSubject(paged, device)
    table, other = (ReqToTokenPool(config.rows, config.width, device=device) for _ in range(2))
    if config.width % 2:
        # a table may be a strided view; the two are then as good as one another
        table.req_to_token = table.req_to_token.repeat(1, 2)[:, ::2]
    return ImplPagedRows(paged, table, other, device)


#: systems of other things than allocators → what makes their subject of a config and a device
ELSEWHERE: dict[str, Callable[..., Subject]] = {
    "state_pools": impl_states.make, "kv_pools": kv_pools.make, "engine": engine_tensors.make,
}  # fmt: skip


def build(system: str, config: Any, **options: Any) -> Subject:
    """The subject for any system's config, as `make` does it for allocators and rows."""
    if system in ELSEWHERE:
        return ELSEWHERE[system](config, options.pop("device", default_device()), **options)
    return make(system, config, **options)


def _late(system: str, config: Any, device: str) -> ImplSubject:
    """A subject whose faults stay under way; "paged" has its row table with it."""
    base = "paged_rows" if system == "paged" else system
    made = make(base, config, device=device, backend="triton")
    made.late = True
    mailbox = made.target._book.deferral.mailbox
    if isinstance(mailbox, HostMailbox):
        mailbox.delay = config.delay
    return made


def default_device() -> str:
    """The GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"
