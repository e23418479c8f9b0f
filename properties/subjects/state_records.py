"""Request records and state bytes for both sides of the hybrid row system.

A call names requests; here their records live from one call to the next, as an engine's do. What a
forward pass writes is written here too, as a tag that says whose state it is and of which step:
behind the deferred work of a first extend, and before a step is booked as tracked. Slots that are
free are poisoned. Spec: `spec/pools_states_sizing.md` §4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

#: the fields of a record that are slots or lists of slots
SLOTS = ("mamba_pool_idx", "mamba_ping_pong_track_buffer", "mamba_cow_src_index")
#: the fields that the host reads as they are
PLAIN = (
    "mamba_ping_pong_empty", "mamba_next_track_idx", "mamba_last_track_idx",
    "mamba_last_track_seqlen", "mamba_prev_track_seqlen", "mamba_needs_clear",
)  # fmt: skip
# What lies in a slot that nobody has, and that nobody may ever see.
POISON = -7
# Tags tell requests and steps apart: so many steps to a request.
STEPS = 1000


class Record:
    """What a request of a hybrid model knows of its row and its state."""

    def __init__(self) -> None:
        self.req_pool_idx: int | None = None
        self.kv_allocated_len = 1
        self.mamba_needs_clear = False
        for name in (*SLOTS, *PLAIN[:-1]):
            setattr(self, name, None)

    @property
    def holds_kv(self) -> bool:
        return self.req_pool_idx is not None

    @property
    def holds_mamba(self) -> bool:
        return bool(self.mamba_pool_idx is not None)  # type: ignore[attr-defined]


def as_it_is(value: Any) -> Any:
    """A slot, or a list of them, of a side that keeps them as plain Python."""
    return value


@dataclass
class Records:
    """The requests of one side by name; `plain` makes its slots plain Python."""

    plain: Callable[[Any], Any] = as_it_is
    kept: dict[int, Any] = field(default_factory=dict)
    #: requests of before the last `clear`, which know of rows and slots that aren't theirs
    stale: dict[int, Any] = field(default_factory=dict)

    def of(self, name: int) -> Any:
        """The request called `name`, the same object at every call."""
        if name in self.stale:
            return self.stale[name]
        if name not in self.kept:
            self.kept[name] = SimpleNamespace(kv=Record())
        return self.kept[name]

    def arguments(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the requests themselves instead of their names."""
        made = dict(args)
        if "reqs" in args:
            made["reqs"] = [self.of(name) for name in args["reqs"]]
        if "req" in args:
            made["req"] = self.of(args["req"])
        return made

    def tidy(self, cleared: bool) -> None:
        """Behind a call: requests that know of nothing are gone, behind a `clear` all are."""
        for name in [name for name in self.kept if not any(self.shown(name))]:
            del self.kept[name]
        if cleared:
            self.stale.update(self.kept)
            self.kept.clear()

    def shown(self, name: int) -> tuple[Any, ...]:
        """A record as plain Python: its row, its slots, and what the host reads of it."""
        kv = self.of(name).kv
        state, buffer, source = (self.plain(getattr(kv, each)) for each in SLOTS)
        if isinstance(source, list):
            (source,) = source
        flags = kv.mamba_ping_pong_empty
        rest = [getattr(kv, each) for each in PLAIN[1:]]
        flags = None if flags is None else list(flags)
        return (kv.req_pool_idx, state, buffer, source, flags, *rest)

    def slots(self, name: int) -> list[int]:
        """The slot of a request's state and the places of its buffer, -1 where there is none."""
        _, state, buffer, *_ = self.shown(name)
        return [-1 if state is None else state, *(buffer or ())]

    def all(self) -> dict[int, tuple[Any, ...]]:
        """Every request that knows of something."""
        shown = {name: self.shown(name) for name in sorted(self.kept)}
        return {name: record for name, record in shown.items() if any(record)}


class Forward:
    """What forward passes do to the bytes, around the calls that say that there was one."""

    def __init__(self, records: Records, write: Callable[[Sequence[int], int], None]) -> None:
        self.records = records
        self.write = write
        #: slots that are free and poisoned, into which nobody writes
        self.poisoned: frozenset[int] = frozenset()

    def before(self, method: str, args: Mapping[str, Any]) -> None:
        """A step has been tracked: its state lies in the next place."""
        if method != "mamba_track_boundary":
            return
        kv = self.records.of(args["req"]).kv
        buffer = self.records.plain(kv.mamba_ping_pong_track_buffer)
        place, length = kv.mamba_next_track_idx, args["seq_len"]
        if buffer is None or type(length) is not int or length < 0 or buffer[place] < 1:
            return  # refused
        before = kv.mamba_last_track_seqlen
        if before is None or length > before:
            self.write([buffer[place]], tag(args["req"], length))

    def poison(self, free: Iterable[int]) -> None:
        """Nobody may see what lies in these slots, and all others are somebody's."""
        slots = frozenset(free)
        if fresh := slots - self.poisoned:
            self.write(sorted(fresh), POISON)
        self.poisoned = slots


def tag(name: int, length: int) -> int:
    """What a state is: whose, behind how many tokens."""
    return name * STEPS + length
