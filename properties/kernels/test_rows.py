"""Kernels that go through the row table: what they read, write, refuse, and leave alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch

from impl.allocators.states import FREE
from impl.kernels.device.extend import SCRATCH_ROWS
from impl.kernels.device.release import Target
from properties.kernels.guards import Guards
from properties.kernels.rig import Five, Rig, Told, run_expects
from reference.refusal import KINDS, Refused

PAGE_SIZES = (1, 3, 4, 16)
NUM_ROWS, WIDTH = 7, 70
INTS = (torch.int32, torch.int64)
Fault = tuple[str, int]


class Rows:
    """A rig, a table with guards on both sides of each row, and plain lists that say the same."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"rows {seed}")
        self.size = PAGE_SIZES[seed % len(PAGE_SIZES)]
        self.rig = Rig(self.rng.randint(20, 40), self.size)
        self.lines = [[0] * WIDTH for _ in range(NUM_ROWS)]
        self.table = self.rig.books.rect("table", self.lines, torch.int32)
        self.lens = [0] * NUM_ROWS
        self.since = [1] * NUM_ROWS
        self.broken: list[tuple[int, int, int]] = []
        self.outcomes = {"served": 0, "refused": 0}

    def compare(
        self,
        faults: list[Fault],
        act: Callable[[], list[int] | None],
        launch: Callable[[Guards, int], torch.Tensor | None],
        told: Told,
    ) -> list[int] | None:
        """The reference's fault or one of `faults`, the smallest; or the reference's slots."""

        def want() -> list[int] | None:
            if faults:
                before = copy.deepcopy(self.rig.model)
                try:
                    act()
                except Refused as refused:
                    faults.append((refused.kind, refused.index))
                self.rig.model = before
                kind, index = min(faults, key=lambda each: (KINDS.index(each[0]), each[1]))
                raise Refused(kind, index)
            return act()

        found = self.rig.call(want, launch, "sums", told=told)
        self.outcomes["served" if found is not None else "refused"] += 1
        return found

    def require_equal(self) -> None:
        """State and table are the plain lists'."""
        assert self.table.tolist() == self.lines
        self.rig.require_equal()

    def alloc(self, *, decodes: bool) -> None:
        """An extend or decode of some rows, often with something wrong."""
        rng, rig, size = self.rng, self.rig, self.size
        rows = rng.sample(range(1, NUM_ROWS), rng.randint(1, NUM_ROWS - 1))
        prefix = [self.lens[row] for row in rows]
        room = [WIDTH - each for each in prefix]
        more = [1 if decodes else rng.choice((0, 1, 2, size, rng.randint(0, 20))) for _ in rows]
        more = [min(pair) for pair in zip(room, more, strict=True)]
        if decodes and 0 in more:
            return
        seq = [before + new for before, new in zip(prefix, more, strict=True)]
        need = sum(-(-s // size) + -p // size for p, s in zip(prefix, seq, strict=True))
        if need > rig.num_free:
            return
        on_device = [list(rows), list(prefix), list(seq)]
        if rng.random() < 0.5:
            self.spoil(rows, prefix, on_device, decodes)
        last = [self.lines[r][p - 1] if p else -1 for r, p in zip(rows, prefix, strict=True)]
        faults = self.row_faults(rows, prefix, last, on_device)
        dtypes = [rng.choice(INTS) for _ in range(3)]
        generations = [self.since[row] for row in rows]
        columns = [rows, seq, generations] if decodes else [rows, prefix, seq, generations]
        flat = [number for column in columns for number in column]
        fused_tokens = rng.choice((0, 4096))

        def launch(guards: Guards, call: int) -> torch.Tensor:
            out = guards.empty("out", sum(more))
            given = {
                "rows": guards.line("rows", on_device[0], dtypes[0]),
                "seq_lens": guards.line("seq_lens", on_device[2], dtypes[2]),
                "host": guards.line("host", flat).view(len(columns), len(rows)),
                "sums": guards.empty("sums", SCRATCH_ROWS * len(rows)),
            }
            if not decodes:
                given["prefix_lens"] = guards.line("prefix_lens", on_device[1], dtypes[1])
            rig.device.extend.place(
                rig.pages, rig.ids, rig.head, out, table=self.table, seq=call,
                fused_tokens=fused_tokens, **given,
            )  # fmt: skip
            return out

        def act() -> list[int] | None:
            if decodes:
                return rig.model.alloc_decode(on_device[2], seq, last)
            return rig.model.alloc_extend(on_device[1], prefix, on_device[2], seq, last, sum(more))

        def told(kind: str, at: int) -> Five:
            if kind == "BadLengths":
                found = on_device[2][at]
                before = found - 1 if decodes else on_device[1][at]
                return before, prefix[at], found, seq[at], on_device[0][at]
            extra = 0
            if kind == "Duplicate":
                given = zip(last, prefix, more, strict=True)
                pages = [slot // size if p % size and new else None for slot, p, new in given]
                extra = pages.index(last[at] // size)
            return rig.page_told(last[at], extra)

        slots = self.compare(faults, act, launch, told)
        if slots is not None:
            rig.head += need
            self.fill(rows, prefix, seq, slots)
        self.require_equal()

    def fill(self, rows: list[int], prefix: list[int], seq: list[int], slots: list[int]) -> None:
        """Write slots and holders into the plain lists."""
        given = iter(slots)
        for row, before, after in zip(rows, prefix, seq, strict=True):
            for position in range(before, after):
                slot = next(given)
                self.lines[row][position] = slot
                if position % self.size == 0:
                    self.rig.holders[slot // self.size] = (row, self.since[row])
            self.lens[row] = after

    def spoil(
        self, rows: list[int], prefix: list[int], on_device: list[list[int]], decodes: bool
    ) -> None:
        """A number that differs on the device, or an entry of the table that is wrong."""
        at = self.rng.randrange(len(rows))
        kind = self.rng.randrange(4)
        if kind == 0:
            self.pick(on_device, decodes)[at] += self.rng.choice((-1, 1, 2**20))
        elif prefix[at]:
            other = self.rng.randrange(1, NUM_ROWS)
            entry = self.lines[other][max(0, self.lens[other] - 1)]
            wrong = self.rng.choice((0, entry, self.size - 1, -1, 2**31 - 1, self.size))
            self.write(rows[at], prefix[at] - 1, wrong)

    def pick(self, on_device: list[list[int]], decodes: bool) -> list[int]:
        """One of the columns that the device compares."""
        return self.rng.choice((on_device[0], on_device[2]) if decodes else on_device)

    def write(self, row: int, position: int, slot: int) -> None:
        """An entry, in both tables, until `repair`."""
        self.broken.append((row, position, self.lines[row][position]))
        self.lines[row][position] = slot
        self.table[row, position] = slot

    def repair(self) -> None:
        """Entries as the kernels wrote them."""
        while self.broken:
            row, position, slot = self.broken.pop()
            self.lines[row][position] = slot
            self.table[row, position] = slot

    def row_faults(
        self, rows: list[int], prefix: list[int], last: list[int], on_device: list[list[int]]
    ) -> list[Fault]:
        """What a call without rows would let pass."""
        faults: list[Fault] = []
        for index, (row, before, slot) in enumerate(zip(rows, prefix, last, strict=True)):
            if on_device[0][index] != row:
                faults.append(("BadLengths", index))
            holder = self.rig.holders.get(slot // self.size)
            foreign = holder not in (None, (row, self.since[row]))
            if (before and slot < self.size) or (before % self.size and foreign):
                faults.append(("BadLastLoc", index))
        return faults

    def free(self) -> None:
        """A piece of a row, to its end or from a border to a border."""
        rng, rig, size = self.rng, self.rig, self.size
        row = rng.randrange(1, NUM_ROWS)
        pages = -(-self.lens[row] // size)
        if not pages:
            return
        first = rng.choice((0, rng.randrange(pages)))
        last = rng.randint(first + 1, pages)
        start, end = first * size, min(last * size, self.lens[row])
        if rng.random() < 0.3:
            position = rng.randrange(start, end)
            entry = self.lines[rng.randrange(NUM_ROWS)][rng.randrange(WIDTH)]
            page = rng.choice((0, entry // size, rig.num_pages + 1))
            wrong = rng.choice((page * size + position % size, self.lines[row][position] + 1))
            self.write(row, position, wrong)
        slots = self.lines[row][start:end]
        if last - first > len(rig.model.owned_pages):
            return
        handle = (row, self.since[row])
        faults: list[Fault] = [
            ("NotOwned", index)
            for index in range(0, len(slots), size)
            if rig.holders.get(slots[index] // size, handle) != handle
        ]

        def launch(guards: Guards, call: int) -> None:
            target = Target(rig.ids, rig.head - (last - first), FREE, reverse=True)
            rig.device.release.release_row(
                rig.pages, self.table, handle, start, end, target, seq=call
            )

        def act() -> list[int]:
            rig.model.free_segments([(slots, start)])
            return []

        def told(kind: str, at: int) -> Five:
            extra = 0
            if kind == "NotConsecutive":
                extra = run_expects(slots, 0, at, size)
            elif kind == "Duplicate":
                extra = size * [slot // size for slot in slots[::size]].index(slots[at] // size)
            return rig.page_told(slots[at], extra)

        if self.compare(faults, act, launch, told) is not None:
            rig.head -= last - first
            for slot in slots[::size]:
                del rig.holders[slot // size]
            self.lens[row] = min(self.lens[row], start)
        self.require_equal()

    def reissue(self) -> None:
        """A row changes hands with its pages still out: they are another holder's from now on."""
        self.since[self.rng.randrange(1, NUM_ROWS)] += 1


@pytest.mark.parametrize("seed", range(4))
def test_rows(seed: int) -> None:
    """Random extends, decodes and frees through the table; half of them spoiled."""
    rows = Rows(seed)
    for _ in range(45):
        rows.repair()
        choice = rows.rng.random()
        if choice < 0.35:
            rows.alloc(decodes=False)
        elif choice < 0.6:
            rows.alloc(decodes=True)
        elif choice < 0.98:
            rows.free()
        else:
            rows.reissue()
    assert rows.outcomes["served"] > 5
    assert rows.outcomes["refused"] > 3
