"""What a call by state slots does, on either backend: look at its ids, then write or read rows.

With `backend="triton"` one launch looks at the ids of a call, and one for each tensor follows; what
is wrong reaches the host later (`check`, `recover`). In torch the ids are looked at on the host.
Spec: `spec/pools_states_sizing.md` §3, §5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from impl import checks
from impl.errors import (
    BadLengths,
    Duplicate,
    Fault,
    OutOfRange,
    PoolError,
    Reserved,
    refuse,
)
from impl.kernels import device as kernels_of
from impl.kernels import slot_moves as torch_form
from impl.slot_calls import SlotCalls

#: what to do about each kind, for the end of its message
ADVICE: dict[type[PoolError], str] = {
    OutOfRange: "Use slots that the pool's allocator issued",
    Reserved: "Slot 0 belongs to padded lanes: no request's state is there",
    Duplicate: "Name each once per call; nothing is read that the same call writes",
}
#: the row of slots that padded lanes name
PADDING_SLOT = 0


class Rows(NamedTuple):
    """Words [layers, rows, n] of a tensor, and the word that a reset row is made of."""

    words: torch.Tensor
    word: int = 0


def rows_of(tensor: torch.Tensor, rows_axis: int, value: int = 0) -> Rows:
    """The rows of a contiguous tensor along an axis, 0 or 1; a reset one holds `value`."""
    found = torch_form.words(tensor, rows_axis)
    return Rows(found, torch_form.word_of(value, tensor.dtype, found.dtype))


class Moves(SlotCalls):
    """Calls on rows 0..last of some tensors; `keep` is the row that nobody writes to."""

    def __init__(
        self, last: int, keep: int, *, device: torch.device, backend: str, validate: bool
    ) -> None:
        super().__init__(last + 1, device=device, backend=backend, validate=validate)
        self.last, self.keep = last, keep

    # Faults

    def forget(self) -> None:
        """As if nothing had been wrong, for a state that starts anew."""
        if self.backend == "triton":
            self.deferral.forget()

    # Ids

    def require(self, call: str, source: torch.Tensor | None, target: torch.Tensor | None) -> None:
        """Enter a call with these ids: immediate faults, then values, here or on the device."""
        self.enter()
        names = ("src", "dst") if source is not None and target is not None else ("indices",) * 2
        errors = [
            checks.ids_fault(ids, name, self.device)
            for name, ids in zip(names, (source, target), strict=True)
            if ids is not None
        ]
        if source is not None and target is not None and not any(errors):
            counts = source.shape[0], target.shape[0]
            if counts[0] != counts[1]:
                found = f"{call}: {counts[0]} sources, {counts[1]} targets. Pair them."
                errors.append(BadLengths(found))
        checks.raise_first(errors)
        if self.backend == "triton":
            number = self.deferral.begin(call, ())
            if self.validate:
                kernels_of.load().slot_moves.check(
                    source, target, last=self.last, keep=self.keep, claim=self.claim,
                    record=self.deferral.record, seq=number,
                )  # fmt: skip
        elif self.validate:
            read, written = (None if ids is None else ids.tolist() for ids in (source, target))
            refuse(call, faults_of(read, written, self.last, self.keep), ADVICE)

    def require_held(self, call: str, ids: torch.Tensor, *, once: bool) -> list[int]:
        """The ids of a call that waits anyway; the padding row is nobody's, so it is refused."""
        self.enter()
        checks.require_ids(ids, "indices", self.device)
        self.settle()
        named: list[int] = ids.tolist()
        if self.validate:
            read, written = (None, named) if once else (named, None)
            faults = faults_of(read, written, self.last, self.keep)
            held = [
                Fault(Reserved, at, f"slot {slot} is reserved")
                for at, slot in enumerate(named)
                if slot == self.keep
            ]
            refuse(call, faults + held, ADVICE)
        return named

    def launched(self) -> None:
        """All of a call is on its way."""
        if self.backend == "triton":
            self.deferral.launched()

    # Rows

    def reset(self, call: str, tensors: Sequence[Rows], ids: torch.Tensor) -> None:
        """Reset the named rows of all tensors. One launch for each."""
        self.require(call, None, ids)
        for rows, word in tensors:
            if self.backend == "triton":
                kernels_of.load().slot_moves.fill(
                    rows, ids, word, keep=self.keep, record=self.deferral.record
                )
            else:
                torch_form.fill(rows, ids.to(torch.int64), word, self.keep)
        self.launched()

    def copy(
        self, call: str, tensors: Sequence[Rows], src: torch.Tensor, dst: torch.Tensor
    ) -> None:
        """Copy rows of all tensors. One launch for each."""
        self.require(call, src, dst)
        for rows, _ in tensors:
            if self.backend == "triton":
                kernels_of.load().slot_moves.move(
                    rows, rows, src, dst, last=self.last, keep=self.keep,
                    record=self.deferral.record,
                )  # fmt: skip
            else:
                torch_form.move(rows, src.to(torch.int64), dst.to(torch.int64), self.keep)
        self.launched()

    def put(self, call: str, rows: Rows, packed: torch.Tensor, ids: torch.Tensor) -> None:
        """Write packed words [layers, k, n] into rows that may be longer."""
        self.require(call, None, ids)
        if self.backend == "triton":
            kernels_of.load().slot_moves.move(
                rows.words, packed, None, ids, last=self.last, keep=self.keep,
                record=self.deferral.record,
            )  # fmt: skip
        else:
            torch_form.put(rows.words, packed, ids.to(torch.int64), self.keep)
        self.launched()

    def collect(self, call: str, rows: Rows, ids: torch.Tensor) -> torch.Tensor:
        """Rows in storage of their own; zeros where the call is refused."""
        self.require(call, ids, None)
        if self.backend != "triton":
            return torch_form.collect(rows.words, ids.to(torch.int64))
        layers, _, num_words = rows.words.shape
        out = torch.empty(
            (layers, ids.shape[0], num_words), dtype=rows.words.dtype, device=self.device
        )
        kernels_of.load().slot_moves.move(
            out, rows.words, ids, None, last=self.last, keep=self.keep,
            record=self.deferral.record,
        )  # fmt: skip
        self.launched()
        return out


def faults_of(
    source: list[int] | None, target: list[int] | None, last: int, keep: int
) -> list[Fault]:
    """Everything wrong with the ids of a call: the slow half of what kernels decide."""
    faults = []
    first_at: dict[int, int] = {}
    for at, slot in enumerate(target or ()):
        if slot != keep:
            first_at.setdefault(slot, at)
    pairs = zip(
        [keep] * len(target or ()) if source is None else source,
        [keep] * len(source or ()) if target is None else target,
        strict=True,
    )
    for at, (read, write) in enumerate(pairs):
        outside = [slot for slot in (write, read) if not 0 <= slot <= last]
        if outside:
            faults.append(Fault(OutOfRange, at, f"id {outside[0]} is outside 0..{last}"))
        if write == keep:
            continue
        if source is not None and read == keep:
            faults.append(Fault(Reserved, at, f"id {read} is reserved, and read from"))
        if first_at[write] < at:
            faults.append(
                Fault(Duplicate, at, f"id {write} was named at {first_at[write]} already")
            )
        elif source is not None and read in first_at:
            found = f"id {read} is written to at {first_at[read]} by the same call"
            faults.append(Fault(Duplicate, at, found))
    return faults
