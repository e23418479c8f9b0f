"""What all KV pools share: layers, types, buffers, and what is done to all buffers alike.

A pool knows bytes; which slots are whose its allocator knows. Spec:
`spec/pools_states_sizing.md` §7, §20.2, §20.3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

import torch

from impl import checks
from impl.errors import (
    BadLengths,
    OutOfRange,
    PoolError,
    Unsupported,
    WrongDevice,
    WrongDtype,
    WrongShape,
)
from impl.host.decls import HostPoolDecl, kv_decls
from impl.kernels.kv_rows import FLOATS, FP8
from impl.storage.buffers import KVBuffer, plain
from impl.storage.door import Door
from impl.storage.host_copy import CHUNK, HostCopy, copy_fault
from impl.storage.write_loc import KVWriteLoc, unwrap_write_loc, write_loc_is_physical

GIB = 2**30
Region = Callable[[], AbstractContextManager[Any]]


class Regions(NamedTuple):
    """Contexts that buffers are made in: a memory saver's, and in it a memory pool's. §20.2."""

    memory_saver: Region | None = None
    memory_pool: Region | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Both, the saver's outside."""
        with ExitStack() as stack:
            for region in self:
                if region is not None:
                    stack.enter_context(region())
            yield


class Gate(Protocol):
    """Tells a reader when a layer that is being loaded has arrived."""

    def wait_until(self, threshold: int) -> None: ...


class KVCache(ABC):
    """KV of slots 0..size + page_size - 1 for layers [start_layer, end_layer), a buffer for each.

    `size` in slots, the first page beside them belongs to padded lanes: what is aimed there, or
    at a negative slot, is dropped, so that it stays zero. `dtype` is what callers read,
    `store_dtype` what buffers hold: bytes for fp8. With `requires_physical_write_loc` slots of
    writes must be marked as rows of buffers. `regions`: where memory comes from. All is zero at
    first. Reads wait for their layer where a `layer_transfer_gate` is set; views don't (Q15).

    Faults of slots are raised at the call, with `backend="triton"` later, see `check`. Writes may
    be captured in a graph. Raises `NegativeSize`, `OutOfRange`, `BadLengths`, `WrongDtype`,
    `Unsupported`. O(bytes). Spec: §7.
    """

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: torch.dtype,
        layer_num: int,
        *,
        device: torch.device | str,
        start_layer: int = 0,
        end_layer: int | None = None,
        requires_physical_write_loc: bool = False,
        regions: Regions = Regions(),  # noqa: B008 (a constant)
        backend: str = "auto",
        validate: bool = True,
    ) -> None:
        checks.raise_first(
            [
                *checks.collected(
                    lambda: checks.host_size(page_size, "page_size", least=1),
                    lambda: checks.pool_size(size, page_size),
                    lambda: checks.host_size(layer_num, "layer_num"),
                    lambda: checks.host_size(start_layer, "start_layer"),
                    lambda: checks.optional_size(end_layer, "end_layer"),
                    lambda: require_dtype(dtype),
                ),
                _range_fault(layer_num, start_layer, end_layer),
            ]
        )
        self.size, self.page_size = int(size), int(page_size)
        self.dtype = dtype
        self.store_dtype = torch.uint8 if dtype in FP8 else dtype
        self.layer_num = int(layer_num)
        self.start_layer = int(start_layer)
        self.end_layer = self.start_layer + self.layer_num
        self.device = torch.empty((), device=device).device
        self.requires_physical_write_loc = bool(requires_physical_write_loc)
        self.layer_transfer_gate: Gate | None = None
        #: slots that a host tier reckons with; None: `size`
        self.host_capacity_tokens: int | None = None
        self._regions = regions
        self._door = Door(
            self.page_size, self.num_rows, device=self.device, backend=backend, validate=validate
        )
        self.buffers: tuple[KVBuffer, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows of a buffer: those of slots, and the first page's."""
        return self.size + self.page_size

    def _new_stack(self, name: str, row_shape: tuple[int, ...]) -> list[torch.Tensor]:
        """A zeroed tensor [num_rows, *row_shape] for each layer, which join the buffers."""
        shape = (self.num_rows, *row_shape)
        with self._regions.entered():
            made = [
                torch.zeros(shape, dtype=self.store_dtype, device=self.device)
                for _ in range(self.layer_num)
            ]
        self.buffers += tuple(
            plain(name, self.start_layer + at, tensor) for at, tensor in enumerate(made)
        )
        return made

    # Layers

    def _local(self, call: str, layer_id: Any) -> int:
        """The place of a layer among the pool's."""
        layer = checks.host_int(layer_id, "layer_id")
        if not self.start_layer <= layer < self.end_layer:
            found = f"layer {layer} isn't in {self.start_layer}..{self.end_layer - 1}"
            raise OutOfRange(f"{call}: {found}. Ask the pool that has it.")
        return layer - self.start_layer

    def _arrived(self, call: str, layer_id: Any) -> int:
        """The same, once what is being loaded there has arrived."""
        local = self._local(call, layer_id)
        if self.layer_transfer_gate is not None:
            self.layer_transfer_gate.wait_until(local)
        return local

    def _as_read(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.store_dtype == self.dtype else tensor.view(self.dtype)

    # Writes

    def _target(self, call: str, loc_info: Any) -> torch.Tensor:
        """The slots of a write, marked where they have to be."""
        if self.requires_physical_write_loc and not write_loc_is_physical(loc_info):
            raise Unsupported(
                f"{call}: slots aren't marked as rows of buffers. Translate them, and give a "
                "KVWriteLoc with physical=True."
            )
        loc = unwrap_write_loc(loc_info)[0]
        if not isinstance(loc_info, KVWriteLoc) or loc.device != self.device:
            checks.require_ids(loc, "loc", self.device)
        return loc

    def _fit(self, values: Any, due: tuple[int, ...]) -> bool:
        """Whether nothing is wrong with values of a write; what seems to be is searched for."""
        return (
            isinstance(values, torch.Tensor)
            and (values.dtype is self.dtype or values.dtype in FLOATS)
            and values.shape == due
            and values.device == self.device
            and values.layout is torch.strided
        )

    def _values_fault(
        self, call: str, name: str, values: Any, due: tuple[int, ...]
    ) -> PoolError | None:
        """What is wrong with values of a write."""
        if not isinstance(values, torch.Tensor) or values.dtype not in (*FLOATS, *FP8):
            found = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
            return WrongDtype(f"{call}: {name} must be floating point, got {found}.")
        if values.dtype in FP8 and values.dtype != self.dtype:
            found = f"{name} is {values.dtype}, the pool {self.dtype}"
            return WrongDtype(f"{call}: {found}. Convert it first.")
        return self._place_fault(call, name, values, due)

    def _place_fault(
        self, call: str, name: str, values: torch.Tensor, due: tuple[int, ...]
    ) -> PoolError | None:
        """What is wrong with where values are, and how many of them."""
        if values.layout is not torch.strided:
            return WrongDtype(f"{call}: {name} must be dense, got {values.layout}. Convert it.")
        if values.device != self.device:
            return WrongDevice(f"{call}: {name} must be on {self.device}, got {values.device}.")
        if tuple(values.shape) != due:
            return WrongShape(f"{call}: {name} must be {due}, got {tuple(values.shape)}.")
        return None

    # All buffers alike

    def move_kv_cache(self, tgt_loc: torch.Tensor, src_loc: torch.Tensor) -> None:
        """Slot `src_loc[i]` under `tgt_loc[i]`, int [k], in every buffer; all at once.

        A slot may be source and target: values are those from before the call. A target in the
        first page is a padded lane. Raises `OutOfRange`, `Reserved` (a source in the first page),
        `Duplicate` (a target twice), `BadLengths`, `WrongDtype`, `WrongDevice`, `WrongShape`, and
        writes nothing then. O(bytes moved); one launch. Spec: §8.
        """
        self._door.move("move_kv_cache", self.buffers, tgt_loc, src_loc)

    def get_cpu_copy(
        self, indices: torch.Tensor, mamba_indices: Any = None, req_pool_index: Any = None
    ) -> HostCopy:
        """The rows of slots int [k] on the host: [layer][chunk][buffer], storage of their own.

        Waits for the device. Raises `OutOfRange`, `Reserved`, `WrongDtype`, `WrongDevice`,
        `WrongShape`. O(bytes). Spec: §8.
        """
        slots = self._door.require_held("get_cpu_copy", indices, once=False)
        chunks = torch.split(slots, CHUNK)
        return [
            [[buffer.gather(chunk).cpu() for buffer in of_layer] for chunk in chunks]
            for of_layer in self._by_layer()
        ]

    def load_cpu_copy(
        self,
        kv_cache_cpu: HostCopy,
        indices: torch.Tensor,
        mamba_indices: Any = None,
        req_pool_index: Any = None,
    ) -> None:
        """What `get_cpu_copy` gave, under the same or other slots int [k]. Waits for the device.

        Raises `OutOfRange`, `Reserved`, `Duplicate`, and for a copy that isn't one of this pool's
        `BadLengths`, `WrongDtype`, `WrongDevice`, `WrongShape`, before anything is written.
        O(bytes). Spec: §8.
        """
        self._restore(kv_cache_cpu, self._looked_over(kv_cache_cpu, indices))

    def _looked_over(self, copy: HostCopy, indices: torch.Tensor) -> torch.Tensor:
        """The slots that a copy is for, int64 [k]; nothing is wrong with either."""
        slots = self._door.require_held("load_cpu_copy", indices, once=True)
        checks.raise_first([copy_fault(copy, self._by_layer(), torch.split(slots, CHUNK))])
        return slots

    def _restore(self, copy: HostCopy, slots: torch.Tensor) -> None:
        """Write a copy that was looked over."""
        chunks = torch.split(slots, CHUNK)
        for of_layer, saved in zip(self._by_layer(), copy, strict=True):
            for chunk, rows in zip(chunks, saved, strict=True):
                for buffer, words in zip(of_layer, rows, strict=True):
                    buffer.scatter(chunk, words.to(self.device))

    def _by_layer(self) -> list[list[KVBuffer]]:
        layers = range(self.start_layer, self.end_layer)
        return [[buffer for buffer in self.buffers if buffer.layer == layer] for layer in layers]

    # Reports

    @abstractmethod
    def get_kv_size_bytes(self) -> Any:
        """Bytes of the buffers. O(buffers). Spec: §7."""

    def _bytes_of(self, *names: str) -> int:
        return sum(each.rows.nbytes for each in self.buffers if each.name in names)

    @property
    def mem_usage(self) -> float:
        """Bytes of all buffers in GiB."""
        return sum(each.rows.nbytes for each in self.buffers) / GIB

    def get_contiguous_buf_infos(self) -> tuple[list[int], list[int], list[int]]:
        """Of each buffer of KV: address, bytes, bytes of a page. O(buffers). Spec: §8, A6."""
        own = [each for each in self.buffers if each.name not in ("index_k", "index_scale")]
        return (
            [each.rows.data_ptr() for each in own],
            [each.rows.nbytes for each in own],
            [each.row_bytes * self.page_size for each in own],
        )

    def translate_kv_indices_for_transfer(self, kv_indices: torch.Tensor) -> torch.Tensor:
        """A copy of slots int [k]: here every slot is a row of buffers. O(k). Spec: IH §4.9."""
        checks.require_ids(kv_indices, "kv_indices", self.device)
        return kv_indices.to(torch.int64, copy=True)

    def host_pool_decls(self) -> list[HostPoolDecl]:
        """What a host tier mirrors: all buffers, as one pool. O(1). Spec: IH §4.2."""
        return kv_decls(self)

    # Faults and audits

    def check(self) -> None:
        """Wait for all calls so far, and raise the first fault of theirs."""
        self._door.settle()

    def recover(self) -> None:
        """Go on behind a fault: its call, and those after it, have written nothing."""
        self._door.recover()

    def snapshot(self) -> dict[str, Any]:
        """All content as plain Python: of each buffer a list of bytes for each row. O(bytes)."""
        self.check()
        every = torch.arange(self.num_rows, device=self.device)
        return {
            "size": self.size,
            "buffers": [
                (each.name, each.layer, each.gather(every).view(torch.uint8).tolist())
                for each in self.buffers
            ],
        }

    def audit(self) -> list[str]:
        """What is wrong by the pool's own account: a line each, [] when healthy. O(bytes)."""
        self.check()
        first = torch.arange(self.page_size, device=self.device)
        return self._door.audit() + [
            f"I56: the first page of {each.name}, layer {each.layer}, isn't zero"
            for each in self.buffers
            if each.gather(first).any()
        ]


def require_dtype(dtype: Any, name: str = "dtype") -> None:
    """Raise unless a pool may store `dtype`."""
    if not isinstance(dtype, torch.dtype) or dtype not in (*FLOATS, *FP8):
        names = ", ".join(str(each).removeprefix("torch.") for each in (*FLOATS, *FP8))
        raise WrongDtype(f"{name} must be one of {names}; got {dtype}.")


def _range_fault(layer_num: Any, start: Any, end: Any) -> PoolError | None:
    numbers = [checks.int_or_none(each) for each in (layer_num, start, end)]
    if end is None or None in numbers or start + layer_num == end:
        return None
    found = f"layers {start}..{end - 1} are {end - start}, layer_num is {layer_num}"
    return BadLengths(f"{found}. The range is half-open, [start_layer, end_layer).")
