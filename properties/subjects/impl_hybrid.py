"""Our rows of hybrid models as a subject, with a state pool whose every byte is a tag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from impl import MambaPool, NGramPool, ShortConvPool
from impl.hybrid_rows import HybridReqToTokenPool
from impl.states.base import SlotState
from impl.states.shapes import StateDType, StateParams, StateShape
from properties.subjects.hybrid import HybridSubject
from properties.subjects.hybrid_reference import LAYERS, parts, with_slots
from properties.subjects.impl import ImplHost

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


class ImplHybrid(HybridSubject, ImplHost):
    """`impl.HybridReqToTokenPool`, whose requests live from one call to the next."""

    bytes: StateBytes

    def __init__(self, config: Any, device: str, **options: Any) -> None:
        self.bytes = StateBytes(config, device, **options)
        super().__init__(
            HybridReqToTokenPool(
                config.size, 1, mamba_pool=self.bytes.pool, mamba_layer_ids=LAYERS, device=device,
                **config.options,
            ),
            device,
        )  # fmt: skip
        self.slots = self.target.mamba_allocator
        self.calls |= {name for name in dir(self.slots) if name[0] != "_"} | {"slots_needed"}
        self.begin(config)

    def free_slots(self) -> list[int]:
        found: list[int] = self.slots.snapshot()["free"]
        return found

    def settle(self) -> None:
        """The rows' books are the host's; the pool of bytes may have deferred something."""
        self.bytes.pool.check()

    def observe(self) -> dict[str, Any]:
        return with_slots(super().observe())

    def audit(self) -> list[str]:
        return super().audit() + self.bytes.pool.audit()
