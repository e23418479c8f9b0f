"""What can be put under test: the Subject protocol, and a base that does the tensor work.

A subject is built from a system's name and a config and answers calls. `TensorSubject` serves any
object whose methods take and return tensors; an adapter adds how to build it and what it shows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch

from properties.commands import Call, Distortion
from properties.invariants import violation

# What arguments and results are overwritten with: no id, no length and no last_loc is this.
POISON = -(2**30) + 1
# Where ids lie that were lent to a subject: under a tensor on the CPU, else in the tensor itself.
Memory: TypeAlias = "array[int] | torch.Tensor"


@runtime_checkable
class Subject(Protocol):
    """One implementation under test, from its construction on."""

    #: methods that it has; commands that need others are left out, and listed by the gate
    calls: frozenset[str]
    #: whether its refusals carry a kind of `spec/core.md` §4b
    names_kinds: ClassVar[bool]

    def call(self, call: Call) -> Any:
        """Runs a call; ints and lists of ints come back, None where nothing does."""

    def kind_of(self, error: Exception) -> str | None:
        """The kind of refusal that an exception is; None when it is a crash."""

    def observe(self) -> dict[str, Any]:
        """What of the reference's snapshot is visible from outside, in the same form."""

    def overwrite(self) -> bool:
        """Overwrites the tensors of the last call; False when there were none."""

    def shares(self) -> str:
        """Which of the last call's tensors share storage with the pool, where that is known."""

    def audit(self) -> list[str]:
        """Broken invariants by the subject's own account."""

    def settle(self) -> None:
        """After each call: raises what the subject may have deferred."""

    def close(self) -> None:
        """The run is over."""


class TensorSubject:
    """Calls `target` with tensors made from plain lists, and gives back plain lists.

    Subclass it, or use it as it is: `TensorSubject(my_allocator, calls=("alloc", "free"))`. Any
    exception counts as a refusal; set `refusals` to narrow that, and `names_kinds` where the names
    of the exception classes are kinds of the spec.
    """

    names_kinds: ClassVar[bool] = False
    refusals: ClassVar[tuple[type[Exception], ...]] = (Exception,)

    def __init__(self, target: Any, calls: tuple[str, ...] = (), device: str = "cpu") -> None:
        self.target = target
        self.calls = frozenset(calls or [name for name in dir(target) if name[0] != "_"])
        if lacking := sorted(name for name in self.calls if not hasattr(target, name)):
            raise ValueError(f"{type(target).__name__} has no {', '.join(lacking)}")
        self.device = torch.device(device)
        self.on_cpu = self.device.type == "cpu"
        #: the memory of the last call's arguments and results, and what the arguments held
        self.lent: list[Memory] = []
        self.passed: list[tuple[Memory, list[int]]] = []

    def call(self, call: Call) -> Any:
        self.lent, self.passed = [], []
        args = self._arguments(call.args, call.dtype)
        if call.distortion is not None:
            args = distorted(args, call.distortion)
        try:
            value = self.method(call.method)(**args)
        finally:
            for memory, ids in self.passed:
                if memory.tolist() != ids:
                    raise violation("I54", f"{call.method} wrote to its arguments")
        return self.plain(value)

    def method(self, name: str) -> Callable[..., Any]:
        """The method that a call is of; a subject of several objects says whose."""
        found: Callable[..., Any] = getattr(self.target, name)
        return found

    def _arguments(self, args: Mapping[str, Any], dtype: str) -> dict[str, Any]:
        made = dict(args)
        lists = {key: value for key, value in made.items() if type(value) is list}
        if "segments" in lists:
            made["segments"] = [(self._tensor(ids, dtype), at) for ids, at in lists["segments"]]
        elif lists:
            made.update(self._tensors(lists, dtype))
        return made

    def _tensors(self, lists: dict[str, list[int]], dtype: str) -> dict[str, torch.Tensor]:
        """One tensor for each list; on the CPU those of equal length are rows of one tensor."""
        if self.on_cpu and len(lists) > 1 and len(set(map(len, lists.values()))) == 1:
            flat: list[int] = []
            for ids in lists.values():
                flat += ids
            rows = self._tensor(flat, dtype).view(len(lists), -1).unbind()
            return dict(zip(lists, rows, strict=True))
        return {key: self._tensor(ids, dtype, key.endswith("_cpu")) for key, ids in lists.items()}

    def _tensor(self, ids: list[int], dtype: str, on_host: bool = False) -> torch.Tensor:
        """A tensor of these ids; its memory is remembered, on the CPU as an array."""
        made, memory = on_cpu(ids, dtype)
        if not on_host and not self.on_cpu:
            made = memory = made.to(self.device)
        self.lent.append(memory)
        self.passed.append((memory, ids))
        return made

    def plain(self, value: Any) -> Any:
        """A result as plain Python; tensors are remembered, to be overwritten."""
        if isinstance(value, torch.Tensor):
            self.lent.append(value)
            return value.tolist()
        return value

    def kind_of(self, error: Exception) -> str | None:
        return type(error).__name__ if isinstance(error, self.refusals) else None

    def observe(self) -> dict[str, Any]:
        if "available_size" not in self.calls:
            return {}
        return {"available": int(self.target.available_size())}

    def overwrite(self) -> bool:
        for memory in self.lent:
            if isinstance(memory, array):
                memory[:] = array(memory.typecode, (POISON,)) * len(memory)
                continue
            if memory.untyped_storage().nbytes() > memory.numel() * memory.element_size():
                # a view: who owns it may overwrite all that is under it
                memory = memory.new_empty(0).set_(memory.untyped_storage())
            memory.fill_(POISON)
        return bool(self.lent)

    def shares(self) -> str:
        return ""

    def audit(self) -> list[str]:
        return []

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


def on_cpu(ids: list[int], dtype: str) -> tuple[torch.Tensor, Memory]:
    """A tensor of these ids and the array that it lies in: a quarter of `torch.tensor`'s cost."""
    torch_dtype, code = _DTYPES[dtype]
    if not ids:
        empty = torch.empty(0, dtype=torch_dtype)
        return empty, empty
    memory = array(code, ids)
    return torch.frombuffer(memory, dtype=torch_dtype), memory


_DTYPES = {"int32": (torch.int32, "i"), "int64": (torch.int64, "q")}


def distorted(args: dict[str, Any], fault: Distortion) -> dict[str, Any]:
    """The arguments with one of them of the wrong type, shape or device."""
    value = args[fault.argument]
    if isinstance(value, list):
        (ids, start), *others = value
        return {**args, fault.argument: [(_distort(ids, fault.what), start), *others]}
    return {**args, fault.argument: _distort(value, fault.what)}


def _distort(value: Any, what: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return float(value)
    match what:
        case "dtype":
            return value.to(torch.float32)
        case "shape":
            return value.reshape(1, -1)
    return value.to("meta")
