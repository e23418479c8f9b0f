"""The calls by slots that reach the buffers of a pool: look at the slots, then write, move, copy.

In torch the slots are looked at on the host before anything is written. With `backend="triton"`
the launch that writes looks at them itself: it writes all or nothing, and what is wrong reaches
the host later (`settle`, `recover`). Under stream capture a write is legal: whose slots they are is
read anew at every replay. Spec: `spec/core.md` §4, §7, §8.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from impl import checks
from impl.allocators.faults import twice
from impl.errors import (
    BadLengths,
    Duplicate,
    Fault,
    OutOfRange,
    PoolError,
    Reserved,
    Unsupported,
    refuse,
)
from impl.kernels import device as kernels_of
from impl.kernels import kv_rows as torch_form
from impl.kernels.arrays import host_array
from impl.kernels.kv_rows import Part
from impl.slot_calls import SlotCalls
from impl.storage.buffers import KVBuffer

#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    OutOfRange: "Use slots that the pool's allocator issued",
    Reserved: "The first page belongs to padded lanes: no request's KV is there",
    Duplicate: "Name each target once per call",
}


class Door(SlotCalls):
    """Slots `first`..`end` - 1 of some buffers; those below, negative ones too, are padding."""

    def __init__(
        self, first: int, end: int, *, device: torch.device, backend: str, validate: bool
    ) -> None:
        super().__init__(end, device=device, backend=backend, validate=validate)
        self.first, self.end = first, end

    # Writes

    def store(
        self, call: str, parts: Sequence[Part], loc: torch.Tensor, limits: torch.Tensor | None
    ) -> None:
        """Write values of all parts to slots `loc`, int [n], which the caller has looked over.

        With `limits` int [rows] lane (row, column) is written if its column is below its row's.
        """
        captured = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if not captured:
            self.enter()
        if not loc.shape[0]:
            return
        if self.backend == "triton":
            number = self.deferral.captured() if captured else self.deferral.begin(call, ())
            kernels_of.load().kv_rows.store(
                parts, loc, limits, first=self.first, end=self.end, record=self.deferral.record,
                seq=number, validate=self.validate,
            )  # fmt: skip
            if not captured:
                self.deferral.launched()
            return
        target = loc if loc.dtype is torch.int64 else loc.to(torch.int64)
        if limits is not None:
            lanes = target.view(limits.shape[0], -1)
            columns = torch.arange(lanes.shape[1], device=self.device)
            target = lanes.where(columns < limits[:, None], -1).flatten()
        if self.validate or self.device.type == "cpu":
            self._store_looked_over(call, parts, target)
        else:
            torch_form.store(parts, target, self.first, self.end)

    def _store_looked_over(self, call: str, parts: Sequence[Part], target: torch.Tensor) -> None:
        least, most = _extremes(target)
        if most >= self.end and self.validate:
            refuse(call, outside(target.tolist(), self.end), ADVICE)
        if least >= self.first and most < self.end:
            for part in parts:
                torch_form.put(part, target)
        else:
            torch_form.store(parts, target, self.first, self.end)

    def move(
        self, call: str, buffers: Sequence[KVBuffer], target: torch.Tensor, source: torch.Tensor
    ) -> None:
        """Row `source[i]` under slot `target[i]` in every buffer, at once. One launch for all."""
        self.enter()
        errors = [
            checks.ids_fault(target, "tgt_loc", self.device),
            checks.ids_fault(source, "src_loc", self.device),
        ]
        if not any(errors) and target.shape != source.shape:
            found = f"{call}: {source.shape[0]} sources, {target.shape[0]} targets"
            errors.append(BadLengths(f"{found}. Pair them."))
        checks.raise_first(errors)
        if self.backend == "triton":
            kernels_of.load().kv_rows.move(
                buffers, source, target, first=self.first, end=self.end, claim=self.claim,
                record=self.deferral.record, seq=self.deferral.begin(call, ()),
                validate=self.validate,
            )  # fmt: skip
            self.deferral.launched()
            return
        if self.validate:
            refuse(call, faults_of(source.tolist(), target.tolist(), self.first, self.end), ADVICE)
        source, target = source.to(torch.int64), target.to(torch.int64)
        torch_form.move(buffers, source, target, self.first, self.end)

    def require_held(self, call: str, indices: torch.Tensor, *, once: bool) -> torch.Tensor:
        """The slots of a call that waits anyway, int64 [k]: none of the first page's."""
        self.enter()
        checks.require_ids(indices, "indices", self.device)
        self.settle()
        if self.validate and not _are_good(indices, self.first, self.end, once=once):
            named = indices.tolist()
            written = named if once else []
            faults = outside(named, self.end)
            faults += [
                Fault(Reserved, at, f"slot {slot} is reserved")
                for at, slot in enumerate(named)
                if slot < self.first
            ]
            refuse(call, faults + twice(written), ADVICE)
        return indices.to(torch.int64)

    def readable(self, call: str, slots: torch.Tensor) -> torch.Tensor:
        """Slots int64 [k] to be read, without waiting: those beyond the pool are 0 or refused."""
        if self.device.type == "cpu" and self.validate and slots.shape[0]:
            least, most = _extremes(slots)
            if least < 0 or most >= self.end:
                found = f"slots {least}..{most} aren't within 0..{self.end - 1}"
                raise OutOfRange(f"{call}: {found}. Read slots of the pool only.")
        return there_or_first(slots.to(torch.int64), self.end)

    def share(self, other: Door) -> None:
        """One record of faults with another door: what either has refused is void on both.

        `Unsupported` where one defers faults and the other doesn't.
        """
        if self.backend != other.backend:
            found = f"one side has backend {self.backend}, the other {other.backend}"
            raise Unsupported(f"{found}. Give both the same.")
        if self.backend == "triton":
            self.deferral = other.deferral


def there_or_first(ids: torch.Tensor, end: int) -> torch.Tensor:
    """Ids int64, those outside of 0..end - 1 as 0: who reads by them reads what is there."""
    return ids.where((ids >= 0) & (ids < end), 0)


def _extremes(slots: torch.Tensor) -> tuple[int, int]:
    """The smallest and the largest of slots, at least one."""
    if slots.device.type == "cpu":
        if slots.shape[0] < _FEW:
            named = slots.tolist()
            return min(named), max(named)
        array = host_array(slots)
        return int(array.min()), int(array.max())
    least, most = torch.stack(slots.aminmax()).tolist()
    return least, most


# So few that Python is as quick with them as numpy.
_FEW = 8


def _are_good(slots: torch.Tensor, first: int, end: int, *, once: bool) -> bool:
    """Whether nothing can be wrong with slots: all of requests, none named twice where `once`."""
    if not slots.shape[0]:
        return True
    least, most = _extremes(slots)
    return first <= least and most < end and (not once or torch.unique(slots).shape == slots.shape)


def outside(slots: Sequence[int], end: int) -> list[Fault]:
    """Slots beyond the pool."""
    return [
        Fault(OutOfRange, at, f"slot {slot} is beyond {end - 1}, the last one")
        for at, slot in enumerate(slots)
        if slot >= end
    ]


def faults_of(source: list[int], target: list[int], first: int, end: int) -> list[Fault]:
    """Everything wrong with a move; padded lanes are those whose target is padding."""
    found = outside(target, end) + outside(source, end)
    first_at: dict[int, int] = {}
    for at, (read, write) in enumerate(zip(source, target, strict=True)):
        if write < first:
            continue
        if read < first:
            found.append(Fault(Reserved, at, f"slot {read} is reserved, and read from"))
        if first_at.setdefault(write, at) < at:
            named = f"slot {write} was named at {first_at[write]} already"
            found.append(Fault(Duplicate, at, named))
    return found
