"""The rows of a hybrid model as a subject: requests that live on, states whose bytes are a tag.

What our rows and SGLang's share: records with tensors, and methods of the rows or of their slots.
An adapter adds how they are made, what lies in the slots, and what of the books is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from impl.sizing import slots_needed
from properties.commands import Call
from properties.subjects.hybrid_reference import TRACKING, of_slots, parts
from properties.subjects.protocol import TensorSubject
from properties.subjects.state_records import Forward, Records, tag


class Tags(Protocol):
    """The bytes of states, every value of a slot being one tag."""

    def write(self, slots: Sequence[int], value: int) -> None:
        """Write a tag everywhere in some slots."""

    def tags(self) -> list[list[int]]:
        """Of each piece of a state the tags of all slots."""


class HybridSubject(TensorSubject):
    """Mixed into a subject whose target is the rows, and whose `slots` are their allocator."""

    slots: Any
    bytes: Tags

    def begin(self, config: Any) -> None:
        """What a constructor does last."""
        self.target.register_on_alloc_rows(_told)
        self.parts = parts(config)
        self.records = Records(plain_slots)
        self.forward = Forward(self.records, self.bytes.write)
        self.forward.poison(self.free_slots())

    def free_slots(self) -> list[int]:
        """The free list of the slots."""
        raise NotImplementedError

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
        self.forward.poison(self.free_slots())
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
            self.run_deferred(value)
            return tuple(super(HybridSubject, self).plain(each) for each in value)
        return super().plain(value)

    def _first_extend(self, names: Sequence[int], work: Any) -> Any:
        """What each request begins with; then a forward pass writes."""
        slots, tags = [self.records.slots(name)[0] for name in names], self.bytes.tags()
        seen = [sorted({each[slot] for each in tags}) for slot in slots]
        for name, slot in zip(names, slots, strict=True):
            self.bytes.write([slot], tag(name, 0))
        return (*work, seen)

    def run_deferred(self, work: tuple[torch.Tensor, ...]) -> None:
        """Clears, then copies: slots to clear, sources, targets."""
        self.target.run_deferred_mamba(work)

    def observe(self) -> dict[str, Any]:
        state = super().observe()
        state["records"] = self.records.all()
        state["bytes"] = dict(zip(self.parts, self.bytes.tags(), strict=True))
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
