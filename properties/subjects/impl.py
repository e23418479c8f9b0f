"""Our own allocators as subjects: whole snapshots, named kinds of refusal, audits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from impl import (
    PagedTokenToKVPoolAllocator,
    PoolError,
    ReqToTokenPool,
    TokenToKVPoolAllocator,
)
from properties.commands import Call
from properties.invariants import violation
from properties.subjects.protocol import Memory, Subject, TensorSubject
from properties.subjects.reference import EchoCache, Requests


class ImplSubject(TensorSubject):
    """An allocator of `impl`."""

    names_kinds: ClassVar[bool] = True
    refusals: ClassVar[tuple[type[Exception], ...]] = (PoolError,)

    def __init__(self, target: Any, device: str) -> None:
        super().__init__(target, device=device)
        self._own = storages_of(target)
        self._shared = ""

    def call(self, call: Call) -> Any:
        self._shared = ""
        value = super().call(call)
        if call.method in ("clear", "resize"):
            self._own = storages_of(self.target)
        return value

    def plain(self, value: Any) -> Any:
        """Ours are int64, in storage that is neither the pool's nor the caller's."""
        if isinstance(value, torch.Tensor):
            if value.dtype != torch.int64:
                raise violation("I53", f"a result is {value.dtype}, int64 is due")
            at = value.untyped_storage().data_ptr()
            if at and at in map(address, self.lent):
                raise violation("I54", "a result is an argument given back")
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


class ImplRows(ImplSubject):
    """`impl.ReqToTokenPool`, with request objects, the hook and the table in view."""

    def __init__(self, target: Any, device: str) -> None:
        super().__init__(target, device)
        self.requests = Requests()
        self.hooked: list[int] = []
        target.register_on_alloc_rows(self._hook)

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


def storages_of(target: Any) -> frozenset[int]:
    """Addresses of the storages that an object keeps; empty ones have none."""
    return frozenset(map(address, tensors_of(target))) - {0}


def subject(system: str, config: Any) -> Subject:
    """The subject for a system's config, on the GPU where there is one."""
    return make(system, config)


def make(system: str, config: Any, **options: Any) -> ImplSubject:
    """The subject for a system's config; `options` go to the allocator's constructor."""
    device = options.pop("device", None) or default_device()
    if system == "rows":
        return ImplRows(ReqToTokenPool(config.size, config.width, device=device), device)
    kind: dict[str, Any] = {"need_sort": config.need_sort, "kvcache": EchoCache(), **options}
    if system == "token":
        return ImplSubject(TokenToKVPoolAllocator(config.size, device=device, **kind), device)
    return ImplSubject(
        PagedTokenToKVPoolAllocator(config.size, config.page_size, device=device, **kind), device
    )


def default_device() -> str:
    """The GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"
