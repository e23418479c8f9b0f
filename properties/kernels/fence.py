"""Interpreted kernels inside a fence: what they touch lies in the tensors that they were given.

Guards show a write beside a buffer, not a read, whose value is mostly thrown away: on a GPU it is
an illegal address some day. Here every address that a lane touches is compared with the extents of
the launch's own arguments, and lanes of one store may not write the same place: a race, unless
the values are equal, and then a waste. Where a mask keeps a lane from loading and nothing is said
of what it gets instead, it gets anything. Places that lanes contend for by atomics may be written
by several: all who clash put the same back. Compiled kernels run as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

#: operation of the interpreter → where its pointers are among the arguments, and its mask
LOAD, STORE, ATOMIC = "create_masked_load", "create_masked_store", "create_atomic_rmw"
PLACES = {LOAD: (0, 1), STORE: (0, 2), ATOMIC: (1, 3)}
#: where a load is told what lanes get that the mask keeps out; if it isn't, something from here
OTHER, POISON = 2, (-2, 12)


#: what launches reach by an address in a table
_BESIDE: list[torch.Tensor] = []


@contextmanager
def beside(*tensors: torch.Tensor) -> Iterator[None]:
    """Launches in here may touch these too, whose addresses they are told."""
    _BESIDE.extend(tensors)
    try:
        yield
    finally:
        del _BESIDE[-len(tensors) :]


class OutsideTheFence(AssertionError):
    """A lane touched what no argument of the launch holds, or what another lane wrote."""


@contextmanager
def fenced() -> Iterator[None]:
    """Kernels that are launched in here are watched, where they are interpreted."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    from triton.runtime import interpreter

    executor, builder = interpreter.GridExecutor, type(interpreter.interpreter_builder)
    fence = _Fence()
    patches = [
        patch.object(executor, "__call__", _plain(executor.__call__)),
        patch.object(executor, "_init_args_hst", fence.around(executor._init_args_hst)),
    ]
    patches += [patch.object(builder, name, fence.watch(builder, name)) for name in PLACES]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()


def _plain(inner: Callable[..., Any]) -> Callable[..., Any]:
    """A launch that raises what the fence raised, not the interpreter's wrapping of it."""

    def launch(*args: Any, **kwargs: Any) -> None:
        try:
            inner(*args, **kwargs)
        except Exception as error:
            if isinstance(error.__cause__, OutsideTheFence):
                raise error.__cause__ from None
            raise

    return launch


class _Fence:
    """The extents of a launch's arguments, as [first byte, one behind the last)."""

    def __init__(self) -> None:
        self.lows = self.highs = np.zeros(0, np.int64)
        #: which of them lanes contend for
        self.contended = np.zeros(0, bool)
        self.dice = np.random.default_rng(0)

    def around(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The interpreter's own preparation of arguments, whose extents are kept."""

        def prepared(*args: Any) -> Any:
            found = inner(*args)
            arguments = (*found[0], *found[1].values())
            if any(each is None for each in arguments):
                raise OutsideTheFence("an argument is None: compiled, that is a variant of its own")
            given = [each for each in (*arguments, *_BESIDE) if torch.is_tensor(each)]
            extents = [_extent(each) for each in given if each.numel()]
            self.lows, self.highs = np.array(extents, np.int64).reshape(-1, 2).T
            self.contended = np.zeros(len(extents), bool)
            return found

        return prepared

    def watch(self, builder: type, name: str) -> Callable[..., Any]:
        """An operation of the interpreter whose addresses are looked at before it runs."""
        inner = getattr(builder, name)
        at, mask_at = PLACES[name]

        def watched(builder: Any, *args: Any) -> Any:
            pointers, mask = args[at], args[mask_at].data
            addresses = pointers.data[np.broadcast_to(mask, pointers.data.shape)]
            itemsize = pointers.get_element_ty().primitive_bitwidth // 8
            self.require(name, addresses.ravel().astype(np.int64), itemsize)
            found = inner(builder, *args)
            if name == LOAD and args[OTHER] is None:
                out = ~np.broadcast_to(mask, found.data.shape)
                found.data[out] = self.dice.integers(*POISON, out.sum()).astype(found.data.dtype)
            return found

        return watched

    def require(self, name: str, addresses: Any, itemsize: int) -> None:
        """Raises unless each is inside of an argument, and no place is stored to twice."""
        ends = addresses[:, None] + itemsize
        inside = (addresses[:, None] >= self.lows) & (ends <= self.highs)
        outside = ~inside.any(1)
        if outside.any():
            raise OutsideTheFence(f"{int(outside.sum())} of {len(addresses)} lanes are outside")
        if name == ATOMIC:
            self.contended |= inside.any(0)
        shared = name != STORE or (inside & self.contended).any(1).all()
        if not shared and len(np.unique(addresses)) != len(addresses):
            raise OutsideTheFence(f"{len(addresses)} lanes write the same places")


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """From the first byte of a view to behind its last."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
