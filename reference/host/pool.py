"""Bytes of a device pool and their mirror on the host (`interleave_hisparse_host_prefix.md` §4.6).

A row is a list of bytes, replaced as a whole. `where` says in which row a device id lies: pools
that relocate pages change it, between transfers or before the first copy of one.
"""

from collections.abc import Sequence
from typing import Any

from reference.host.gate import LayerGate
from reference.host.slots import HostSlots
from reference.refusal import Fault, Refused, refuse_smallest

Buffer = tuple[str, int, int]
"""Name, layer, bytes of a row."""
Row = list[int]


class HostPool:
    """The rows of some buffers, on the device and on the host."""

    def __init__(
        self, size: int, page_size: int, buffers: Sequence[Buffer], device_size: int, layers: range
    ) -> None:
        self.slots = HostSlots(size, page_size)
        self.buffers = list(buffers)
        self.layers = layers
        self.num_device = device_size + page_size
        self.where = list(range(self.num_device))
        self.device: list[list[Row]] = [
            [[0] * width for _ in range(self.num_device)] for _, _, width in buffers
        ]
        self.host: list[list[Row]] = [[[0] * width for _ in range(size)] for *_, width in buffers]
        self.device_readers: list[int] = []
        self.device_written: set[int] = set()

    # --- transfers ---

    def backup(self, host_slots: Sequence[int], device_slots: Sequence[int]) -> None:
        """All layers at once."""
        Backup(self, host_slots, device_slots).finish()

    def load(self, host_slots: Sequence[int], device_slots: Sequence[int], layer: int) -> None:
        """One layer; nothing, if it isn't here."""
        load = Load(self, host_slots, device_slots)
        if layer in self.layers:
            load.layer(layer)
        load.cancel()

    def in_transfer(self, device_slots: Sequence[int]) -> list[bool]:
        """Which device slots must stay where they are."""
        refuse_smallest(self.outside(device_slots))
        return [slot in self.device_readers or slot in self.device_written for slot in device_slots]

    def pin(self, host: Sequence[int], device: Sequence[int], loading: bool) -> None:
        """A transfer begins, or is refused."""
        if len(host) != len(device):
            raise Refused("BadLengths")
        refuse_smallest(
            self.slots.faults(host, writing=not loading) + self.device_faults(device, loading)
        )
        if loading:
            self.slots.readers += host
            self.device_written.update(device)
        else:
            self.slots.written.update(host)
            self.device_readers += device

    def unpin(self, host: Sequence[int], device: Sequence[int], loading: bool) -> None:
        """It is over."""
        if loading:
            for slot in host:
                self.slots.readers.remove(slot)
            self.device_written.difference_update(device)
        else:
            self.slots.written.difference_update(host)
            for slot in device:
                self.device_readers.remove(slot)

    def device_faults(self, slots: Sequence[int], writing: bool) -> list[Fault]:
        """What is wrong with device slots that a transfer reads or writes."""
        found = self.outside(slots)
        for at, slot in enumerate(slots):
            if 0 <= slot < self.slots.page_size:
                found.append(("Reserved", at))
            if writing and slot in slots[:at]:
                found.append(("Duplicate", at))
            if slot in self.device_written or (writing and slot in self.device_readers):
                found.append(("StillOwned", at))
        return found

    def outside(self, slots: Sequence[int]) -> list[Fault]:
        """Slots that the device hasn't."""
        return [
            ("OutOfRange", at) for at, slot in enumerate(slots) if not 0 <= slot < self.num_device
        ]

    # --- the device ---

    def put(self, device_slots: Sequence[int], content: Sequence[Sequence[Row]]) -> None:
        """What a forward writes: [buffer][slot] rows."""
        for rows, written in zip(self.device, content, strict=True):
            for slot, row in zip(device_slots, written, strict=True):
                rows[self.where[slot]] = list(row)

    def relocate(self, where: Sequence[int]) -> None:
        """Ids lie in other rows from now on, with what is there."""
        for at, rows in enumerate(self.device):
            moved = list(rows)
            for slot, row in enumerate(where):
                moved[row] = rows[self.where[slot]]
            self.device[at] = moved
        self.where = list(where)

    def get_size_bytes(self) -> int:
        """Bytes of the host's rows."""
        return self.slots.size * self.size_per_token

    @property
    def size_per_token(self) -> int:
        """Bytes of a slot."""
        return sum(width for *_, width in self.buffers)

    def snapshot(self) -> dict[str, Any]:
        """The bookkeeping and all content; that of the device by ids."""
        pinned = {slot: self.device_readers.count(slot) for slot in self.device_readers}
        return {
            **self.slots.snapshot(),
            "device_pinned": {**pinned, **dict.fromkeys(self.device_written, -1)},
            "host": [list(rows) for rows in self.host],
            "device": [[rows[row] for row in self.where] for rows in self.device],
        }


class Backup:
    """Device rows as they were at the start become the host's at the finish."""

    def __init__(self, pool: HostPool, host: Sequence[int], device: Sequence[int]) -> None:
        pool.pin(host, device, loading=False)
        self.pool, self.host, self.device = pool, list(host), list(device)
        self.read = [[rows[pool.where[slot]] for slot in device] for rows in pool.device]
        self.open = True

    def finish(self) -> None:
        """All buffers, and the slots are let go."""
        if not self.open:
            raise Refused("StaleHandle")
        for rows, read in zip(self.pool.host, self.read, strict=True):
            for slot, row in zip(self.host, read, strict=True):
                rows[slot] = row
        self.open = False
        self.pool.unpin(self.host, self.device, loading=False)


class Load:
    """Host rows become the device's, layer by layer."""

    def __init__(
        self,
        pool: HostPool,
        host: Sequence[int],
        device: Sequence[int],
        gate: LayerGate | None = None,
    ) -> None:
        pool.pin(host, device, loading=True)
        self.pool, self.host, self.device, self.gate = pool, list(host), list(device), gate
        self.arrived: set[int] = set()
        self.open = True
        try:
            self.producer = gate.update_producer() if gate is not None else None
        except Refused:
            self.cancel()
            raise

    def layer(self, layer: int) -> None:
        """Every buffer of the layer; then readers may know."""
        if not self.open:
            raise Refused("StaleHandle")
        if layer not in self.pool.layers:
            raise Refused("OutOfRange")
        if layer in self.arrived:
            raise Refused("Duplicate")
        for at, (_, number, _) in enumerate(self.pool.buffers):
            if number == layer:
                for slot, target in zip(self.host, self.device, strict=True):
                    self.pool.device[at][self.pool.where[target]] = self.pool.host[at][slot]
        self.arrived.add(layer)
        if self.gate is not None and self.producer is not None:
            self.gate.complete(self.producer, layer - self.pool.layers.start)

    def finish(self) -> None:
        """All layers are there."""
        if not self.open:
            raise Refused("StaleHandle")
        if self.arrived != set(self.pool.layers):
            raise Refused("BadLengths")
        self.cancel()

    def cancel(self) -> None:
        """The slots are let go, whatever has been copied."""
        if not self.open:
            raise Refused("StaleHandle")
        self.open = False
        self.pool.unpin(self.host, self.device, loading=True)
