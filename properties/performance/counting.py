"""Counts what a call costs instead of timing it: operations, kernel launches, reads by the host.

Between `with Counting()` and its end every torch operation passes here, and every Triton launch,
compiled or interpreted. Tensors of a device are told from those of the host: on a GPU by where they
lie, on a CPU by marks. There a tensor is the device's when it was made with a `device` that isn't
the word "cpu", when it was sent (`to(…, non_blocking=True)`, which gives a copy here too), when it
is named to `mark`, or when it was computed from one that is. What waits for a device when it reads
such a tensor is listed by its name. Host copies carry no mark, so they may be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

#: methods that give a device's values to the host; they read memory, so only the call shows
FORBIDDEN_CALLS = frozenset(("item", "tolist", "numpy", "cpu", "__array__"))
#: operations that do, or whose result has a size that only the device knows
FORBIDDEN_OPERATIONS = frozenset(
    (
        "_local_scalar_dense",
        "equal",
        "nonzero",
        "_unique2",
        "unique_consecutive",
        "unique_dim",
        "masked_select",
    )
)
BOOLEAN_INDEXING = "boolean indexing"
UNSIZED_REPEAT = "repeat_interleave without a size"
#: what touches only the named elements of its first argument
_INDEXED = frozenset(
    ("index", "index_put_", "index_select", "index_fill_", "index_copy_", "gather", "scatter_")
)


#: what a GPU's driver asks for before a host tensor is sent: part of sending it
_PINNING = frozenset(("is_pinned", "_pin_memory"))


@dataclass
class Count:
    """What was spent."""

    #: operations other than views and pinning, by name
    operations: Counter[str] = field(default_factory=Counter)
    #: elements that these went through
    elements: int = 0
    #: forbidden reads of a device's tensors, by name, in order
    reads: list[str] = field(default_factory=list)
    #: kernels, in the order of their launches
    launches: list[str] = field(default_factory=list)
    #: program instances of these launches, where the interpreter ran them
    programs: int = 0
    #: addresses that these loaded from, stored to or swapped, masked lanes included, by kernel
    accesses: Counter[str] = field(default_factory=Counter)


class Counting:
    """`with Counting() as counting`, then `with counting.window() as count` around each call."""

    def __init__(self) -> None:
        self.count = Count()
        self._stack = ExitStack()
        # Kept alive, or another tensor's storage might get the address of one that died.
        self._marked: dict[int, torch.Tensor] = {}
        self._paused = 0

    def __enter__(self) -> Counting:
        for patch in _launch_patches(self):
            self._stack.enter_context(patch)
        self._stack.enter_context(_Operations(self))
        self._stack.enter_context(_Calls(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._marked.clear()

    @contextmanager
    def window(self) -> Iterator[Count]:
        """A fresh count for what happens inside."""
        outer, self.count = self.count, Count()
        try:
            yield self.count
        finally:
            self.count = outer

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside isn't counted: it belongs to something that was."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    @property
    def is_paused(self) -> bool:
        """Whether nothing is counted now."""
        return self._paused > 0

    def mark(self, *tensors: torch.Tensor) -> None:
        """These are a device's."""
        for tensor in tensors:
            # An empty tensor has no storage to read.
            if address := tensor.untyped_storage().data_ptr():
                self._marked[address] = tensor

    def is_marked(self, value: object) -> bool:
        """Whether `value` is a tensor of a device."""
        if not isinstance(value, torch.Tensor):
            return False
        return value.is_cuda or value.untyped_storage().data_ptr() in self._marked

    def launch(self, name: str, run: Callable[[], Any]) -> Any:
        """Count one launch; what it does inside is its own."""
        if not self.is_paused:
            self.count.launches.append(name)
        with self.paused():
            return run()


class _Calls(TorchFunctionMode):
    """What only a call shows: reads of memory, and where a tensor is made or sent."""

    def __init__(self, counting: Counting) -> None:
        super().__init__()
        self.counting = counting

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        counting = self.counting
        if counting.is_paused:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        of_device = bool(args) and counting.is_marked(args[0])
        if of_device and (name in FORBIDDEN_CALLS or (name == "to" and "cpu" in args)):
            counting.count.reads.append("cpu" if name == "to" else name)
            with counting.paused():
                return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        if name == "to" and kwargs.get("non_blocking"):
            if result is args[0] and not of_device:
                with counting.paused():
                    result = result.clone()
                # what a GPU does, and a CPU has no need of
                counting.count.operations["_to_copy"] += 1
            counting.mark(result)
        elif kwargs.get("device") not in (None, "cpu"):
            counting.mark(result)
        return result


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every operation, however it was called."""

    def __init__(self, counting: Counting) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counting = counting

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        counting = self.counting
        if counting.is_paused:
            return result
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _PINNING:
            counting.count.operations[name] += 1
            sized = given[1:] if name in _INDEXED else [*given, *made]
            counting.count.elements += max((tensor.numel() for tensor in sized), default=0)
        if any(map(counting.is_marked, given)):
            read = _read(func, name, args, kwargs)
            if read:
                counting.count.reads.append(read)
            # The target of a copy that isn't waited for is the host's, if it was before.
            if not (name == "copy_" and (kwargs.get("non_blocking") or True in args[2:])):
                counting.mark(*made)
        return result


def _read(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> str:
    """The name of the forbidden read that an operation is; "" when it is none."""
    if name in FORBIDDEN_OPERATIONS:
        return name
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        masks = (each for each in args[1] if each is not None)
        return BOOLEAN_INDEXING if any(each.dtype is torch.bool for each in masks) else ""
    if name == "repeat_interleave" and kwargs.get("output_size") is None:
        return UNSIZED_REPEAT
    return ""


def _launch_patches(counting: Counting) -> list[Any]:
    """Patches that count launches, and inside them what the interpreter does."""
    run: Any = JITFunction.run
    call: Any = interpreter.GridExecutor.__call__
    builder: Any = interpreter.InterpreterBuilder

    def counted_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return counting.launch(self.fn.__name__, lambda: run(self, *args, **kwargs))

    def counted_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return counting.launch(self.fn.__name__, lambda: call(self, *args, **kwargs))

    patches = [
        mock.patch.object(JITFunction, "run", counted_run),
        mock.patch.object(interpreter.GridExecutor, "__call__", counted_call),
        mock.patch.object(builder, "set_grid_dim", _counted_grid(counting, builder.set_grid_dim)),
    ]
    # The pointers are an access's first argument, but a swap's second.
    for name, at in (
        ("create_masked_load", 0),
        ("create_masked_store", 0),
        ("create_atomic_cas", 0),
        ("create_atomic_rmw", 1),
    ):
        counted = _counted_access(counting, getattr(builder, name), at)
        patches.append(mock.patch.object(builder, name, counted))
    return patches


def _counted_grid(counting: Counting, method: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, x: int, y: int, z: int) -> Any:
        counting.count.programs += x * y * z
        return method(self, x, y, z)

    return counted


def _counted_access(counting: Counting, method: Callable[..., Any], at: int) -> Callable[..., Any]:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        counting.count.accesses[counting.count.launches[-1]] += args[at].data.size
        return method(self, *args, **kwargs)

    return counted
