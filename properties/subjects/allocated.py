"""How much memory a pool of ours has taken, by its tensors' storages and not by its word (I61)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from properties.invariants import violation

#: what a pool holds and didn't make: the map belongs to the allocator
LENT = frozenset({"full_to_swa_index_mapping", "mapping"})


def storages(target: Any) -> dict[int, int]:
    """Address and bytes of each storage under the public attributes of a pool, its parts' too."""
    return {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in _tensors(target)
    }


def allocated_bytes(target: Any) -> int:
    """Bytes of all storages that a pool holds."""
    return sum(storages(target).values())


def require_reported(target: Any, reported: int | Iterable[int]) -> None:
    """Raise unless a pool has taken what it reports."""
    due = reported if isinstance(reported, int) else sum(reported)
    if (found := allocated_bytes(target)) != due:
        raise violation("I61", f"{due} bytes are reported, {found} are allocated")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif type(value).__module__.startswith("impl.") and hasattr(value, "__dict__"):
        for name, each in vars(value).items():
            if not name.startswith("_") and name not in LENT:
                yield from _tensors(each)
