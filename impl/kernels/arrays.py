"""Arrays of a pool: numpy views of its tensors on the CPU, the tensors themselves elsewhere.

The torch forms are written once, in what both kinds of array share: operators, slices, indexing
with arrays, `all`, `sum`. On the CPU they run on numpy views of the same memory, because a small
operation costs numpy a fifth of what it costs torch. What the two spell differently stands here.
Host lengths are numpy arrays on every device. Spec: `spec/core.md` §4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch

Array: TypeAlias = Any
"""A numpy array on the CPU, a torch tensor elsewhere."""
HostArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def host_array(tensor: torch.Tensor) -> HostArray:
    """A host tensor of ids or lengths as int64: a view where it is int64 already."""
    array: HostArray = tensor.numpy()
    return array if array.dtype == np.int64 else array.astype(np.int64)


class Arrays(ABC):
    """What a form needs of a device beyond the operators that all arrays have."""

    @abstractmethod
    def view(self, tensor: torch.Tensor) -> Array:
        """A tensor of the pool's own as an array on the same memory."""

    @abstractmethod
    def ids(self, tensor: torch.Tensor) -> Array:
        """A caller's int32 or int64 tensor as int64; the same memory where it is int64."""

    @abstractmethod
    def tensor(self, array: Array) -> torch.Tensor:
        """An array as the tensor that a caller gets; the same memory."""

    @abstractmethod
    def send(self, *hosts: HostArray) -> Sequence[Array]:
        """Host arrays int64 [k] on the device: at most one non-blocking copy for all."""

    @abstractmethod
    def empty(self, length: int) -> Array:
        """An int64 array of its own, not initialised."""

    @abstractmethod
    def wide(self, array: Array) -> Array:
        """A copy of table entries, int32, as slots, int64."""

    @abstractmethod
    def narrow(self, array: Array) -> Array:
        """Slots as table entries, int32."""

    @abstractmethod
    def joined(self, arrays: Sequence[Array]) -> Array:
        """All of `arrays`, at least one, one behind the other; storage of its own."""

    @abstractmethod
    def sorted(self, array: Array) -> Array:
        """`array` ascending, storage of its own."""

    @abstractmethod
    def distinct(self, array: Array) -> Array:
        """The values of `array` once each, ascending. Reads back their number on CUDA."""

    @abstractmethod
    def clip(self, array: Array, low: int, high: int) -> Array:
        """A copy with values below `low` or above `high` replaced by these."""

    @abstractmethod
    def same(self, array: Array, other: Array) -> Any:
        """Whether two int64 arrays of one length are equal: a truth value of `all_hold`."""

    @abstractmethod
    def all_hold(self, truths: Sequence[Any]) -> bool:
        """Whether all `truths` hold, each a bool or an array of them: at most one host read."""


class HostArrays(Arrays):
    """numpy, on the memory of CPU tensors."""

    def view(self, tensor: torch.Tensor) -> Array:
        return tensor.numpy()

    def ids(self, tensor: torch.Tensor) -> Array:
        return host_array(tensor)

    def tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array)

    def send(self, *hosts: HostArray) -> Sequence[Array]:
        return hosts

    def empty(self, length: int) -> Array:
        return np.empty(length, np.int64)

    def wide(self, array: Array) -> Array:
        return array.astype(np.int64)

    def narrow(self, array: Array) -> Array:
        return array.astype(np.int32)

    def joined(self, arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays)

    def sorted(self, array: Array) -> Array:
        return np.sort(array)

    def distinct(self, array: Array) -> Array:
        ordered = np.sort(array)
        if ordered.shape[0] < 2:
            return ordered
        is_first = np.empty(ordered.shape[0], np.bool_)
        is_first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        return ordered[is_first]

    def clip(self, array: Array, low: int, high: int) -> Array:
        return np.minimum(np.maximum(array, low), high)

    def same(self, array: Array, other: Array) -> Any:
        # the bytes of a few ids compare in a fifth of the time of `(array == other).all()`
        return array.tobytes() == other.tobytes()

    def all_hold(self, truths: Sequence[Any]) -> bool:
        return all(truth is True or (truth is not False and truth.all()) for truth in truths)


class DeviceArrays(Arrays):
    """torch, on tensors of any device; nothing here but `distinct` and `all_hold` is read back."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def view(self, tensor: torch.Tensor) -> Array:
        return tensor

    def ids(self, tensor: torch.Tensor) -> Array:
        return tensor if tensor.dtype is torch.int64 else tensor.to(torch.int64)

    def tensor(self, array: Array) -> torch.Tensor:
        made: torch.Tensor = array
        return made

    def send(self, *hosts: HostArray) -> Sequence[Array]:
        packed = torch.from_numpy(np.concatenate(hosts))
        if self.device.type == "cuda" and packed.numel():
            packed = packed.pin_memory()
        packed = packed.to(self.device, non_blocking=True)
        return torch.split(packed, [host.shape[0] for host in hosts])

    def empty(self, length: int) -> Array:
        return torch.empty(length, dtype=torch.int64, device=self.device)

    def wide(self, array: Array) -> Array:
        return array.to(torch.int64)

    def narrow(self, array: Array) -> Array:
        return array.to(torch.int32)

    def joined(self, arrays: Sequence[Array]) -> Array:
        return torch.cat(tuple(arrays))

    def sorted(self, array: Array) -> Array:
        return array.sort().values

    def distinct(self, array: Array) -> Array:
        return torch.unique(array)

    def clip(self, array: Array, low: int, high: int) -> Array:
        return array.clamp(low, high)

    def same(self, array: Array, other: Array) -> Any:
        return array == other

    def all_hold(self, truths: Sequence[Any]) -> bool:
        on_device = [truth.all() for truth in truths if not isinstance(truth, bool)]
        if not all(truth for truth in truths if isinstance(truth, bool)):
            return False
        return not on_device or bool(torch.stack(on_device).all())


class Viewed:
    """Base of what keeps arrays on its own tensors: a copy has arrays on the copied tensors."""

    #: attribute of an array → attribute of the tensor it lies on
    _views: ClassVar[Mapping[str, str]]
    _arrays: Arrays

    def _view(self) -> None:
        for array, tensor in self._views.items():
            setattr(self, array, self._arrays.view(getattr(self, tensor)))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in self._views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._view()


def of(device: torch.device) -> Arrays:
    """The arrays of a pool on `device`."""
    return HostArrays() if device.type == "cpu" else DeviceArrays(device)
