"""The Triton kernels: what every call of an allocator launches when faults of values are deferred.

Nothing here imports triton before `load` does, so `impl` works without it. Each module is one
operation, kernels and launchers together:

- `pages`: the device's side of an allocator, `Pages`, and the error record in words.
- `extend`: slots for an extend or a decode, with `last_loc` given or read from the row table.
- `take`: whole pages from the head of the free list.
- `release`: page ids, token ids, segments and pieces of rows given back.
- `slots`: a free of any slots, sorted by the caller.
- `merge`: staged pages sorted into the free list.
- `slot_moves`: rows of state tensors set, moved and collected by their ids.
- `kv_rows`: rows of KV buffers written and moved by their slots.
- `windows`: window pages that full pages let go of.

All launchers but the last follow one protocol. `seq` is the number of the call, at least 1. While
`pages.record[0]` isn't 0 a kernel changes nothing, and fills its results with zeros. A call with
a fault writes the record (the smallest (kind, index), exactly) and changes nothing else. Counts
(head, number free, staged, parked) are the host's: the launchers are told, and tell nothing back.
Calls of one allocator must be launched on one stream. Spec: `spec/core.md` §4, §5, §5a.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import NamedTuple

from impl.errors import Unsupported


class Device(NamedTuple):
    """The modules that need triton."""

    extend: ModuleType
    take: ModuleType
    release: ModuleType
    slots: ModuleType
    merge: ModuleType
    slot_moves: ModuleType
    kv_rows: ModuleType
    windows: ModuleType


@cache
def load() -> Device:
    """Import the kernels; `Unsupported`, with what to install, where triton is missing."""
    try:
        from impl.kernels.device import (
            extend,
            kv_rows,
            merge,
            release,
            slot_moves,
            slots,
            take,
            windows,
        )
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("triton", "numpy"):
            raise
        raise Unsupported(
            f'backend "triton" needs {error.name}, which isn\'t installed: '
            'pip install triton numpy. Or use backend="torch".'
        ) from error
    return Device(extend, take, release, slots, merge, slot_moves, kv_rows, windows)
