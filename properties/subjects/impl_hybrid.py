"""Our rows of hybrid models as a subject: records with tensors, states whose bytes are a tag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from impl import MambaPool, NGramPool, ShortConvPool
from impl.hybrid_rows import HybridReqToTokenPool
from impl.sizing import slots_needed
from impl.states.base import SlotState
from impl.states.shapes import StateDType, StateParams, StateShape
from properties.commands import Call
from properties.subjects.hybrid_reference import LAYERS, TRACKING, of_slots, parts
from properties.subjects.impl import ImplHost
from properties.subjects.state_records import Forward, Records, tag

# The smallest state: one value in the temporal state, and one in the conv or in a sibling. More
# tensors are more kernels to interpret.
STATE: dict[str, Any] = {"temporal": (1, 1, 1), "conv_kernel": 2}
# Tags are whole numbers: 32 bits of a float hold far more of them than a run has.
DTYPE = StateDType(conv=torch.float32, temporal=torch.float32)


class StateBytes:
    """A state pool and its siblings, whose every value in a slot is the tag of the slot's state."""

    def __init__(self, config: Any, device: str, **options: Any) -> None:
        shape = StateShape(conv=((1, 1),) if "conv" in parts(config) else (), **STATE)
        params = StateParams(shape=shape, layers=LAYERS, dtype=DTYPE)
        shared: dict[str, Any] = {"size": config.mamba_size, "device": device, **options}
        self.pool = MambaPool(
            spec_state_size=0, cache_params=params, mamba_layer_ids=LAYERS, **shared
        )
        cache = self.pool.mamba_cache
        slots = config.mamba_size + 1
        #: tensors [pieces, slots]
        self.pieces = [each.view(1, slots) for each in (*cache.conv, cache.temporal)]
        for sibling in _siblings(config, shared):
            self.pool.register_slot_state(sibling)
            self.pieces.append(sibling._tensors()[0].view(1, slots))

    def write(self, slots: Sequence[int], value: int) -> None:
        at = torch.tensor(slots, device=self.pool.device)
        for each in self.pieces:
            each.index_fill_(1, at, value)

    def tags(self) -> list[list[int]]:
        """Of each piece the tags of all slots."""
        return [tags for each in self.pieces for tags in each.to(torch.int64).tolist()]


def _siblings(config: Any, shared: dict[str, Any]) -> Iterator[SlotState]:
    """The smallest siblings; a state that nobody wrote is 0 in all of them."""
    if config.short_conv:
        kind: dict[str, Any] = {"state_shape": (1, 1), "layer_ids": (0,), "dtype": torch.float32}
        yield ShortConvPool(**kind, **shared)
    if config.ngram:
        yield NGramPool(context_len=1, eos_token_id=0, **shared)


class ImplHybrid(ImplHost):
    """`impl.HybridReqToTokenPool`, whose requests live from one call to the next."""

    def __init__(self, config: Any, device: str, **options: Any) -> None:
        self.bytes = StateBytes(config, device, **options)
        super().__init__(
            HybridReqToTokenPool(
                config.size, 1, mamba_pool=self.bytes.pool, mamba_layer_ids=LAYERS, device=device,
                **config.options,
            ),
            device,
        )  # fmt: skip
        self.target.register_on_alloc_rows(_told)
        self.slots = self.target.mamba_allocator
        self.parts = parts(config)
        self.records = Records(plain_slots)
        self.forward = Forward(self.records, self.bytes.write)
        self.calls |= {name for name in dir(self.slots) if name[0] != "_"} | {"slots_needed"}
        self.forward.poison(self.slots.snapshot()["free"])

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
        slots, tags = [self.records.slots(name)[0] for name in names], self.bytes.tags()
        seen = [sorted({each[slot] for each in tags}) for slot in slots]
        for name, slot in zip(names, slots, strict=True):
            self.bytes.write([slot], tag(name, 0))
        return (*work, seen)

    def settle(self) -> None:
        """The rows' books are the host's; the pool of bytes may have deferred something."""
        self.bytes.pool.check()

    def observe(self) -> dict[str, Any]:
        state = super().observe()
        state["records"] = self.records.all()
        state["bytes"] = dict(zip(self.parts, self.bytes.tags(), strict=True))
        return state

    def audit(self) -> list[str]:
        return super().audit() + self.bytes.pool.audit()


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
