"""What Triton would compile for random calls: its own keys, computed without a GPU.

The launchers run for real up to the launch, with every kernel replaced by a recorder that asks
Triton for the key under which it would look for a compiled variant. Spec: `spec/core.md` §5.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

from impl.kernels import device
from impl.kernels.device.pages import Pages
from impl.kernels.device.release import Target
from impl.kernels.kv_rows import Part
from impl.storage.buffers import KVBuffer

NUM_CALLS = 1000
# Values that Triton would specialise on, left alone: 1, multiples of 16, 64 bits.
INTS = (0, 1, 2, 3, 15, 16, 17, 48, 64, 1000, 4096, 2**20, 2**31 - 1, 2**31, 2**33, 2**40 + 1)


class Recorder:
    """In place of a kernel: keeps the keys of its launches, and launches nothing."""

    def __init__(self, kernel: Any) -> None:
        backend = make_backend(GPUTarget("cuda", 90, 32))
        create: Any = create_function_from_signature
        self.bind = create(kernel.signature, kernel.params, backend)
        self.keys: set[str] = set()

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.launch

    def launch(self, *args: Any, **options: Any) -> None:
        """Remember how Triton would specialise this call."""
        _, specialization, options = self.bind(*args, debug=False, **options)
        self.keys.add(str((specialization, sorted(options.items()))))


class Caller:
    """Calls launchers with tensors anywhere and numbers of all kinds."""

    def __init__(self) -> None:
        self.rng = random.Random("keys")
        self.modules = device.load()
        self.memory = {
            dtype: torch.zeros(5000, dtype=dtype)
            for dtype in (torch.uint8, torch.int32, torch.int64)
        }
        self.dtypes: dict[str, torch.dtype] = {}
        self.widths = (torch.uint8, torch.int16, torch.int32, torch.int64)
        self.words = [torch.zeros(64, dtype=each) for each in self.widths]

    def number(self) -> int:
        """A number that Triton might treat as special."""
        return self.rng.choice(INTS)

    def line(self, length: int = 16, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """A tensor that starts anywhere, aligned or not."""
        start = self.rng.randrange(0, 40)
        return self.memory[dtype][start : start + length]

    def ids(self, name: str, length: int) -> torch.Tensor:
        """An argument that is int32 or int64, as `dtypes` says."""
        return self.line(length, self.dtypes[name])

    def pages(self) -> Pages:
        """Books of a pool that could be anywhere."""
        return Pages(
            self.rng.choice((1, 2, 3, 16, 48, 64, 2**31 - 2)),
            self.line(dtype=torch.uint8),
            self.line(dtype=torch.int32),
            self.line(),
            self.line(dtype=torch.int32),
            self.line(8),
        )

    def target(self) -> Target:
        """A place for pages."""
        return Target(self.line(), self.number(), 3, self.rng.random() < 0.5)

    def table(self) -> torch.Tensor:
        """A row table with strides of all kinds, never read."""
        strides = (self.number(), self.rng.choice((1, 2, 16)))
        return self.memory[torch.int32].as_strided((1, 1), strides, self.rng.randrange(9))

    def alloc(self) -> None:
        """An extend or a decode, with or without the row table."""
        n = self.rng.choice((1, 2, 15, 16, 17, 64))
        through_rows, decodes = self.dtypes["rows"] == torch.int64, self.rng.random() < 0.5
        given: dict[str, Any] = {
            "seq_lens": self.ids("seq_lens", n), "host": self.line(4 * n).view(4, n),
            "sums": self.line(7 * n), "seq": self.number(), "fused_tokens": self.number(),
            "validate": self.rng.random() < 0.5,
        }  # fmt: skip
        if not decodes:
            given["prefix_lens"] = self.ids("prefix_lens", n)
        if through_rows:
            given |= {"rows": self.line(n), "table": self.table()}
        else:
            given["last_loc"] = self.ids("last_loc", n)
        out = self.line(self.rng.choice((1, 16, 77)))
        self.modules.extend.place(self.pages(), self.line(), self.number(), out, **given)

    def release(self) -> None:
        """Ids, one segment, several, or a piece of a row."""
        release, seq = self.modules.release, self.number()
        slots = self.ids("slots", self.rng.choice((1, 16, 33)))
        release.release_ids(self.pages(), slots, self.target(), seq=seq)
        bounds = self.rng.choice((None, self.line(2 * 17).view(2, 17)))
        release.release_segments(
            self.pages(), slots, self.target(), bounds=bounds, num_given=self.number(), seq=seq
        )
        handle = (self.number(), self.number())
        release.release_row(
            self.pages(), self.table(), handle, 0, self.number(), self.target(), seq=seq
        )

    def others(self) -> None:
        """Takes, frees of slots, merges."""
        slots = self.modules.slots
        self.modules.take.take(self.pages(), self.line(), self.number(), self.line(16))
        values, n = self.ids("slots", 16), self.rng.choice((1, 2, 17))
        starts = self.line(n)
        reverse = self.rng.random() < 0.5
        slots.segment_keys(self.line(), values, starts, num_segments=n, reverse=reverse)
        more = self.rng.choice(({}, {"keys": self.line(), "starts": starts, "num_segments": n}))
        slots.release_sorted(
            self.pages(), values, self.line(), self.target(), self.line(1), num_out=self.number(),
            seq=self.number(), **more,
        )  # fmt: skip
        self.modules.merge.merge(self.pages(), self.line(), self.number(), self.number())
        rows = self.line(48).view(-1, self.rng.choice((1, 2, 3, 16)))
        self.modules.windows.resolve_and_clear(self.line(n), rows, self.line(), self.line())

    def moves(self) -> None:
        """Rows of states set, moved and collected, in words of any width."""
        moves, memory = self.modules.slot_moves, self.rng.choice(self.words)
        start = self.rng.randrange(9)
        strides = (self.number(), self.number(), 1)
        rows = memory.as_strided((1, 1, 5), strides, start)
        ids = [self.ids("slots", 7), self.ids("slots", 7)]
        lanes = self.rng.choice(([ids[0], None], [None, ids[1]], ids))
        bounds: dict[str, Any] = {"last": self.number(), "keep": self.rng.choice((0, 1, 16))}
        moves.check(
            *lanes, claim=self.line(dtype=torch.int32), record=self.line(8), seq=self.number(),
            **bounds,
        )  # fmt: skip
        moves.fill(rows, ids[1], self.number(), keep=bounds["keep"], record=self.line(8))
        moves.move(rows, rows, *lanes, record=self.line(8), **bounds)

    def buffer(self, words: int, dtype: torch.dtype) -> KVBuffer:
        """A buffer of one slot's row, with steps of all kinds, in memory that may lie anywhere."""
        strides = (self.number(), self.number(), 1)
        memory = self.words[self.widths.index(dtype)]
        rows = memory.as_strided((1, 1, words), strides, self.rng.randrange(9))
        return KVBuffer("k", 0, rows)

    def stores(self) -> None:
        """Values of one part or two written as they are, converted, and scaled to some limit."""
        kv_rows, n = self.modules.kv_rows, self.rng.choice((1, 2, 15, 16, 17))
        width, other = self.rng.choice((1, 3, 16)), self.rng.choice((1, 16))
        kind = self.rng.randrange(3)
        given, stored, words = [
            (torch.int32, torch.int32, torch.int32),
            (torch.float32, torch.bfloat16, torch.int16),
            (torch.bfloat16, torch.float8_e4m3fn, torch.uint8),
        ][kind]
        parts = [
            Part(self.buffer(each, words), self.values(n, each, given), stored)
            for each in ((width,) if kind == 2 else (width, other))
        ]
        limits = None
        if kind == 2:
            parts = [parts[0]._replace(scale=0.5)]
            limits = self.ids("seq_lens", 1)
        kv_rows.store(
            parts, self.ids("slots", n), limits, first=self.number(), end=self.number(),
            record=self.line(8), seq=self.number(), validate=True,
        )  # fmt: skip
        dtype = self.rng.choice(self.widths)
        kv_rows.move(
            [self.buffer(self.rng.choice((1, 16, 33)), dtype) for _ in range(2)],
            self.ids("slots", n), self.ids("slots", n), first=self.number(), end=self.number(),
            claim=self.line(dtype=torch.int32), record=self.line(8), seq=self.number(),
            validate=True,
        )  # fmt: skip

    def values(self, count: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Values of so many tokens, aligned or not."""
        start = self.rng.randrange(9)
        return torch.zeros(start + count * width, dtype=dtype)[start:].view(count, width)


def replace_kernels(modules: device.Device) -> dict[str, Recorder]:
    """Recorders in place of all kernels, by name."""
    recorders = {}
    module: ModuleType
    for name, module in modules._asdict().items():
        for attribute, value in list(vars(module).items()):
            if hasattr(value, "do_not_specialize") and value.do_not_specialize:
                recorder = Recorder(value)
                setattr(module, attribute, recorder)
                recorders[f"{name}.{attribute}"] = recorder
    return recorders


def count() -> dict[str, dict[str, int]]:
    """Per combination of dtypes and kernel: the variants a thousand random calls would compile."""
    caller = Caller()
    recorders = replace_kernels(caller.modules)
    names = ("prefix_lens", "seq_lens", "last_loc", "rows", "slots")
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for narrow in range(2 ** len(names)):
        caller.dtypes = {
            name: torch.int32 if narrow >> at & 1 else torch.int64 for at, name in enumerate(names)
        }
        for recorder in recorders.values():
            recorder.keys.clear()
        for _ in range(NUM_CALLS // 2 ** len(names) + 1):
            caller.alloc()
            caller.release()
            caller.others()
            caller.moves()
            caller.stores()
        for name, recorder in recorders.items():
            found[str(caller.dtypes)][name] = len(recorder.keys)
    return found
