"""Host pools: the bytes of a device pool once more, in the host's memory, layer by layer.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.1, §4.5 (layer first), §4.6, §4.10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import (
    BadLengths,
    Duplicate,
    Fault,
    OutOfRange,
    PoolError,
    Reserved,
    StillOwned,
    refuse,
)
from impl.host.gate import LayerGate
from impl.host.lane import Lane
from impl.host.pins import Pins, Slots
from impl.host.slots import ADVICE, HostSlots, faults_at, on_host, repeated
from impl.host.transfers import Backup, Load
from impl.storage.buffers import KVBuffer, plain

Translate = Callable[[torch.Tensor], torch.Tensor]
_ADVICE: dict[type[PoolError], str] = {
    **ADVICE, Reserved: "Nobody's content lies in the first page of the device",
}  # fmt: skip
# Entries that belong to no layer of the model have numbers that no layer has: they come first.
MOST_LAYERS = 2**31


class HostPool:
    """Rows of `buffers` under the slots of a host allocator, `slots`, which hands them out.

    `size` in slots, whole pages. Device slots are `page_size`..`device_size + page_size - 1`: who
    owns them is their allocator's business. Host memory is pinned on CUDA. Slots of transfers are
    int32 or int64 [k] on any device, and read back from there; host and device slots pair up by
    their places. Between start and finish of a transfer its host slots can't be freed, and what it
    writes no other transfer reads or writes; `in_transfer` says which device slots must stay where
    they are (HT-8). Starting and finishing is for any thread, copying for one at a time in each
    direction. O(size). Spec: §4.
    """

    def __init__(
        self,
        buffers: Sequence[KVBuffer],
        size: int,
        page_size: int,
        *,
        device_size: int,
        layers: range,
        device: torch.device,
        translate: Translate | None = None,
    ) -> None:
        self.slots = HostSlots(size, page_size)
        self.size, self.page_size = self.slots.size, self.slots.page_size
        self.start_layer, self.end_layer = layers.start, layers.stop
        self.device = device
        self._translate = translate
        self._num_device = device_size + self.page_size
        self._device_pins = Pins(self._num_device)
        self._down, self._up = Lane(device), Lane(device)
        self._mirrors: dict[int, list[tuple[torch.Tensor, KVBuffer]]] = {}
        pinned = device.type == "cuda"
        for each in buffers:
            words = each.rows.shape[2], each.rows.dtype
            host = torch.zeros(self.size, words[0], dtype=words[1], pin_memory=pinned)
            layer = each.layer if each.layer < MOST_LAYERS else self.start_layer
            self._mirrors.setdefault(layer, []).append((host, each))

    # Reports

    @property
    def buffers(self) -> list[KVBuffer]:
        """The host's rows, a buffer for each of the device's, in the order of their layers."""
        return [
            KVBuffer(each.name, each.layer, host.unsqueeze(1))
            for _, pairs in sorted(self._mirrors.items())
            for host, each in pairs
        ]

    @property
    def size_per_token(self) -> int:
        """Bytes of a slot in all buffers. Spec: §4.5."""
        return sum(each.row_bytes for each in self.buffers)

    def get_size_bytes(self) -> int:
        """Bytes of the host's memory. O(buffers). Spec: §4.3."""
        return sum(each.rows.nbytes for each in self.buffers)

    def in_transfer(self, device_slots: torch.Tensor) -> torch.Tensor:
        """Which device slots a transfer reads or writes: bool [k]; those aren't to be freed.

        Raises `OutOfRange`, `WrongDtype`, `WrongShape`. O(k). Spec: HT-8.
        """
        slots = on_host(device_slots, "device_slots")
        with self.slots.lock:
            refuse("in_transfer", self._outside(slots), _ADVICE)
            return torch.from_numpy(self._device_pins.busy(slots, writing=True))

    # Transfers

    def backup(self, host_slots: torch.Tensor, device_slots: torch.Tensor) -> None:
        """The rows of device slots under host slots, all layers; done when it returns.

        Raises what `start_backup` raises. O(bytes of the slots). Spec: §4.6.
        """
        self.start_backup(host_slots, device_slots).finish()

    def load(self, host_slots: torch.Tensor, device_slots: torch.Tensor, layer: int) -> None:
        """One layer's rows of host slots under device slots; there when it returns.

        A layer that the pool hasn't is left out. Raises what `start_load` raises. O(bytes of the
        slots). Spec: §4.6.
        """
        at = checks.host_int(layer, "layer")
        load = self.start_load(host_slots, device_slots)
        try:
            if at in load.layers:
                load.layer(at)
        finally:
            load.cancel()

    def start_backup(self, host_slots: torch.Tensor, device_slots: torch.Tensor) -> Backup:
        """Begin a backup: device slots are read now, in stream order, host slots at its finish.

        Raises `OutOfRange`, `Reserved` for slots of the device's first page, `NotOwned` or
        `DoubleFree` for host slots that nobody has, `Duplicate` for one named twice, `StillOwned`
        for a slot in another transfer, `BadLengths`, `WrongDtype`, `WrongShape`; then nothing has
        begun. O(bytes of the slots). Spec: §4.6.
        """
        return Backup(self, host_slots, device_slots)

    def start_load(
        self, host_slots: torch.Tensor, device_slots: torch.Tensor, gate: LayerGate | None = None
    ) -> Load:
        """Begin a load of this pool alone: see `Load`, whose `layer` copies. O(k). Spec: §4.6.

        Raises `OutOfRange`, `Reserved` for slots of the device's first page, `NotOwned` or
        `DoubleFree` for host slots that nobody has, `Duplicate` for a device slot named twice,
        `StillOwned`, `BadLengths`, `WrongDtype`, `WrongShape`; then nothing has begun.
        """
        return Load([(self, host_slots, device_slots)], gate=gate)

    # For transfers

    def _pin(self, call: str, host: Slots, device: Slots, *, loading: bool) -> None:
        """Pin the slots of a transfer, or refuse it. O(k)."""
        if len(host) != len(device):
            found = f"{call}: {len(host)} host slots, {len(device)} device slots"
            raise BadLengths(f"{found}. They pair up.")
        with self.slots.lock:
            faults = self.slots._faults(host, writing=not loading)
            refuse(call, faults + self._device_faults(device, writing=loading), _ADVICE)
            self.slots._pins.pin(host, writing=not loading)
            self._device_pins.pin(device, writing=loading)

    def _unpin(self, host: Slots, device: Slots, *, loading: bool) -> None:
        with self.slots.lock:
            self.slots._pins.unpin(host, writing=not loading)
            self._device_pins.unpin(device, writing=loading)

    def _device_faults(self, slots: Slots, *, writing: bool) -> list[Fault]:
        if outside := self._outside(slots):
            return outside
        wrong = {
            Reserved: (slots < self.page_size, "of the device is reserved"),
            StillOwned: (self._device_pins.busy(slots, writing), "of the device is in a transfer"),
        }
        if writing:
            wrong[Duplicate] = (repeated(slots), "of the device was named already")
        return faults_at(slots, wrong)

    def _outside(self, slots: Slots) -> list[Fault]:
        beyond = (slots < 0) | (slots >= self._num_device)
        return faults_at(slots, {OutOfRange: (beyond, "of the device isn't there")})

    def _rows(self, device: Slots) -> torch.Tensor:
        """Where device slots lie now: pools that relocate pages have ids that aren't rows."""
        ids = self._up.up(torch.from_numpy(device))
        return ids if self._translate is None else self._translate(ids).to(torch.int64)

    def _read(self, device: Slots) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Host memory and the device's rows for it, for each buffer."""
        self._down.follow()
        with self._down.copying():
            rows = self._rows(device)
            return [
                (host, self._down.down(each.gather(rows)))
                for pairs in self._mirrors.values()
                for host, each in pairs
            ]

    def _write(self, layer: int, host: torch.Tensor, device: Slots) -> None:
        """One layer's rows of host slots to device slots, in the lane of loads."""
        pairs = self._mirrors.get(layer, ())
        rows = self._rows(device)
        for memory, each in pairs:
            each.scatter(rows, self._up.up(memory.index_select(0, host)))

    # Inspection

    def snapshot(self) -> dict[str, Any]:
        """The bookkeeping as plain Python: that of `slots`, and the device slots in transfers."""
        with self.slots.lock:
            return {**self.slots.snapshot(), "device_pinned": self._device_pins.snapshot()}

    def audit(self) -> list[str]:
        """Recount everything from scratch: violated invariants, [] when healthy. O(size)."""
        found = self.slots.audit()
        due = self.size * self.size_per_token
        if self.get_size_bytes() != due:
            found.append(f"I61: {self.get_size_bytes()} bytes are there, {due} are reported")
        return found


class HostKVPool(HostPool):
    """The host's mirror of a KV pool, of every buffer that it has.

    `size` in slots, whole pages of the device pool's. `translate` makes rows of the device pool's
    ids where they aren't rows already; the pool's own `translate_kv_indices_for_transfer` unless
    another is given. Raises `NegativeSize`, `OutOfRange`, `NotPageMultiple`, `WrongDtype`.
    O(bytes). Spec: §4.
    """

    def __init__(self, device_pool: Any, size: int, *, translate: Translate | None = None) -> None:
        own = getattr(device_pool, "translate_kv_indices_for_transfer", None)
        super().__init__(
            device_pool.buffers,
            size,
            device_pool.page_size,
            device_size=device_pool.size,
            layers=range(device_pool.start_layer, device_pool.end_layer),
            device=torch.device(device_pool.device),
            translate=translate or own,
        )


class HostStatePool(HostPool):
    """The host's mirror of a pool of states and of its siblings, one slot a page.

    `size` in slots. Entries that belong to no layer are loaded with the first one. Raises
    `NegativeSize`, `OutOfRange`, `WrongDtype`. O(bytes). Spec: §4,
    `spec/pools_states_sizing.md` §3, §5.
    """

    def __init__(self, state_pool: Any, size: int) -> None:
        entries = list(state_pool.iter_transfer_state_entries())
        buffers = [plain(each.name, each.layer_id, each.tensor) for each in entries]
        layers = [each.layer for each in buffers if each.layer < MOST_LAYERS] or [0]
        super().__init__(
            buffers,
            size,
            1,
            device_size=state_pool.size,
            layers=range(min(layers), max(layers) + 1),
            device=state_pool.device,
        )
