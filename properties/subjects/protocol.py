"""What can be put under test: the Subject protocol, and a base that does the tensor work.

A subject is built from a system's name and a config and answers calls. `TensorSubject` serves any
object whose methods take and return tensors; an adapter adds how to build it and what it shows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch

from properties.commands import Call, Distortion
from properties.invariants import violation

# What arguments and results are overwritten with: no id, no length and no last_loc is this.
POISON = -(2**30) + 1
# Arguments of more ids than this seldom have the same shape again.
MOST_KEPT = 64
# Where ids lie that were lent to a subject: under a tensor on the CPU, else in the tensor itself.
Memory: TypeAlias = "array[int] | torch.Tensor"


@runtime_checkable
class Subject(Protocol):
    """One implementation under test, from its construction on.

    Nobody has to write how it is copied: a search over states puts back what it holds, and where
    that can't be seen, makes it anew (`properties.memento`).
    """

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
    #: what of the last call is kept, and decides nothing later: see `properties.memento`
    passing: ClassVar[tuple[str, ...]] = ("lent", "passed", "_made")

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
        self._made: dict[tuple[int, int, str], tuple[Any, tuple[torch.Tensor, ...]]] = {}

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
        names = [name for name, value in args.items() if type(value) is list]
        if names == ["segments"]:
            made["segments"] = [(self._tensor(ids, dtype), at) for ids, at in args["segments"]]
        elif names and self.on_cpu and len({len(args[name]) for name in names}) == 1:
            made.update(zip(names, self._rows([args[name] for name in names], dtype), strict=True))
        else:
            for name in names:
                made[name] = self._tensor(args[name], dtype, name.endswith("_cpu"))
        return made

    def _rows(self, lists: list[list[int]], dtype: str) -> tuple[torch.Tensor, ...]:
        """Lists of equal length as rows of one tensor, on the CPU.

        Small ones are made once for each shape: nobody may rely on what an earlier call passed.
        """
        flat = lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))
        shape = (len(flat), len(lists), dtype)
        if shape in self._made:
            memory, rows = self._made[shape]
            memory[:] = array(memory.typecode, flat)
        else:
            whole, memory = on_cpu(flat, dtype)
            rows = whole.view(len(lists), -1).unbind()
            if 0 < len(flat) <= MOST_KEPT:
                self._made[shape] = memory, rows
        self.lent.append(memory)
        self.passed.append((memory, flat))
        return rows

    def _tensor(self, ids: list[int], dtype: str, on_host: bool = False) -> torch.Tensor:
        """A tensor of these ids; its memory is remembered, on the CPU as an array."""
        made, memory = on_cpu(ids, dtype)
        if not on_host and not self.on_cpu:
            made = memory = made.to(self.device)
        self.lent.append(memory)
        self.passed.append((memory, ids))
        return made

    def leave(self) -> None:
        """Nothing of the last call is overwritten, now or by later calls."""
        self.lent = []
        self._made.clear()

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
                memory[:] = _POISONED[memory.typecode] * len(memory)
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


_POISONED = {code: array(code, (POISON,)) for code in "iq"}
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
