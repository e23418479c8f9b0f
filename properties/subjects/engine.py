"""A small engine: what ties rows, an allocator, a pool of KV and a host tier together.

Requests with prompts are admitted, prefilled in chunks, decoded in padded batches, retracted to the
host, resumed under other slots, aborted and finished. It computes nothing: the KV of a token says
which request's it is, at which position, in which layer. It knows no tensors, so that reference and
subjects have one engine; what its parts are, `Parts` says.

Spec: `spec/core.md` §2, §4, §7, §8; `spec/interleave_hisparse_host_prefix.md` §4, §5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from properties.subjects.engine_parts import (
    BATCHES,
    NOISE,
    NOWHERE,
    Careless,
    Late,
    Load,
    Parts,
    Running,
    Saved,
    Token,
)


class Engine(Careless):
    """Requests by name. What is short is None, and changes nothing.

    Slots that were handed out come back as results, of a retraction host slots. `by_rows`: the
    allocator reads and writes the row table itself.
    """

    def __init__(self, parts: Parts, config: Any) -> None:
        self.parts = parts
        self.page_size: int = config.page_size
        self.pages: int = config.pages
        self.chunk, self.layers = config.chunk, config.layer_ids
        self.by_rows = config.by_rows
        self.running: dict[int, Running] = {}
        self.saved: dict[int, Saved] = {}
        self.loads: dict[int, Load] = {}
        #: aborted requests → slots that a transfer still writes to
        self.draining: dict[int, list[int]] = {}
        self.late: list[Late] = []
        self._poison_all()

    # Growth

    def admit(self, request: int, prompt: int) -> list[int] | None:
        """A row, and slots for the first chunk of a prompt, which is computed."""
        slots = self._begin(request, prompt, min(prompt, self.chunk))
        if slots is not None:
            self._compute(request, 0, slots)
        return slots

    def hit(self, request: int, like: int, tokens: int, prompt: int) -> list[int] | None:
        """A request that begins like another one: what that has written is copied, not computed."""
        slots = self._begin(request, prompt, tokens)
        if slots is not None:
            found = self._slots(like)[: min(tokens, self._written(like))]
            self.parts.move(slots[: len(found)], found)
            self._compute(request, len(found), slots[len(found) :])
        return slots

    def prefill(self, request: int) -> list[int] | None:
        """The next chunk of a prompt."""
        of = self.running[request]
        self.parts.take_row(of)  # who has a row keeps it
        start, end = of.length, min(of.length + self.chunk, of.prompt)
        if self.by_rows:
            slots = self.parts.extend_row(of.handle[0], start, end)
        else:
            slots = self.parts.extend(start, end, self._slots(request)[-1])
        if slots is not None:
            self._grow(of, slots)
            self._compute(request, start, slots)
        return slots

    def decode(self, requests: Sequence[int], lazy: bool) -> list[int] | None:
        """A token for each request; `lazy`: its KV is written by the next `flush`."""
        batch = [self.running[name] for name in requests]
        slots = self._next(batch)
        if slots is None:
            return None
        for of, slot in zip(batch, slots, strict=True):
            self._grow(of, [slot])
        self.late += [
            Late(of.handle, Token(name, of.length - 1))
            for name, of in zip(requests, batch, strict=True)
        ]
        if not lazy:
            self._write([self.late.pop() for _ in batch])
        return slots

    def flush(self) -> None:
        """What was to be written later is written, unless the row has gone to somebody else."""
        late, self.late = self.late, []
        self._write([each for each in late if self.parts.is_current(each.handle)])

    # Ends

    def finish(self, requests: Sequence[int], grouped: bool) -> None:
        """Rows and pages of requests go back; `grouped`: the pages together."""
        if grouped:
            with self.parts.free_group():
                self._release(requests)
        else:
            self._release(requests)

    def abort(self, request: int) -> None:
        """A request ends, wherever it is; pages that a transfer writes to stay until `drain`."""
        if request in self.saved:
            if host := self.saved.pop(request).host:
                self.parts.free_host(host)
        elif request in self.loads:
            slots = self._slots(request)
            self.parts.give_row(self.running.pop(request))
            if self.parts.in_transfer(slots):
                self.draining[request] = slots
            else:
                self._give(slots)
        else:
            self._release([request])

    def clear(self) -> None:
        """Everything is empty; no transfer may be under way."""
        self.parts.clear()
        self.running.clear()
        self.saved.clear()
        self._poison_all()

    # The host

    def retract(self, request: int) -> None:
        """A request goes to the host, as a copy of the pool's."""
        of, slots = self.running[request], self._slots(request)
        self._write_late(of)
        copy = self.parts.copy(slots)
        self.saved[request] = Saved(of.prompt, of.length, copy, [])
        self._release([request])

    def retract_to_host(self, request: int) -> list[int] | None:
        """A request goes to the host, to slots of the host tier, which are the result."""
        of, slots = self.running[request], self._slots(request)
        host = self.parts.alloc_host(self._paged(len(slots)))
        if host is not None:
            self._write_late(of)
            self.parts.backup(host[: len(slots)], slots)
            self.saved[request] = Saved(of.prompt, of.length, None, host)
            self._release([request])
        return host

    def resume(self, request: int) -> list[int] | None:
        """A retracted request comes back, under other slots."""
        if self.saved[request].host:
            slots = self.begin_resume(request)
            for _ in self.layers if slots is not None else ():
                self.load_layer(request)
            return slots
        return self._again(request, self.saved[request])

    def begin_resume(self, request: int) -> list[int] | None:
        """The same of a request in the host tier, whose layers arrive one by one."""
        host = self.saved[request].host
        slots = self._again(request, self.saved[request])
        if slots is not None:
            transfer = self.parts.begin_load(host[: len(slots)], slots)
            self.loads[request] = Load(transfer, host, slots, list(self.layers))
        return slots

    def load_layer(self, request: int) -> None:
        """The next layer arrives, also of one that was aborted: who copies doesn't know."""
        load = self.loads[request]
        load.transfer.layer(load.layers.pop(0))
        if not load.layers and request in self.running:
            del self.loads[request]
            load.transfer.finish()
            self.parts.free_host(load.host)

    def drain(self, request: int) -> None:
        """The transfer of an aborted request is over: now its pages go back."""
        load = self.loads.pop(request)
        load.transfer.cancel()
        self.parts.free_host(load.host)
        if slots := self.draining.pop(request, None):
            self._give(slots)

    # What they have in common

    def _next(self, batch: Sequence[Running]) -> list[int] | None:
        """A slot more for each request."""
        rows, lengths = [of.handle[0] for of in batch], [of.length + 1 for of in batch]
        if self.by_rows:
            return self.parts.decode_rows(rows, lengths)
        lines = self.parts.lines([(of.handle[0], of.length) for of in batch])
        return self.parts.decode(lengths, [line[-1] for line in lines])

    def _begin(self, request: int, prompt: int, count: int) -> list[int] | None:
        """A row and slots for the first tokens, or neither."""
        if not self.parts.free_rows():
            return None
        if self.by_rows:
            if self._paged(count) > self.parts.free_slots_left():
                return None
            of = self._in_row(request, prompt)
            slots = self.parts.extend_row(of.handle[0], 0, count)
        else:
            slots = self.parts.extend(0, count, -1)
        if slots is not None:
            self._grow(self.running.get(request) or self._in_row(request, prompt), slots)
        return slots

    def _in_row(self, request: int, prompt: int) -> Running:
        """A request gets a row."""
        of = self.running[request] = Running(prompt)
        self.parts.take_row(of)
        of.handle = self.parts.handle(of.kv.req_pool_idx)
        return of

    def _paged(self, count: int) -> int:
        """Slots of the pages of so many tokens."""
        return -(-count // self.page_size) * self.page_size

    def _again(self, request: int, saved: Saved) -> list[int] | None:
        """Row and slots of a retracted request, with the KV that was copied."""
        slots = self._begin(request, saved.prompt, saved.length)
        if slots is not None:
            del self.saved[request]
            if not saved.host:
                self.parts.restore(saved.copy, slots)
        return slots

    def _grow(self, of: Running, slots: list[int]) -> None:
        """New slots stand behind the others in the row."""
        if not self.by_rows:
            self.parts.put(of.handle, of.length, slots)
        of.kv.kv_allocated_len += len(slots)
        of.kv.holds_kv = True

    def _compute(self, request: int, start: int, slots: list[int]) -> None:
        """The KV of the tokens from a position on."""
        tokens = [Token(request, at) for at in range(start, start + len(slots))]
        if tokens:
            self.parts.store(slots, tokens)

    def _slots(self, request: int) -> list[int]:
        """A request's slots, by the table."""
        of = self.running[request]
        (found,) = self.parts.lines([(of.handle[0], of.length)])
        return found

    def _written(self, request: int) -> int:
        """How many of a request's first tokens have been written."""
        of = self.running[request]
        late = [each.token.position for each in self.late if each.handle == of.handle]
        return min(late, default=of.length)

    def _write(self, late: Sequence[Late]) -> None:
        """Writes through the table, in padded batches."""
        for at in range(0, len(late), BATCHES[-1]):
            part = late[at : at + BATCHES[-1]]
            padded = next(size for size in BATCHES if size >= len(part)) - len(part)
            lanes = [(each.handle[0], each.token.position) for each in part]
            tokens = [each.token for each in part] + [NOISE] * padded
            self.parts.store_lanes(lanes + [NOWHERE] * padded, tokens)

    def _write_late(self, of: Running) -> None:
        """What was to be written later for a request is written now."""
        self._write([each for each in self.late if each.handle == of.handle])
        self.late = [each for each in self.late if each.handle != of.handle]

    def _release(self, requests: Sequence[int]) -> None:
        for name in requests:
            slots, of = self._slots(name), self.running.pop(name)
            if self.by_rows:
                self.parts.free_row_of(of.handle, of.length)
                self._poison(slots)
            else:
                self._give(slots)
            self.parts.give_row(of)

    def _give(self, slots: list[int]) -> None:
        """Pages go back, poisoned."""
        self.parts.free(slots)
        self._poison(slots)

    def _poison(self, slots: list[int]) -> None:
        size = self.page_size
        pages = dict.fromkeys(slot // size for slot in slots)
        self.parts.poison([at for page in pages for at in range(page * size, (page + 1) * size)])

    def _poison_all(self) -> None:
        size = self.page_size
        self.parts.poison(range(size, (self.pages + 1) * size))
