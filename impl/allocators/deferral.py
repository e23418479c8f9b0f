"""Faults that reach the host later: the error record, the journal, and the way back.

A call whose kernels find a fault fills the record on the device; from then on every kernel does
nothing and returns zeros. The record comes to the host by a copy that nobody waits for. The host's
counts have run ahead meanwhile: the journal holds what they were before each call that isn't known
to be clear yet, so that `recover` can put them back. Spec: `spec/core.md` §4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from impl.errors import PoolError
from impl.kernels.arrays import HostArray
from impl.kernels.device.pages import describe, kind_of, read


class Entry(NamedTuple):
    """The host's fields as they were just before a call."""

    number: int
    call: str
    fields: tuple[Any, ...]


class Fault(NamedTuple):
    """A fault that has arrived."""

    number: int
    kind: type[PoolError]
    text: str


class Mailbox(ABC):
    """Copies of a record on their way to the host, one at a time."""

    def __init__(self, record: torch.Tensor) -> None:
        self.record = record
        #: number of the call behind which the copy under way was taken; 0 for none
        self.number = 0

    def post(self, number: int) -> None:
        """Send a copy of the record behind call `number`, unless one is under way."""
        if not self.number:
            self.number = number
            self._send()

    def empty(self) -> None:
        """Forget the copy under way."""
        self.number = 0

    @abstractmethod
    def _send(self) -> None:
        """Copy the record without waiting."""

    @abstractmethod
    def take(self) -> list[int] | None:
        """The copy, if one has arrived."""


class HostMailbox(Mailbox):
    """On the CPU a copy arrives at once, or after `delay` more looks, as it would on a device."""

    def __init__(self, record: torch.Tensor, delay: int = 0) -> None:
        super().__init__(record)
        self.delay = delay

    def _send(self) -> None:
        self._copy: list[int] = self.record.tolist()
        self._looks_left = self.delay

    def take(self) -> list[int] | None:
        if not self.number:
            return None
        if self._looks_left:
            self._looks_left -= 1
            return None
        self.number = 0
        return self._copy


class CudaMailbox(Mailbox):
    """By way of pinned memory and an event."""

    def __init__(self, record: torch.Tensor) -> None:
        super().__init__(record)
        self._pinned = torch.zeros(record.shape, dtype=record.dtype, pin_memory=True)
        self._event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def _send(self) -> None:
        self._pinned.copy_(self.record, non_blocking=True)
        self._event.record()

    def take(self) -> list[int] | None:
        if not self.number or not self._event.query():
            return None
        self.number = 0
        numbers: list[int] = self._pinned.tolist()
        return numbers


def mailbox(record: torch.Tensor) -> Mailbox:
    """The mailbox for a record's device."""
    return CudaMailbox(record) if record.device.type == "cuda" else HostMailbox(record)


#: the number of all calls that a graph replays
CAPTURED = -1


class Journal:
    """Calls that aren't known to be clear, the oldest first."""

    def __init__(self) -> None:
        self.number = 0
        self._entries: deque[Entry] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def begin(self, call: str, fields: tuple[Any, ...]) -> int:
        """The number of a new call, before which the host had these `fields`."""
        self.number += 1
        self._entries.append(Entry(self.number, call, fields))
        return self.number

    def clear_up_to(self, number: int) -> None:
        """Calls up to `number` had no fault."""
        while self._entries and self._entries[0].number <= number:
            self._entries.popleft()

    def find(self, number: int) -> Entry:
        """The entry of a call that isn't known to be clear."""
        if number == CAPTURED:
            return Entry(number, "a captured call", ())
        return next(entry for entry in self._entries if entry.number == number)

    def clear(self) -> None:
        """No call is in doubt."""
        self._entries.clear()


def packed(device: torch.device, numbers: Sequence[HostArray]) -> torch.Tensor:
    """Host arrays int64 [n] as one tensor [k, n] on the device, by a copy without waiting."""
    made = torch.from_numpy(np.stack(numbers))
    if device.type != "cuda":
        return made
    return made.pin_memory().to(device, non_blocking=True)


class Deferral:
    """The faults of one book: on their way, arrived, taken back.

    `way_on` says, at the end of an error, how to go on behind it.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        page_size: int,
        validate: bool,
        way_on: str = "recover() goes back to just before it, clear() starts anew",
    ) -> None:
        self.record = torch.zeros(8, dtype=torch.int64, device=device)
        self.mailbox = mailbox(self.record)
        self.journal = Journal()
        self._page_size = page_size
        self._validate = validate
        self._way_on = way_on
        self._fault: Fault | None = None
        #: whether a graph was captured that may be replayed at any time
        self._is_captured = False

    def captured(self) -> int:
        """The number of a call under stream capture, which happens when a graph is replayed."""
        self._is_captured = True
        return CAPTURED

    def begin(self, call: str, fields: tuple[Any, ...]) -> int:
        """The number of a call about to be launched; the host has these `fields` before it."""
        if not self._validate:
            # nothing is deferred but a count, which is looked at within its call
            self.journal.clear()
        return self.journal.begin(call, fields)

    def launched(self) -> None:
        """The call's kernels are on their way."""
        if self._validate:
            self.mailbox.post(self.journal.number)

    def poll(self) -> None:
        """Raise a fault that has arrived, without waiting for others."""
        self._raise_again()
        number = self.mailbox.number
        numbers = self.mailbox.take()
        if numbers is None:
            return
        if numbers[0]:
            self._fail(numbers)
        self.journal.clear_up_to(number)
        if self.journal:
            self.mailbox.post(self.journal.number)

    def check(self) -> None:
        """Wait for all calls so far, and raise the first fault of theirs."""
        self._raise_again()
        if not self.journal and not self._is_captured:
            return
        numbers = self.record.tolist()
        self.mailbox.empty()
        if numbers[0]:
            self._fail(numbers)
        self.journal.clear()

    def refusal_of(self, number: int) -> PoolError | None:
        """What is wrong with call `number`, which waited for its kernels; nothing is deferred.

        Raises the fault of an earlier call. After an error `recover`, as if it had come at once.
        """
        try:
            self.check()
        except PoolError:
            if self._fault is None or self._fault.number != number:
                raise
            return self._fault.kind(f"{self._fault.text}.")
        return None

    def recover(self) -> tuple[Any, ...] | None:
        """The fields before the faulty call, None if there is none; the device goes on."""
        self.mailbox.empty()
        found = read(self.record.tolist())
        self._fault = None
        fields = None
        if found is not None:
            fields = self.journal.find(found.seq).fields
            self.record.zero_()
        self.journal.clear()
        return fields

    def forget(self) -> None:
        """As if nothing had been wrong, for a pool that starts anew."""
        self.mailbox.empty()
        self.record.zero_()
        self.journal.clear()
        self._fault = None

    def _raise_again(self) -> None:
        if self._fault is not None:
            number, kind, text = self._fault
            raise kind(
                f"{text} (call {number} of this pool). Calls after it did nothing; {self._way_on}."
            )

    def _fail(self, numbers: Sequence[int]) -> None:
        found = read(numbers)
        assert found is not None, "only a filled record is a fault"
        call = self.journal.find(found.seq).call
        # token pools are given ids of slots, which are pages
        by_slot = self._page_size if call != "free_page_ids" else 1
        text = f"{call}: {describe(found, page_size=by_slot)}"
        self._fault = Fault(found.seq, kind_of(found), text)
        self._raise_again()
