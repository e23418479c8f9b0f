"""The jobs through the row table: allocation and row write, as one call or one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from impl import ReqToTokenPool
from properties.performance.cases import EXTEND_TOKENS, Case
from properties.performance.engines import Engine, Sglang
from properties.performance.timing import Work

ROW_BATCHES = (1, 64, 1024)
PAGE_SIZE = 16
# A step of decode ends in a free of what it took, which isn't timed; so many steps are one run.
DECODE_STEPS = PAGE_SIZE
WIDTH = 1024


class Fused:
    """Ours: one call allocates and writes."""

    def __init__(self, engine: Engine, batch: int) -> None:
        self.allocator = engine.paged(batch * (WIDTH // PAGE_SIZE), PAGE_SIZE)
        self.table = ReqToTokenPool(batch, WIDTH, device=engine.device)
        self.rows = engine.both(torch.tensor(self.table.alloc_rows(batch)))

    def extend(self, prefix: Any, seq: Any, total: int) -> torch.Tensor:
        """Slots of the new positions, written to the table."""
        slots: torch.Tensor = self.allocator.alloc_extend_rows(
            self.table, *self.rows, *prefix, *seq, total
        )
        return slots

    def decode(self, seq: Any) -> torch.Tensor:
        """Slots of the last positions, written to the table."""
        slots: torch.Tensor = self.allocator.alloc_decode_rows(self.table, *self.rows, *seq)
        return slots


class Separate:
    """SGLang's: read the last slots, allocate, write, as its engine does step by step."""

    def __init__(self, engine: Engine, batch: int) -> None:
        self.allocator = engine.paged(batch * (WIDTH // PAGE_SIZE), PAGE_SIZE)
        self.table = torch.zeros(batch + 1, WIDTH, dtype=torch.int32, device=engine.device)
        self.rows, _ = engine.both(torch.arange(1, batch + 1))
        self.batch = batch

    def extend(self, prefix: Any, seq: Any, total: int) -> torch.Tensor:
        """Slots of the new positions, written to the table."""
        from sglang.kernels.ops.memory import common as kernels

        last = kernels.get_last_loc_triton(self.table, self.rows, prefix[0])
        slots: torch.Tensor = self.allocator.alloc_extend(*prefix, *seq, last, total)
        # Prefixes are written by their addresses; here they are empty, as of new prompts.
        addresses = torch.zeros(self.batch, dtype=torch.uint64, pin_memory=self.table.is_cuda)
        kernels.write_req_to_token_pool_triton[(self.batch,)](
            self.table,
            self.rows,
            addresses.to(self.table.device, non_blocking=True),
            prefix[0],
            seq[0],
            seq[0] - prefix[0],
            slots,
            WIDTH,
        )
        return slots

    def decode(self, seq: Any) -> torch.Tensor:
        """Slots of the last positions, written to the table."""
        positions = seq[0] - 1
        last = self.table[self.rows, positions - 1]
        slots: torch.Tensor = self.allocator.alloc_decode(*seq, last)
        self.table[self.rows, positions] = slots.to(torch.int32)
        return slots


def _steps(engine: Engine, batch: int) -> Any:
    made = Separate if isinstance(engine, Sglang) else Fused
    return made(engine, batch)


def _zeros(engine: Engine, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return engine.both(torch.zeros(batch, dtype=torch.int64))


def extend_rows(batch: int) -> Case:
    """`batch` prompts of 515 tokens into their rows; their free isn't timed."""

    def start(engine: Engine) -> Work:
        steps = _steps(engine, batch)
        prefix, seq = _zeros(engine, batch), engine.both(torch.full((batch,), EXTEND_TOKENS))
        total = batch * EXTEND_TOKENS
        taken = SimpleNamespace(slots=None)

        def run() -> None:
            taken.slots = steps.extend(prefix, seq, total)

        def restore() -> None:
            steps.allocator.free(taken.slots)

        return Work(run=run, restore=restore)

    return Case(group="extend 515 and write rows", name=f"batch {batch}", start=start)


def decode_rows(batch: int) -> Case:
    """A page's worth of decode steps into the rows of `batch` requests."""

    def start(engine: Engine) -> Work:
        steps = _steps(engine, batch)
        lens = 512 + torch.arange(batch) % PAGE_SIZE
        steps.extend(_zeros(engine, batch), engine.both(lens), int(lens.sum()))
        lengths = [engine.both(lens + step) for step in range(1, DECODE_STEPS + 1)]
        issued: list[torch.Tensor] = []

        def run() -> None:
            for seq in lengths:
                issued.append(steps.decode(seq))

        def restore() -> None:
            slots = torch.cat(issued)
            steps.allocator.free_page_ids(slots[slots % PAGE_SIZE == 0] // PAGE_SIZE)
            issued.clear()

        return Work(run=run, restore=restore, calls=DECODE_STEPS)

    return Case(group="decode and write rows", name=f"batch {batch}", start=start)


def row_cases() -> list[Case]:
    """All jobs through the row table."""
    return [extend_rows(batch) for batch in ROW_BATCHES] + [
        decode_rows(batch) for batch in ROW_BATCHES
    ]
