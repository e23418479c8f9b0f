"""Writes the calls of a live allocator as a trace, and checks who owns what as it goes.

    with properties.record(allocator, path):
        ...                                     # code that knows nothing of us

    recorder = properties.watch(allocator, path, ring=10_000)   # in a running engine

An allocator of ours or of SGLang is recognised. Its methods are wrapped on the object itself; calls
that they make of each other are not recorded. What is written is a trace of `raw` commands
(`properties.systems.raw`), one JSON line each behind a head, so that a recording that was cut off
can be read as far as it goes. A ring keeps the last calls only, and is written when something is
wrong. Ids are read back from the device for each call, which waits for it: `Recorder.overhead` says
what all this cost.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from properties.commands import ALLOCATING, Call
from properties.invariants import Violation, violation
from properties.recording import File, Namer, family_of, plain, preamble
from properties.subjects import UnusableSubject
from properties.systems.raw import BY_PAGES, BY_SLOTS, METHODS, RawSide, released

Original = Callable[..., Any]
MOST_NAMED = 16  # ids of a call that a message repeats


@dataclass
class Part:
    """Calls as they came, behind the state they began in: what a ring is made of."""

    shown: dict[str, Any]
    calls: list[tuple[Call, Any]] = field(default_factory=list)


class Recorder:
    """A recording that is under way: `stop` ends it and gives the allocator its methods back."""

    def __init__(self, allocator: Any, path: Path | str, *, ring: int | None, raises: bool) -> None:
        """Begins to record into `path`: all calls, or at least the last `ring` ones.

        A broken invariant is raised from the call that breaks it, or told as a warning if not
        `raises`. UnusableSubject for an allocator that nobody here knows, one with an open group,
        or a ring of less than one call; OSError where the file can't be written.
        """
        if ring is not None and ring < 1:
            raise UnusableSubject(f"a ring of {ring} calls; at least 1 is allowed")
        self.allocator = allocator
        self.path = Path(path)
        self.family = family_of(allocator)
        self.raises = raises
        #: the first invariant that was broken, and whether anything went wrong
        self.violation: Violation | None = None
        self.failed = False
        #: calls seen, those among them that can't be written, seconds beside and inside them
        self.calls, self.unrecorded = 0, 0
        self.seconds_beside, self.seconds_inside = 0.0, 0.0
        self._ring = ring
        shown = self.family.observe()
        self._parts = [Part(shown)]
        self._begin(shown)
        self._inside = False
        if ring is None:
            self._namer = Namer(self.family, shown)
            self._file = File(self.path, self.family, self._namer.config)
            for each in self._namer.first:
                self._file.write(each.to_json())
        self._originals: dict[str, Original] = {}
        for name in sorted(METHODS):
            if hasattr(allocator, name):
                self._originals[name] = getattr(allocator, name)
                setattr(allocator, name, self._wrapped(name, self._originals[name]))

    def _begin(self, shown: dict[str, Any]) -> None:
        """The ledger as it is with these lists: who had a page before has it in common."""
        size = self.family.config.page_size
        self.side = RawSide(shown["size"] // size, size)
        slots = list(range(size, shown["size"] // size * size + size))
        for call in preamble(self.family.config, shown):
            self.side.book(call, slots, False)
        self._group = False
        #: by page the calls that gave it and that took it back last
        self._gave: dict[int, int] = {}
        self._took: dict[int, int] = {}

    def stop(self) -> None:
        """Ends the recording; a file that was to be written is complete then."""
        for name in self._originals:
            delattr(self.allocator, name)
        self._originals.clear()
        number = self.violation.number if self.violation else None
        if self._ring is None:
            self._file.close(number)
        elif self.failed:
            self._write_ring(number)

    def _write_ring(self, number: str | None) -> None:
        calls = [item for part in self._parts for item in part.calls]
        namer = Namer(self.family, self._parts[0].shown)
        file = File(self.path, self.family, namer.config)
        for each in namer.first:
            file.write(each.to_json())
        for i, (call, value) in enumerate(calls):
            wrong = number or "" if i == len(calls) - 1 else ""
            file.write(namer.command(call, wrong).to_json())
            if value is not None:
                namer.served(call, value)
        file.close(number)

    @property
    def overhead(self) -> str:
        """What recording cost, in words."""
        calls = max(1, self.calls)
        left_out = f", {self.unrecorded:,} left out" if self.unrecorded else ""
        return (
            f"{self.calls:,} calls recorded{left_out}: {self.seconds_beside / calls * 1e6:.1f} µs"
            f" a call beside {self.seconds_inside / calls * 1e6:.1f} µs of the call itself"
        )

    # ---- one call --------------------

    def _wrapped(self, name: str, original: Original) -> Original:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return original(*args, **kwargs)
            self._inside = True
            try:
                return self._call(name, original, args, kwargs)
            finally:
                self._inside = False

        return call

    def _call(self, name: str, original: Original, args: Any, kwargs: Any) -> Any:
        clock = time.perf_counter
        begun = clock()
        self.calls += 1
        try:
            given, narrow = plain(original, args, kwargs)
            call = Call(name, given, "int32" if narrow else "int64")
            faults = self._release_faults(call)
        except (TypeError, ValueError, AttributeError):
            # What the allocator makes of such arguments is its affair.
            self.unrecorded += 1
            return original(*args, **kwargs)
        self._note(call, faults)
        called = clock()
        value = original(*args, **kwargs)
        returned = clock()
        if value is not None or name not in ALLOCATING:
            self._served(call, value.tolist() if name in ALLOCATING else [])
        self.seconds_inside += returned - called
        self.seconds_beside += called - begun + clock() - returned
        return value

    def _release_faults(self, call: Call) -> list[tuple[str, str]]:
        """I3, I4, I5: ids that are about to be given back, and that nobody has."""
        if self.violation is not None or call.method not in BY_SLOTS | BY_PAGES:
            return []
        pages = released(call, self.side.page_size)
        if self._group and call.method in BY_SLOTS:
            pages = [page for page in pages if page not in self.side.parked_by_slots]
        gone = [page for page in pages if not self.side.ledger.owns(page)]
        return self.side.ledger.release_pages(gone)

    def _note(self, call: Call, faults: list[tuple[str, str]]) -> None:
        """Writes a call before it is made; raises what is wrong about it."""
        self._parts[-1].calls.append((call, None))
        wrong = faults[0][0] if faults else ""
        if self._ring is None:
            self._file.write(self._namer.command(call, wrong).to_json())
            self._parts[-1].calls.clear()
        if faults:
            self._blame(call, *faults[0])

    def _served(self, call: Call, value: list[int]) -> None:
        """Books what a call did; what it gave has its names from now on."""
        if self._ring is None:
            self._namer.served(call, value)
        else:
            self._parts[-1].calls[-1] = (call, value)
        if self.violation is None:
            faults = self.side.book(call, value, self._group)
            size = self.side.page_size
            last = self._gave if call.method in ALLOCATING else self._took
            for page in {v // size for v in value} if value else released(call, size):
                last[page] = self.calls
            if faults:
                self._blame(call, *faults[0])
        if call.method in ("free_group_begin", "free_group_end", "clear"):
            self._group = call.method == "free_group_begin"
        if self._ring is not None and len(self._parts[-1].calls) >= self._ring and not self._group:
            self._parts = [self._parts[-1], Part(self.family.observe())]

    def _blame(self, call: Call, number: str, message: str) -> None:
        """The first broken invariant: the call, its ids, and who had them."""
        named = [f"{key}={_short(value)}" for key, value in call.args.items()]
        pages = [int(word) for word in message.replace(":", "").split() if word.isdecimal()][:1]
        history = [f"given by call {self._gave[page]}" for page in pages if page in self._gave]
        history += [
            f"taken back by call {self._took[page]}" for page in pages if page in self._took
        ]
        self.violation = violation(
            number,
            f"call {self.calls}, {call.method}({', '.join(named)}): {message}"
            + (f" ({', '.join(history)})" if history else ""),
        )
        self.failed = True
        if self.raises:
            raise self.violation
        warnings.warn(f"{self.violation}; recording into {self.path}", stacklevel=6)


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > MOST_NAMED:
        return f"[{', '.join(map(str, value[:MOST_NAMED]))}, … {len(value)}]"
    return str(value)


def watch(allocator: Any, path: Path | str, *, ring: int | None = None) -> Recorder:
    """Records a running engine's allocator until `stop`; what is wrong is told as a warning."""
    return Recorder(allocator, path, ring=ring, raises=False)


@contextmanager
def record(allocator: Any, path: Path | str, *, ring: int | None = None) -> Iterator[Recorder]:
    """Records what happens inside the block; what is wrong is raised from the call that is.

    Says at the end what recording cost. A ring is written when the block ends in an exception.
    """
    recorder = Recorder(allocator, path, ring=ring, raises=True)
    try:
        yield recorder
    except BaseException:
        recorder.failed = True
        raise
    finally:
        recorder.stop()
        print(recorder.overhead)
