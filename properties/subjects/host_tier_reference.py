"""The reference of the host tier behind the Subject interface: transfers are called by names."""

from __future__ import annotations

from typing import Any

from properties.commands import Call
from reference.host import Backup, HostPool, LayerGate, Load

NO_LAYER = 2**32 - 1


class HostTierReference:
    """A host pool, a gate for its layers, and the transfers under way or over."""

    def __init__(self, config: Any) -> None:
        buffers = [
            (name, config.start if layer == NO_LAYER else layer, width)
            for name, layer, width in config.buffers
        ]
        self.pool = HostPool(
            config.size, config.page_size, buffers, config.device_size, config.span
        )
        self.described = [[name, layer, width] for name, layer, width in config.buffers]
        self.gate = LayerGate(len(config.span))
        self.transfers: dict[int, Any] = {}

    @property
    def target(self) -> HostTierReference:
        """What a model reads: all of it."""
        return self

    def call(self, call: Call) -> Any:
        args = dict(call.args)
        if (content := args.pop("content", None)) is not None:
            self.pool.put(args["device_slots"], content)
        if (where := args.pop("where", None)) is not None:
            self.pool.relocate(where)
        name = args.pop("transfer", None)
        special = getattr(self, f"_{call.method}", None)
        if special is not None:
            return special(name, **args)
        if name is not None:
            return getattr(self.transfers[name], call.method)(**args)
        for each in (self.pool, self.gate, self.pool.slots):
            if hasattr(each, call.method):
                return getattr(each, call.method)(**args)
        raise AttributeError(call.method)

    def _start_backup(self, name: int, host_slots: list[int], device_slots: list[int]) -> None:
        self.transfers[name] = Backup(self.pool, host_slots, device_slots)

    def _start_load(
        self, name: int, host_slots: list[int], device_slots: list[int], gated: bool
    ) -> None:
        gate = self.gate if gated else None
        self.transfers[name] = Load(self.pool, host_slots, device_slots, gate)

    def _buffers(self, name: None) -> list[Any]:
        return [*self.described, self.pool.size_per_token]

    def observe(self) -> dict[str, Any]:
        shown = self.pool.snapshot()
        shown |= {"gate": self.gate.snapshot(), "available": self.pool.slots.available_size()}
        return shown
