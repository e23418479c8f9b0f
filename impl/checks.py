"""What host data alone decides about an argument: type, dtype, device, shape.

These are the immediate checks of DESIGN's order of tests; they run with `validate=False` too.
`spec/core.md` §4b names the kinds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from impl.errors import (
    Duplicate,
    NegativeSize,
    OutOfRange,
    PoolError,
    WrongDevice,
    WrongDtype,
    WrongShape,
)

CPU = torch.device("cpu")
ID_DTYPES = (torch.int64, torch.int32)
# Slots are stored as int32 in the row table, so no slot number may reach this.
SLOT_LIMIT = 2**31


def host_int(value: Any, name: str) -> int:
    """`value` as an int; `WrongDtype` for bools, tensors and all that isn't an integer."""
    if type(value) is int:
        return value
    if not isinstance(value, (bool, torch.Tensor)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise WrongDtype(
        f"{name} must be an int, got {type(value).__name__}. Read a tensor on the host first."
    )


def host_size(value: Any, name: str, least: int = 0) -> int:
    """`value` as an int of at least `least`; `NegativeSize` below it."""
    size = host_int(value, name)
    if size < least:
        raise NegativeSize(f"{name} must be at least {least}, got {size}.")
    return size


def optional_size(value: Any, name: str, least: int = 0) -> int | None:
    """`value` as an int of at least `least`, or None; `NegativeSize` below it."""
    return None if value is None else host_size(value, name, least)


def layer_ids(value: Any) -> None:
    """Raise unless `value` is a sequence of distinct ints of at least 0."""
    seen: set[int] = set()
    for each in listed(value, "layer ids"):
        layer = host_size(each, "a layer id")
        if layer in seen:
            raise Duplicate(f"layer {layer} is named twice. Name each once.")
        seen.add(layer)


def pool_size(value: Any, page_size: Any = 1, name: str = "size") -> int:
    """A pool size in slots, small enough that every slot fits the int32 row table.

    A page size that isn't a number is looked at by itself.
    """
    size, page = host_size(value, name), int_or_none(page_size)
    if page is not None and size + page >= SLOT_LIMIT:
        raise OutOfRange(
            f"{name} {size} plus page size {page_size} must stay below 2^31 (int32 table)."
        )
    return size


def listed(value: Any, name: str) -> list[Any]:
    """The elements of an iterable; `WrongDtype` for what isn't one."""
    if isinstance(value, Iterable) and not (isinstance(value, torch.Tensor) and not value.dim()):
        return list(value)
    raise WrongDtype(f"{name} must be a list, got {type(value).__name__}.")


def flags(value: Any, name: str) -> None:
    """Raise unless `value` is a sequence of bools."""
    if not isinstance(value, Sequence) or any(type(each) is not bool for each in value):
        raise WrongDtype(f"{name} must be a list of bools, got {value!r:.60}.")


def int_or_none(value: Any) -> int | None:
    """`value` as an int where it is one."""
    try:
        return host_int(value, "")
    except WrongDtype:
        return None


def is_ids(value: Any, device: torch.device) -> bool:
    """Whether `value` is a 1-D int32 or int64 tensor on `device`."""
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in ID_DTYPES
        and value.device == device
        and value.dim() == 1
        and value.layout is torch.strided
    )


def ids_fault(value: Any, name: str, device: torch.device) -> PoolError | None:
    """The error to raise for `value`, None if it is what `is_ids` accepts."""
    if not isinstance(value, torch.Tensor):
        return WrongDtype(f"{name} must be a tensor, got {type(value).__name__}.")
    if value.dtype not in ID_DTYPES:
        return WrongDtype(f"{name} must be int32 or int64, got {value.dtype}. Convert it first.")
    if value.layout is not torch.strided:
        return WrongDtype(f"{name} must be a dense tensor, got {value.layout}. Convert it first.")
    if value.device != device:
        return WrongDevice(f"{name} must be on {device}, got {value.device}. Move it first.")
    if value.dim() != 1:
        return WrongShape(f"{name} must have one dimension, got shape {tuple(value.shape)}.")
    return None


def require_ids(value: Any, name: str, device: torch.device) -> None:
    """Raise unless `value` is a 1-D int32 or int64 tensor on `device`."""
    if not is_ids(value, device):
        raise_first([ids_fault(value, name, device)])


def collected(*tests: Callable[[], object]) -> list[PoolError | None]:
    """The error of each test, None where it passes."""
    errors: list[PoolError | None] = []
    for test in tests:
        try:
            test()
        except PoolError as error:
            errors.append(error)
    return errors


def raise_first(errors: list[PoolError | None]) -> None:
    """Raise the error of the smallest kind, the earliest of those; nothing if all are None.

    Leaves the list empty: an error that a frame of its own traceback holds would live, and with
    it the tensors of the call, until the next garbage collection.
    """
    found = [error for error in errors if error is not None]
    errors.clear()
    if found:
        try:
            raise min(found, key=lambda error: error.rank)
        finally:
            found.clear()
