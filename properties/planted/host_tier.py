"""Bugs of the host tier, and of those who call it.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.
"""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

TIER = "host_tier"
SLOTS = "host.slots:HostSlots"
POOL = "host.pool:HostPool"
LOAD = "host.transfers:Load"
BACKUP = "host.transfers:Backup"
TRANSFER = "host.transfers:_Transfer"
GATE = "host.gate:LayerGate"
SEVERAL = {"layers": (2, 3), "stride": (1,)}
MOVING = {"virtual": (True,), "kind": (0, 1), "device_pages": (2, 3)}
PAGES = {"page_size": (2, 3, 4), "kind": (0, 1)}

BUGS = (
    Bug("a hand-out of host slots is a view of the free list", TIER, "I54", edit(
        f"{SLOTS}.alloc", "self._ring.numpy()[self._places(self._head, num_pages)]",
        "self._ring.numpy()[(at := self._head % self.num_pages) : at + num_pages]",
        "(pages[:, None] * self.page_size + self._offsets).ravel()", "pages",
    ), entry=53, also=("I6",), limits={"page_size": (1,)}),
    Bug("a flush leaves host slots with whom it took them from", TIER, "I66", edit(
        f"{SLOTS}.clear", "self._ring = torch.arange(self.num_pages)",
        "if hasattr(self, '_ring'):\n            return\n"
        "        self._ring = torch.arange(self.num_pages)",
    ), entry=56),
    Bug("a prefetch's host slots are released in two functions", TIER, "I5", entry=52,
        faulty="release_twice"),
    Bug("a host slot may be freed again", TIER, "I4", edit(
        f"{SLOTS}._faults", "state == FREE, ", "state > OUT, ",
    )),
    Bug("a host slot may be named twice", TIER, "I4", edit(
        f"{SLOTS}._faults", "if writing:", "if writing and not whole:",
    )),
    Bug("host slots go back one by one", TIER, "I4", edit(
        f"{SLOTS}._faults", "if whole:", "if False:",
    ), limits=PAGES),
    Bug("a host slot that is read may go", TIER, "I4", edit(
        f"{SLOTS}._faults", "self._busy(slots, inside, writing)",
        "self._busy(slots, inside, writing and not whole)",
    )),
    Bug("any number is a host slot", TIER, "I4", edit(
        f"{SLOTS}._faults", "(~inside, ", "(inside & False, ",
    )),
    Bug("more host slots are given than are free", TIER, "I8", edit(
        f"{SLOTS}.alloc", "> self._num_free", "> self.num_pages",
    )),
    Bug("the last host page is never used", TIER, "I11", edit(
        f"{SLOTS}.alloc", "num_pages > self._num_free", "num_pages >= max(1, self._num_free)",
    )),
    Bug("host pages come back first", TIER, "I71", edit(
        f"{SLOTS}.free", "end = self._head + self._num_free",
        "end = self._head = self._head - len(pages)",
    ), False),
    Bug("freed host slots have an owner still", TIER, "I34", edit(
        f"{SLOTS}.free", "self._pages[pages] = FREE", "pass",
    ), also=("I4",)),
    Bug("a page of the host is torn where the ring closes", TIER, "I2", edit(
        f"{SLOTS}._places", "np.arange(start, start + count) % max(1, self.num_pages)",
        "np.arange(start := start % max(1, self.num_pages), "
        "min(start + count, self.num_pages))",
    ), also=("I6", "I11")),
    Bug("a backup leaves layers out", TIER, "I38", edit(
        f"{POOL}._read", "for pairs in self._mirrors.values()",
        "for pairs in list(self._mirrors.values())[:1]",
    ), limits=SEVERAL, also=("I37",)),
    Bug("a backup leaves values out", TIER, "I38", edit(
        f"{POOL}._read", "for host, each in pairs", "for host, each in pairs[:1]",
    ), limits={"kind": (0,), "virtual": (False,)}),
    Bug("a load leaves values out", TIER, "I38", edit(
        f"{POOL}._write", "for memory, each in pairs:", "for memory, each in pairs[:1]:",
    ), limits={"kind": (0,), "virtual": (False,)}),
    Bug("a backup comes back in reverse", TIER, "I38", edit(
        f"{BACKUP}.finish", "memory.index_copy_(0, self._host, rows)",
        "memory.index_copy_(0, self._host, rows.flip(0))",
    ), limits={"virtual": (False,)}),
    Bug("a backup reads what is there at its end", TIER, "I65", edit(
        f"{POOL}._pin", "self._device_pins.pin(device, writing=loading)",
        "self._device_pins.pin(device[:0], writing=loading)",
    )),
    Bug("a load doesn't pin what it reads", TIER, "I65", edit(
        f"{POOL}._pin", "self.slots._pins.pin(host, writing=not loading)",
        "self.slots._pins.pin(host[:0], writing=not loading)",
    )),
    Bug("slots stay pinned behind a transfer", TIER, "I65", edit(
        f"{TRANSFER}._let_go", "pool._unpin(host, device, loading=self._loading)", "pass",
    )),
    Bug("a load that the gate refuses keeps its pins", TIER, "I9", edit(
        f"{LOAD}.__init__", "self._let_go()", "pass",
    )),
    Bug("ids are taken for rows", TIER, "I37", edit(
        f"{POOL}._rows", "ids if self._translate is None else", "ids if True else",
    ), limits=MOVING),
    Bug("ids are made rows twice", TIER, "I37", edit(
        f"{POOL}._write", "self._rows(device)", "self._rows(self._rows(device).numpy())",
    ), limits=MOVING),
    Bug("a load may go to the device's first page", TIER, "I4", edit(
        f"{POOL}._device_faults", "slots < self.page_size", "slots < 0",
    )),
    Bug("a load may go where another one goes", TIER, "I4", edit(
        f"{POOL}._device_faults", "self._device_pins.busy(slots, writing)", "slots < 0",
    )),
    Bug("a finish doesn't ask for all layers", TIER, "I4", edit(
        f"{LOAD}.finish", "set(self.layers) - self._arrived", "set()",
    )),
    Bug("a layer opens the gate for the next one", TIER, "I60", edit(
        f"{LOAD}.layer", "at - self.layers.start)",
        "(at + 1 - self.layers.start) % len(self.layers))",
    ), limits=SEVERAL, also=("I1",)),
    Bug("a set of the gate is open from the last load", TIER, "I60", edit(
        f"{GATE}.update_producer", "self._done[following] = [False] * self.layers", "pass",
    )),
    Bug("a set of the gate is taken before it is drained", TIER, "I4", edit(
        f"{GATE}.update_producer", "if not all(", "if False and not all(",
    )),
    Bug("readers wait for the set that is being loaded", TIER, "I60", edit(
        f"{GATE}.ready", "self._arrived(self.consumer, at)", "self._arrived(self.producer, at)",
    )),
    Bug("the bytes of the host are counted without values", TIER, "I61", edit(
        f"{POOL}.get_size_bytes", "for each in self.buffers", "for each in self.buffers[:1]",
    ), limits={"kind": (0,)}),
)  # fmt: skip
