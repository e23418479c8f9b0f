"""Our rows of hybrid models as a subject: records with tensors, states whose bytes are a tag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from impl.hybrid_rows import HybridReqToTokenPool
from impl.sizing import slots_needed
from properties.commands import Call
from properties.subjects.hybrid_reference import LAYERS, TRACKING, of_slots
from properties.subjects.impl import ImplHost
from properties.subjects.state_records import Forward, Records, tag


class TagPool:
    """A state pool whose states are a number each, int64 [size + 1]."""

    def __init__(self, size: int, device: str) -> None:
        self.size = size
        self.tags = torch.zeros(size + 1, dtype=torch.int64, device=device)

    def clear_slots(self, idx: torch.Tensor) -> None:
        self.tags[idx] = 0

    def copy_from(self, src: torch.Tensor, dst: torch.Tensor) -> None:
        self.tags[dst] = self.tags[src]

    def mamba2_layer_cache(self, layer: int) -> Any:
        return self.tags


class ImplHybrid(ImplHost):
    """`impl.HybridReqToTokenPool`, whose requests live from one call to the next."""

    def __init__(self, config: Any, device: str) -> None:
        pool = TagPool(config.mamba_size, device)
        super().__init__(
            HybridReqToTokenPool(
                config.size, 1, mamba_pool=pool, mamba_layer_ids=LAYERS, device=device,
                **config.options,
            ),
            device,
        )  # fmt: skip
        self.target.register_on_alloc_rows(_told)
        self.slots = self.target.mamba_allocator
        self.pool = pool
        self.records = Records(plain_slots)
        self.forward = Forward(self.records, self._write)
        self.calls |= {name for name in dir(self.slots) if name[0] != "_"} | {"slots_needed"}
        self.forward.poison(self.slots.snapshot()["free"])

    def _write(self, slots: Sequence[int], value: int) -> None:
        self.pool.tags[list(slots)] = value

    def call(self, call: Call) -> Any:
        self.forward.before(call.method, call.args)
        value = super().call(call._replace(args=self._with_requests(call)))
        if call.method in TRACKING:
            record = self.records.shown(call.args["req"])
            value = (value, list(record[2]), record[6])
        elif call.method == "collect_deferred_mamba":
            value = self._first_extend(call.args["reqs"], value)
        elif call.method == "alloc" and "reqs" in call.args and value is not None:
            pairs = zip(call.args["reqs"], value, strict=True)
            value = [n for name, row in pairs for n in (row, *self.records.slots(name))]
        self.forward.poison(self.slots.snapshot()["free"])
        self.records.tidy(call.method == "clear")
        return value

    def _with_requests(self, call: Call) -> dict[str, Any]:
        args = self.records.arguments(call.args)
        if call.method == "write":
            rows, columns = args["indices"]
            lists = [
                self._tensor(x, "int64") if isinstance(x, list) else x for x in (rows, columns)
            ]
            args["indices"] = tuple(lists)
        return args

    def _arguments(self, args: Any, dtype: str) -> dict[str, Any]:
        """Requests and rows are the host's; the other lists become tensors."""
        kept = {name: args[name] for name in ("reqs", "indices") if name in args}
        return {
            **super()._arguments({k: v for k, v in args.items() if k not in kept}, dtype),
            **kept,
        }

    def method(self, name: str) -> Any:
        if name == "slots_needed":
            return slots_needed
        return _by_argument(self.target, self.slots, name)

    def plain(self, value: Any) -> Any:
        if isinstance(value, tuple) and all(isinstance(each, torch.Tensor) for each in value):
            self.target.run_deferred_mamba(value)
            return tuple(super(ImplHybrid, self).plain(each) for each in value)
        return super().plain(value)

    def _first_extend(self, names: Sequence[int], work: Any) -> Any:
        """What each request begins with; then a forward pass writes."""
        slots = [self.records.slots(name)[0] for name in names]
        seen = [int(self.pool.tags[slot]) for slot in slots]
        for name, slot in zip(names, slots, strict=True):
            self.pool.tags[slot] = tag(name, 0)
        return (*work, seen)

    def observe(self) -> dict[str, Any]:
        state = super().observe()
        state["records"] = self.records.all()
        state["bytes"] = self.pool.tags.tolist()
        return state


def plain_slots(value: Any) -> Any:
    """A record's tensor as a slot or a list of slots."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _by_argument(rows: Any, slots: Any, name: str) -> Any:
    """A method of the rows or of their slots: both have `alloc` and `free`."""

    def call(**args: Any) -> Any:
        return getattr(slots if of_slots(name, args) else rows, name)(**args)

    return call


def _told(rows: list[int]) -> None:
    """The one consumer of new rows."""
