"""The protocol "slot-indexed state": what a request keeps in its state slot, and moves with it.

A pool of recurrent states has siblings, states of other kinds under the same slots. Whatever
happens to a slot (clear, copy, to the host and back) happens to all of them in one call. Slot 0
belongs to padded lanes: as a target it is legal, and left as it is. Spec:
`spec/pools_states_sizing.md` §5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from impl import checks
from impl.errors import BadLengths, PoolError, WrongDevice, WrongDtype, WrongShape
from impl.states.moves import PADDING_SLOT, Moves, Rows


class TransferEntry(NamedTuple):
    """One tensor [slots, …] of a layer, as a transfer between machines sees it."""

    name: str
    tensor: torch.Tensor
    #: the axis of a slot that ranks share; None where each has all of it
    slice_axis: int | None
    layer_id: int


class SlotState(ABC):
    """A state under the slots of a pool of `size`; without tensors it is disabled.

    A disabled one does nothing, and a pool doesn't register it. Ids are int32 or int64 tensors
    [k] on `device`; `reset_slots` and `copy_slots` take slot 0 as a padded lane's target. Raises
    `OutOfRange`, `Reserved`, `Duplicate` (a target twice, or a source that the call writes to),
    `BadLengths`, `WrongDtype`, `WrongDevice`, `WrongShape`, before anything is written; with
    `backend="triton"` those of values later, see `check`. §5.
    """

    size: int
    device: torch.device
    _moves: Moves

    def _prepare(
        self, size: Any, device: torch.device | str, *, backend: str, validate: bool
    ) -> None:
        """What all constructors do first."""
        self.size = checks.pool_size(size)
        # a tensor's device has an index where the name has none
        self.device = torch.empty((), device=device).device
        self._moves = Moves(
            self.size, PADDING_SLOT, device=self.device, backend=backend, validate=validate
        )

    @property
    @abstractmethod
    def enabled(self) -> bool:
        """Whether there is any state."""

    @abstractmethod
    def _tensors(self) -> Sequence[torch.Tensor]:
        """The tensors that have a row for each slot, in the order of host payloads."""

    @abstractmethod
    def _slot_rows(self) -> Sequence[Rows]:
        """Their rows, and what reset ones hold."""

    @abstractmethod
    def _axis(self) -> int:
        """Which axis of them the slots are."""

    @abstractmethod
    def iter_transfer_state_entries(self) -> Iterator[TransferEntry]:
        """What a transfer moves, layer by layer. §3."""

    def reset_slots(self, indices: torch.Tensor) -> None:
        """The named slots as if nobody had ever used them. O(bytes of the slots). §5."""
        if self.enabled:
            self._moves.reset("reset_slots", self._slot_rows(), indices)

    def copy_slots(self, src_index: torch.Tensor, dst_index: torch.Tensor) -> None:
        """The state of each source under its target. O(bytes of the slots). §5."""
        if self.enabled:
            self._moves.copy("copy_slots", self._slot_rows(), src_index, dst_index)

    def get_cpu_slots(self, indices: torch.Tensor) -> Any:
        """The state of the named slots on the host, storage of its own; None if disabled.

        Waits for the device. `Reserved` for slot 0. §5.
        """
        if not self.enabled:
            return None
        self._moves.require_held("get_cpu_slots", indices, once=False)
        return self._saved(indices)

    def load_cpu_slots(self, data: Any, indices: torch.Tensor) -> None:
        """What `get_cpu_slots` gave, under the same or other slots. Waits for the device. §5."""
        if not self.enabled:
            return
        slots = self._moves.require_held("load_cpu_slots", indices, once=True)
        checks.raise_first(self._payload_faults(data, len(slots)))
        self._restore(data, indices)

    # What a pool does for its siblings, having looked at the ids

    def _saved(self, indices: torch.Tensor) -> Any:
        """`get_cpu_slots` of ids that are known to be good."""
        (tensor,) = self._tensors()
        return to_host(tensor, indices, self._axis())

    def _restore(self, data: Any, indices: torch.Tensor) -> None:
        """`load_cpu_slots` of data and ids that are known to be good."""
        (tensor,) = self._tensors()
        from_host(tensor, data, indices, self._axis())

    def _payload_faults(self, data: Any, count: int) -> list[PoolError | None]:
        """What is wrong with `data` as the payload of `count` slots."""
        (tensor,) = self._tensors()
        return [payload_fault(type(self).__name__, data, tensor, self._axis(), count)]

    def get_kv_size_bytes(self) -> int:
        """Bytes of all tensors of the state, draft steps included. O(1). §3."""
        return sum(tensor.nbytes for tensor in self._all_tensors())

    @abstractmethod
    def _all_tensors(self) -> Sequence[torch.Tensor]:
        """Each tensor that takes memory."""

    def check(self) -> None:
        """Wait for all calls so far, and raise the first fault of theirs."""
        self._moves.settle()

    def recover(self) -> None:
        """Go on behind a fault: its call, and those after it, have done nothing."""
        self._moves.recover()

    def snapshot(self) -> dict[str, Any]:
        """All content as plain Python, a list for each row. O(bytes)."""
        self.check()
        return {"size": self.size, "content": [plain_rows(each) for each in self._all_tensors()]}

    def audit(self) -> list[str]:
        """What is wrong by its own account: a line each, [] when healthy. O(slots)."""
        self.check()
        return self._moves.audit() + slot_count_faults(
            type(self).__name__, self._tensors(), self._axis(), self.size
        )


def to_host(tensor: torch.Tensor, indices: torch.Tensor, axis: int) -> torch.Tensor:
    """The named rows along an axis on the host, in storage of their own."""
    return tensor.index_select(axis, indices.to(torch.int64)).cpu()


def from_host(tensor: torch.Tensor, data: torch.Tensor, indices: torch.Tensor, axis: int) -> None:
    """Rows that came from `to_host`, along an axis."""
    tensor.index_copy_(axis, indices.to(torch.int64), data.to(tensor.device))


def payload_fault(
    name: str, data: Any, tensor: torch.Tensor, axis: int, count: int
) -> PoolError | None:
    """What is wrong with `data` as rows of a tensor along an axis."""
    if not isinstance(data, torch.Tensor) or data.dtype != tensor.dtype:
        found = data.dtype if isinstance(data, torch.Tensor) else type(data).__name__
        return WrongDtype(
            f"{name}: a payload of {found}, {tensor.dtype} is due. Load what it gave."
        )
    if data.device.type != "cpu":
        return WrongDevice(f"{name}: a payload on {data.device}. Payloads are on the host.")
    due = list(tensor.shape)
    due[axis] = count
    if data.dim() == len(due) and data.shape[axis] != count:
        due[axis] = data.shape[axis]
        if list(data.shape) == due:
            found = f"{name}: a payload of {data.shape[axis]} slots for {count}. Pair them."
            return BadLengths(found)
        due[axis] = count
    if list(data.shape) != due:
        return WrongShape(f"{name}: a payload of shape {list(data.shape)}, {due} is due.")
    return None


def plain_rows(tensor: torch.Tensor) -> list[Any]:
    """A tensor as nested lists, [layer][slot] or [slot], each row flat."""
    found: list[Any] = tensor.flatten(min(2, tensor.dim() - 1)).tolist()
    return found


def slot_count_faults(
    name: str, tensors: Sequence[torch.Tensor], axis: int, size: int
) -> list[str]:
    """Tensors that don't have a row for each slot and the padding."""
    return [
        f"I29: {name}: slots up to {size} are handed out, a tensor ends at {each.shape[axis] - 1}"
        for each in tensors
        if each.shape[axis] != size + 1
    ]
