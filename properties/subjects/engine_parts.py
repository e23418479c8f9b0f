"""What the small engine works with, and what it notes of its requests.

`Parts` are rows, an allocator, a pool of KV and a host tier, of the reference or of a subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

#: how many lanes a decode has; those that are left over are padded
BATCHES = (1, 2, 4)
#: what a padded lane aims at: row 0, whose slots are 0
NOWHERE = (0, 0)


class Token(NamedTuple):
    """Whose KV it is, and at which position."""

    request: int
    position: int


#: what a padded lane is given
NOISE = Token(-1, -1)


class Transfer(Protocol):
    """A load under way, layer by layer."""

    def layer(self, layer: int) -> None: ...

    def finish(self) -> None: ...

    def cancel(self) -> None: ...


class Parts(Protocol):
    """What an engine works with; slots and rows are plain ints."""

    def free_rows(self) -> int: ...

    def take_row(self, request: Any) -> None: ...

    def give_row(self, request: Any) -> None: ...

    def handle(self, row: int) -> tuple[int, int]: ...

    def is_current(self, handle: tuple[int, int]) -> bool: ...

    def put(self, handle: tuple[int, int], start: int, slots: list[int]) -> None: ...

    def lines(self, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Of each (row, length) the slots that stand in the table."""

    def extend(self, prefix: int, length: int, last: int) -> list[int] | None: ...

    def decode(self, lengths: list[int], lasts: list[int]) -> list[int] | None: ...

    def free(self, slots: list[int]) -> None: ...

    def free_slots_left(self) -> int: ...

    def extend_row(self, row: int, prefix: int, length: int) -> list[int] | None:
        """The same by the table, which has the new slots then."""

    def decode_rows(self, rows: list[int], lengths: list[int]) -> list[int] | None: ...

    def free_row_of(self, handle: tuple[int, int], length: int) -> None:
        """All pages of a row."""

    def free_group(self) -> AbstractContextManager[Any]: ...

    def store(self, slots: list[int], tokens: Sequence[Token]) -> None:
        """The KV of tokens in all layers."""

    def store_lanes(self, lanes: list[tuple[int, int]], tokens: Sequence[Token]) -> None:
        """The same where the table says, by (row, position); slot 0 is nobody's."""

    def move(self, target: list[int], source: list[int]) -> None: ...

    def poison(self, slots: Sequence[int]) -> None:
        """Whoever reads these slots before he has written them sees it."""

    def copy(self, slots: list[int]) -> Any: ...

    def restore(self, copy: Any, slots: list[int]) -> None: ...

    def alloc_host(self, count: int) -> list[int] | None: ...

    def free_host(self, host: list[int]) -> None: ...

    def backup(self, host: list[int], slots: list[int]) -> None: ...

    def begin_load(self, host: list[int], slots: list[int]) -> Transfer: ...

    def in_transfer(self, slots: list[int]) -> bool:
        """Whether a transfer reads or writes some of these slots."""

    def clear(self) -> None:
        """Rows, slots and host slots are all free."""


class Running:
    """A request that has a row: what the row pool sees of it, and its prompt."""

    def __init__(self, prompt: int) -> None:
        self.kv = SimpleNamespace(req_pool_idx=None, kv_allocated_len=0, holds_kv=False)
        self.prompt = prompt
        self.handle = NOWHERE

    @property
    def length(self) -> int:
        """Tokens that have slots."""
        found: int = self.kv.kv_allocated_len
        return found


class Saved(NamedTuple):
    """A retracted request: a copy of the pool's, or host slots of the host tier's."""

    prompt: int
    length: int
    copy: Any
    host: list[int]


class Late(NamedTuple):
    """KV of a token that is written later, through the row that its request had."""

    handle: tuple[int, int]
    token: Token


@dataclass
class Load:
    """A request's KV on its way from the host."""

    transfer: Transfer
    host: list[int]
    slots: list[int]
    layers: list[int]


class Careless:
    """What a caller does who is wrong: each call has to be refused, and to change nothing."""

    parts: Parts
    saved: dict[int, Saved]

    def free_slots(self, slots: list[int]) -> None:
        """Slots of a page that nobody has go back."""
        self.parts.free(slots)

    def free_row(self, row: int) -> None:
        """A row that nobody has goes back."""
        request = Running(0)
        request.kv.req_pool_idx = row
        self.parts.give_row(request)

    def write_row(self, row: int, generation: int, slot: int) -> None:
        """Something is written to a row that was another's, or is nobody's any more."""
        self.parts.put((row, generation), 0, [slot])

    def write_slots(self, slots: list[int]) -> None:
        """KV is written beyond the pool."""
        self.parts.store(slots, [NOISE] * len(slots))

    def copy_slots(self, slots: list[int]) -> None:
        """Slots of the reserved page, or beyond the pool, are copied."""
        self.parts.copy(slots)

    def load_slots(self, request: int, slots: list[int]) -> None:
        """The copy of a retracted request is loaded to slots that aren't meant for it."""
        self.parts.restore(self.saved[request].copy, slots)

    def free_host_slots(self, host: list[int]) -> None:
        """Host slots go back that nobody has, or that are on their way."""
        self.parts.free_host(host)

    def backup_slots(self, host: list[int], slots: list[int]) -> None:
        """Slots are backed up under host slots that nobody has, or that are read."""
        self.parts.backup(host, slots)
