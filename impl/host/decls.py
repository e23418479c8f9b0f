"""Which pools are mirrored on the host: what the owner of device buffers declares.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from impl import checks
from impl.errors import Duplicate, NotOwned, OutOfRange, PoolError, Unsupported
from impl.host.pool import HostKVPool, HostPool, HostStatePool

#: the primary pool's name: all others follow its indices
PRIMARY = "kv"


@dataclass(frozen=True, kw_only=True)
class HostStorage:
    """What a host pool stores: bytes of a token in one layer, and of which dtype they are."""

    bytes_per_token_per_layer: int
    dtype: torch.dtype

    def page_bytes(self, page_size: int) -> int:
        """Bytes of a page in one layer. Spec: §4.2."""
        return self.bytes_per_token_per_layer * page_size

    def host_bytes(self, pages: int, layers: int, page_size: int) -> int:
        """Bytes of so many pages in so many layers. Spec: §4.2."""
        return pages * layers * self.page_bytes(page_size)


@dataclass(frozen=True, kw_only=True)
class HostPoolDecl:
    """A pool to be mirrored: `device_pool` owns its buffers.

    `host_pool_builder` makes the host pool of the device pool and a size in slots.
    `indices_from_pool` names the pool whose host slots it uses, None in the primary one;
    `layout_source` the one that it is laid out after, None in the root. `owned_device_layers`:
    places of the layers that it has, None for all. Spec: §4.2.
    """

    pool_name: str
    device_pool: Any
    host_pool_builder: Callable[[Any, int], HostPool] | None = None
    storage_info: HostStorage | None = None
    indices_from_pool: str | None = None
    layout_source: str | None = None
    owned_device_layers: tuple[int, ...] | None = None

    def build(self, size: int) -> HostPool:
        """The host pool, of `size` slots. Raises `Unsupported` without a builder."""
        if self.host_pool_builder is None:
            raise Unsupported(f"{self.pool_name} has no builder. Declare one.")
        return self.host_pool_builder(self.device_pool, size)


def kv_decls(device_pool: Any) -> list[HostPoolDecl]:
    """What a KV pool declares: one mirror of all its buffers. Spec: §4.2."""
    return [HostPoolDecl(pool_name=PRIMARY, device_pool=device_pool, host_pool_builder=HostKVPool)]


def state_decls(state_pool: Any) -> list[HostPoolDecl]:
    """What the owner of a pool of states declares: one mirror of it and of its siblings. §4.2."""
    return [
        HostPoolDecl(pool_name=PRIMARY, device_pool=state_pool, host_pool_builder=HostStatePool)
    ]


def ordered(decls: Sequence[HostPoolDecl], num_layers: int) -> list[HostPoolDecl]:
    """The declarations of one index space, each behind the one that it is laid out after.

    The only root, `PRIMARY`, comes first; those that don't depend on each other keep their order.
    Raises `Duplicate` for names or layers that stand there twice, `NotOwned` for a pool that is
    named and not declared, `OutOfRange` for a layer that isn't one of `num_layers`,
    `NegativeSize`, `Unsupported` for no root or several, a circle, or a dependent pool without
    builder, storage or the root's indices. O(decls²). Spec: §4.2, HT-9.
    """
    layers = checks.host_size(num_layers, "num_layers", 1)
    known = {decl.pool_name: decl for decl in decls}
    faults: list[PoolError | None] = []
    if len(known) < len(decls):
        names = [decl.pool_name for decl in decls]
        faults.append(Duplicate(f"pools {names}: each has a name of its own. Rename some."))
    roots = [decl.pool_name for decl in decls if decl.layout_source is None]
    if roots != [PRIMARY]:
        faults.append(Unsupported(f"roots are {roots}. Declare one, {PRIMARY!r}."))
    for decl in decls:
        faults += _layer_faults(decl, layers)
        if decl.layout_source is not None:
            faults += _dependent_faults(decl, known)
    checks.raise_first(faults)
    return _sorted(known)


def _layer_faults(decl: HostPoolDecl, num_layers: int) -> list[PoolError | None]:
    owned = decl.owned_device_layers or ()
    what = f"{decl.pool_name} owns layers {list(owned)} of {num_layers}"
    faults: list[PoolError | None] = []
    if len(set(owned)) < len(owned):
        faults.append(Duplicate(f"{what}. Name each once."))
    if not set(owned) <= set(range(num_layers)):
        faults.append(OutOfRange(f"{what}. Count them from 0."))
    return faults


def _dependent_faults(
    decl: HostPoolDecl, known: Mapping[str, HostPoolDecl]
) -> list[PoolError | None]:
    faults: list[PoolError | None] = []
    if decl.host_pool_builder is None or decl.storage_info is None:
        faults.append(Unsupported(f"{decl.pool_name} lacks its builder or storage. Give both."))
    if decl.indices_from_pool != PRIMARY:
        found = f"{decl.pool_name} has the indices of {decl.indices_from_pool}"
        faults.append(Unsupported(f"{found}. A dependent pool has those of {PRIMARY!r}."))
    if decl.layout_source not in known:
        found = f"{decl.pool_name} is laid out after {decl.layout_source}"
        faults.append(NotOwned(f"{found}, which isn't declared. Declare that too."))
    return faults


def _sorted(known: Mapping[str, HostPoolDecl]) -> list[HostPoolDecl]:
    placed: dict[str | None, HostPoolDecl] = {}
    left = list(known.values())
    while left:
        able = [each for each in left if each.layout_source in {None, *placed}]
        if not able:
            names = [each.pool_name for each in left]
            raise Unsupported(f"{names} are laid out after one another. Break the circle.")
        placed.update({each.pool_name: each for each in able})
        left = [each for each in left if each.pool_name not in placed]
    return list(placed.values())
