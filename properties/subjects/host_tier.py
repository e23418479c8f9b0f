"""Our own host tier as a subject, beside a device pool that only has bytes.

A call names transfers; here the objects live from one call to the next. What a forward writes on
the device, and where a pool of virtual ids moves its rows, comes with the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from impl import MambaPool, NGramPool
from impl.host.gate import LayerGate
from impl.host.pool import HostKVPool, HostStatePool
from impl.states.shapes import StateDType, StateParams, StateShape
from impl.storage.buffers import KVBuffer, plain
from properties.commands import Call
from properties.subjects.impl import ImplHost, storages_of
from properties.subjects.protocol import TensorSubject

STATES = 2


class HostTierSubject(ImplHost):
    """A host pool, a gate for its layers, and the transfers under way or over."""

    def __init__(self, config: Any, device: str) -> None:
        self.config = config
        self.where = torch.arange(config.device_size + config.page_size, device=device)
        self.memory: list[KVBuffer] = []
        pool = self._states(device) if config.kind == STATES else self._kv(device)
        super().__init__(pool, device, pool.slots)
        self.gate = LayerGate(len(config.span), device=device)
        self.transfers: dict[int, Any] = {}
        self.calls |= {
            *dir(pool.slots), *dir(self.gate), "layer", "finish", "cancel",
        }  # fmt: skip

    def _kv(self, device: str) -> HostKVPool:
        rows = self.config.device_size + self.config.page_size
        self.memory = [
            plain(name, layer, torch.zeros(rows, 1, width, dtype=torch.uint8, device=device))
            for name, layer, width in self.config.buffers
        ]
        pool = SimpleNamespace(
            buffers=self.memory, size=self.config.device_size, page_size=self.config.page_size,
            start_layer=self.config.span.start, end_layer=self.config.span.stop, device=device,
        )  # fmt: skip
        if self.config.virtual:
            pool.translate_kv_indices_for_transfer = lambda ids: self.where[ids]
        return HostKVPool(pool, self.config.size)

    def _states(self, device: str) -> HostStatePool:
        config = self.config
        shape = StateShape(conv=((config.width, 1),), temporal=(1, 1, 1), conv_kernel=2)
        wide = StateDType(conv=torch.float32, temporal=torch.float32)
        pool = MambaPool(
            size=config.device_size, spec_state_size=1, mamba_layer_ids=config.layer_ids,
            cache_params=StateParams(shape=shape, layers=config.layer_ids, dtype=wide),
            device=device,
        )  # fmt: skip
        pool.register_slot_state(
            NGramPool(
                size=config.device_size,
                context_len=1,
                eos_token_id=0,
                spec_state_size=1,
                device=device,
            )
        )
        entries = pool.iter_transfer_state_entries()
        self.memory = [plain(each.name, each.layer_id, each.tensor) for each in entries]
        return HostStatePool(pool, config.size)

    def call(self, call: Call) -> Any:
        self._shared = ""
        args = dict(call.args)
        if (content := args.pop("content", None)) is not None:
            self._put(args["device_slots"], content)
        if (where := args.pop("where", None)) is not None:
            self._relocate(where)
        name = args.pop("transfer", None)
        self.chosen = self._owner(call.method, name)
        if call.method in ("buffers", "size_per_token"):
            return self._described()
        if "gated" in args:
            args["gate"] = self.gate if args.pop("gated") else None
        if call.method == "wait_until" and not self.gate.ready(args["layer"]):
            raise RuntimeError("a reader of a layer that is there waits for ever")
        value = TensorSubject.call(self, call._replace(args=args))
        if call.method.startswith("start_"):
            self.transfers[name] = value
            return None
        if call.method == "clear":
            self._own = storages_of(*self._parts)
        return value

    def _owner(self, method: str, name: int | None) -> Any:
        if method in ("layer", "finish", "cancel"):
            return self.transfers[name or 0]
        owners = (self.target, self.gate, self.target.slots)
        return next(each for each in owners if hasattr(each, method))

    def method(self, name: str) -> Any:
        return getattr(self.chosen, name)

    def _put(self, device_slots: list[int], content: Sequence[Any]) -> None:
        """What a forward writes: [buffer][slot] rows of bytes."""
        slots = self.where[torch.tensor(device_slots, dtype=torch.int64, device=self.device)]
        for each, rows in zip(self.memory, content, strict=True):
            data = torch.tensor(rows, dtype=torch.uint8, device=self.device)
            each.scatter(slots, data.view(each.rows.dtype))

    def _relocate(self, where: Sequence[int]) -> None:
        moved = torch.tensor(where, dtype=torch.int64, device=self.device)
        for each in self.memory:
            each.scatter(moved, each.gather(self.where))
        self.where = moved

    def _described(self) -> list[Any]:
        rows = [[each.name, each.layer, each.row_bytes] for each in self.target.buffers]
        order = {(each.name, each.layer): at for at, each in enumerate(self.memory)}
        rows.sort(key=lambda row: order[row[0], row[1]])
        return [*rows, self.target.size_per_token]

    def plain(self, value: Any) -> Any:
        """Answers about slots are bools."""
        if isinstance(value, torch.Tensor) and value.dtype == torch.bool:
            return value.tolist()
        return super().plain(value)

    def observe(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.target.snapshot()
        host = {(each.name, each.layer): each.rows[:, 0] for each in self.target.buffers}
        shown["host"] = [as_bytes(host[each.name, each.layer]) for each in self.memory]
        shown["device"] = [as_bytes(each.gather(self.where)) for each in self.memory]
        shown["gate"] = self.gate.snapshot()
        shown["available"] = self.target.slots.available_size()
        return shown


def as_bytes(words: torch.Tensor) -> list[list[int]]:
    """Rows of words as rows of bytes."""
    found: list[list[int]] = words.contiguous().view(torch.uint8).tolist()
    return found
