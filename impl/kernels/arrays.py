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
Truth: TypeAlias = Any
"""A bool, or an array of them all of which are to be true."""


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
    def zeros(self, length: int) -> Array:
        """An int64 array of zeros."""

    @abstractmethod
    def wide(self, array: Array) -> Array:
        """A copy of table entries, int32, as slots, int64."""

    @abstractmethod
    def narrow(self, array: Array) -> Array:
        """Slots as table entries, int32."""

    @abstractmethod
    def copy(self, array: Array) -> Array:
        """The same in storage of its own."""

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
    def look(self, table: Array, ids: Array) -> Array:
        """`table[ids]`; ids below 0 give its first entry, ids beyond it its last."""

    @abstractmethod
    def spread(self, firsts: Array, starts: HostArray, counts: HostArray, total: int) -> Array:
        """Runs of consecutive ids: `counts[j]` from `firsts[j]` on, at `starts[j]` of [total].

        `firsts` on the device; `starts` are the sums of all earlier `counts`.
        """

    # Truths: what `all_hold` takes, so that a device is asked once for all of them

    @abstractmethod
    def same(self, array: Array, other: Array) -> Truth:
        """That two int64 arrays of one length are equal."""

    @abstractmethod
    def all_are(self, states: Array, state: int) -> Truth:
        """That all of a uint8 array are `state`."""

    @abstractmethod
    def all_zero(self, array: Array) -> Truth:
        """That an int64 array holds nothing but zeros."""

    @abstractmethod
    def once(self, ids: Array) -> Truth:
        """That no id is in `ids` twice. O(k log k), O(k) on the CPU where they ascend.

        By a sort of the ids: a claim for each id would be read all over the pool.
        """

    @abstractmethod
    def all_hold(self, truths: Sequence[Truth]) -> bool:
        """Whether all `truths` hold: at most one host read."""


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

    def zeros(self, length: int) -> Array:
        return np.zeros(length, np.int64)

    def wide(self, array: Array) -> Array:
        return array.astype(np.int64)

    def narrow(self, array: Array) -> Array:
        return array.astype(np.int32)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def joined(self, arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays)

    def sorted(self, array: Array) -> Array:
        return np.sort(array)

    def distinct(self, array: Array) -> Array:
        if array.shape[0] < 2:
            return array.copy()
        # pages of one extend mostly ascend already, and a look is a tenth of a sort
        ordered = array if _holds(array[1:] >= array[:-1]) else np.sort(array)
        is_first = np.empty(ordered.shape[0], np.bool_)
        is_first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        return ordered[is_first]

    def look(self, table: Array, ids: Array) -> Array:
        return table.take(ids, mode="clip")

    def spread(self, firsts: Array, starts: HostArray, counts: HostArray, total: int) -> Array:
        ids = (firsts - starts).repeat(counts)
        ids += np.arange(total)
        return ids

    # The bytes of a few ids are compared in a tenth of the time of `(…).all()`.

    def same(self, array: Array, other: Array) -> Truth:
        return array.tobytes() == other.tobytes()

    def all_are(self, states: Array, state: int) -> Truth:
        return states.tobytes() == bytes((state,)) * states.shape[0]

    def all_zero(self, array: Array) -> Truth:
        return array.tobytes() == bytes(array.nbytes)

    def once(self, ids: Array) -> Truth:
        if ids.shape[0] < 2 or _holds(ids[1:] > ids[:-1]):
            return True
        ordered = np.sort(ids)
        return _holds(ordered[1:] != ordered[:-1])

    def all_hold(self, truths: Sequence[Truth]) -> bool:
        return all(truth if truth is True or truth is False else _holds(truth) for truth in truths)


def _holds(truths: HostArray) -> bool:
    """Whether all of an array of bools are true."""
    return b"\0" not in truths.tobytes()


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

    def zeros(self, length: int) -> Array:
        return torch.zeros(length, dtype=torch.int64, device=self.device)

    def wide(self, array: Array) -> Array:
        return array.to(torch.int64)

    def narrow(self, array: Array) -> Array:
        return array.to(torch.int32)

    def copy(self, array: Array) -> Array:
        return array.clone()

    def joined(self, arrays: Sequence[Array]) -> Array:
        return torch.cat(tuple(arrays))

    def sorted(self, array: Array) -> Array:
        return array.sort().values

    def distinct(self, array: Array) -> Array:
        return torch.unique(array)

    def look(self, table: Array, ids: Array) -> Array:
        return table.index_select(0, ids.clamp(0, table.shape[0] - 1))

    def spread(self, firsts: Array, starts: HostArray, counts: HostArray, total: int) -> Array:
        sent_starts, sent_counts = self.send(starts, counts)
        ids: Array = torch.repeat_interleave(firsts - sent_starts, sent_counts, output_size=total)
        ids += torch.arange(total, device=self.device)
        return ids

    def same(self, array: Array, other: Array) -> Truth:
        return array == other

    def all_are(self, states: Array, state: int) -> Truth:
        return states == state

    def all_zero(self, array: Array) -> Truth:
        return array == 0

    def once(self, ids: Array) -> Truth:
        if ids.shape[0] < 2:
            return True
        ordered = self.sorted(ids)
        return ordered[1:] != ordered[:-1]

    def all_hold(self, truths: Sequence[Truth]) -> bool:
        if any(truth is False for truth in truths):
            return False
        on_device = [truth.all() for truth in truths if truth is not True]
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
