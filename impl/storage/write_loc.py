"""Where a batch writes its KV: one object with the target slots of every sub-pool.

Pools never translate. Spec: `spec/core.md` §7, `spec/interleave_hisparse_host_prefix.md` §5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from impl import checks
from impl.errors import BadLengths, PoolError, WrongDtype


class WriteBatch(Protocol):
    """What is read of a batch: its slots, and whether they are rows of buffers already."""

    @property
    def out_cache_loc(self) -> torch.Tensor: ...

    @property
    def out_cache_loc_is_physical(self) -> bool: ...


@dataclass(frozen=True)
class KVWriteLoc:
    """Slots int [n] of n tokens: `loc`, and where a sub-pool has other ones `swa_loc`, `full_loc`.

    A companion goes with `loc` token by token. One that is longer is cut to its beginning, which
    is right where `loc` is the beginning of what it was made from. `physical`: the slots are rows
    of buffers; some pools write to no others. Raises `BadLengths` for a companion that is shorter,
    `WrongDtype`, `WrongShape`, `WrongDevice`. O(1). Spec: §5.1, Q16.
    """

    loc: torch.Tensor
    swa_loc: torch.Tensor | None = None
    full_loc: torch.Tensor | None = None
    physical: bool = False

    def __post_init__(self) -> None:
        device = self.loc.device if isinstance(self.loc, torch.Tensor) else checks.CPU
        errors: list[PoolError | None] = [checks.ids_fault(self.loc, "loc", device)]
        companions = {"swa_loc": self.swa_loc, "full_loc": self.full_loc}
        for name, ids in companions.items():
            if ids is None:
                continue
            fault = checks.ids_fault(ids, name, device)
            errors.append(fault)
            if fault is errors[0] is None and ids.shape[0] < self.loc.shape[0]:
                found = f"{name} has {ids.shape[0]} slots, loc {self.loc.shape[0]}"
                errors.append(BadLengths(f"KVWriteLoc: {found}. Give at least as many."))
        if type(self.physical) is not bool:
            found = type(self.physical).__name__
            errors.append(WrongDtype(f"physical must be a bool, got {found}."))
        checks.raise_first(errors)
        for name, ids in companions.items():
            if ids is not None and ids.shape[0] > self.loc.shape[0]:
                object.__setattr__(self, name, ids[: self.loc.shape[0]])

    @classmethod
    def for_batch(
        cls,
        batch: WriteBatch,
        swa_loc: torch.Tensor | None = None,
        full_loc: torch.Tensor | None = None,
    ) -> KVWriteLoc:
        """The slots of a batch, marked as it marks them. Raises as the constructor. §5.1."""
        return cls(batch.out_cache_loc, swa_loc, full_loc, batch.out_cache_loc_is_physical)


def unwrap_write_loc(
    loc_info: Any,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """`loc`, `swa_loc`, `full_loc`; a bare tensor is `loc` alone. O(1). Spec: §5.1."""
    if isinstance(loc_info, KVWriteLoc):
        return loc_info.loc, loc_info.swa_loc, loc_info.full_loc
    return loc_info, None, None


def write_loc_is_physical(loc_info: Any) -> bool:
    """Whether slots are marked as rows of buffers; a bare tensor isn't. O(1). Spec: §5.1."""
    return isinstance(loc_info, KVWriteLoc) and loc_info.physical
