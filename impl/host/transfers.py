"""Transfers under way: what lies between the start and the finish of a backup or a load.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.6, HT-7, HT-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import torch

from impl import checks
from impl.errors import BadLengths, Duplicate, OutOfRange, StaleHandle
from impl.host.gate import OFF, LayerGate
from impl.host.pins import Slots
from impl.host.slots import on_host

if TYPE_CHECKING:
    from impl.host.pool import HostPool


class _Part(NamedTuple):
    """What a transfer moves in one pool."""

    pool: HostPool
    host: Slots
    device: Slots


class _Transfer:
    """Slots pinned in some pools, all or none, until they are let go."""

    def __init__(
        self, call: str, parts: Sequence[tuple[HostPool, torch.Tensor, torch.Tensor]], loading: bool
    ) -> None:
        self._loading = loading
        self._parts = [
            _Part(pool, on_host(host, "host_slots"), on_host(device, "device_slots"))
            for pool, host, device in parts
        ]
        with ExitStack() as undo:
            for pool, host, device in self._parts:
                pool._pin(call, host, device, loading=loading)
                undo.callback(pool._unpin, host, device, loading=loading)
            undo.pop_all()
        self.open = True

    def _require_open(self, call: str) -> None:
        if not self.open:
            raise StaleHandle(f"{call}: the transfer is over. Start another one.")

    def _let_go(self) -> None:
        self.open = False
        for pool, host, device in self._parts:
            pool._unpin(host, device, loading=self._loading)


class Backup(_Transfer):
    """A backup under way, from `HostPool.start_backup`; `finish` makes the host's rows."""

    def __init__(
        self, pool: HostPool, host_slots: torch.Tensor, device_slots: torch.Tensor
    ) -> None:
        super().__init__("start_backup", [(pool, host_slots, device_slots)], loading=False)
        ((self._pool, host, device),) = self._parts
        self._host = torch.from_numpy(host)
        try:
            self._read = pool._read(device)
        except BaseException:
            self._let_go()
            raise

    def finish(self) -> None:
        """The rows that were there at the start are the host's; waits for them. O(bytes). §4.6.

        Raises `StaleHandle` the second time.
        """
        self._require_open("finish")
        self._pool._down.wait()
        for memory, rows in self._read:
            memory.index_copy_(0, self._host, rows)
        self._let_go()


class Load(_Transfer):
    """A load under way: host slots to device slots, layer by layer, in one or several pools.

    `parts`: (host pool, host slots, device slots). With a gate it takes the next set of it, whose
    number is `producer`, -1 without one. `layers` are the first pool's; one counts as arrived when
    all parts have it. Ids are made rows by the copy, not before. Raises what
    `HostPool.start_load` raises, `BadLengths` without a part or for a gate of another number of
    layers, and what `LayerGate.update_producer` raises; then nothing has begun. Spec: §4.6.
    """

    def __init__(
        self,
        parts: Sequence[tuple[HostPool, torch.Tensor, torch.Tensor]],
        *,
        gate: LayerGate | None = None,
    ) -> None:
        if not parts:
            raise BadLengths("a load of no pool. Name at least one.")
        first = parts[0][0]
        self.layers = range(first.start_layer, first.end_layer)
        if gate is not None and gate.layers != len(self.layers):
            found = f"a gate of {gate.layers} layers for {len(self.layers)}"
            raise BadLengths(f"{found}. Make it for the layers of the first pool.")
        super().__init__("start_load", parts, loading=True)
        self._hosts = [torch.from_numpy(part.host) for part in self._parts]
        self._gate = gate
        self._arrived: set[int] = set()
        # not at each layer: the forward that reads the last one need not be waited for
        self._parts[0].pool._up.follow()
        try:
            self.producer = OFF if gate is None else gate.update_producer()
        except BaseException:
            self._let_go()
            raise

    def layer(self, layer: int) -> None:
        """Copy a layer, by its global id, in all parts, and then say so to the gate.

        A part that hasn't the layer is left out. Raises `OutOfRange`, `Duplicate` for a layer that
        has been copied, `StaleHandle`, `WrongDtype`. O(bytes of the slots). Spec: §4.6.
        """
        at = checks.host_int(layer, "layer")
        self._require_open("layer")
        if at not in self.layers:
            raise OutOfRange(f"layer {at} is outside {self.layers}. Use a global id.")
        if at in self._arrived:
            raise Duplicate(f"layer {at} has been copied. Copy each once.")
        lane = self._parts[0].pool._up
        with lane.copying():
            for part, host in zip(self._parts, self._hosts, strict=True):
                part.pool._write(at, host, part.device)
            self._arrived.add(at)
            if self._gate is not None:
                self._gate.complete(self.producer, at - self.layers.start)

    def finish(self) -> None:
        """All layers are there and the slots are free of the transfer; waits for the copies.

        Raises `BadLengths` while layers are missing, `StaleHandle` the second time. §4.6.
        """
        self._require_open("finish")
        if missing := sorted(set(self.layers) - self._arrived):
            raise BadLengths(f"finish: layers {missing} are missing. Copy them, or cancel.")
        self.cancel()

    def cancel(self) -> None:
        """Give up what hasn't been copied; waits for what has. `StaleHandle` the second time.

        Its set of the gate stays as it is: who waits there, waits until the gate's `reset`. §4.6.
        """
        self._require_open("cancel")
        self._parts[0].pool._up.wait()
        self._let_go()
