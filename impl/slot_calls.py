"""What pools of bytes have in common that are written to by slots: faults that come later, streams.

Whose slots they are their allocator knows. Spec: `spec/core.md` §4.
"""

from __future__ import annotations

import torch

from impl import kernels
from impl.allocators.deferral import Deferral
from impl.allocators.stream import Stream
from impl.kernels import device as kernels_of
from impl.kernels.device.pages import UNCLAIMED


class SlotCalls:
    """Calls on slots 0..`slots` - 1 of a pool's tensors.

    With `backend="triton"` the launches of a call find what is wrong with its slots, and one
    that is refused writes nothing; the host hears of it later.
    """

    def __init__(self, slots: int, *, device: torch.device, backend: str, validate: bool) -> None:
        self.device = device
        self.validate = validate
        self.backend = kernels.resolve(backend, device)
        self._stream: Stream | None = None
        if self.backend == "triton":
            kernels_of.load()
            self.deferral = Deferral(
                device, page_size=1, validate=validate, way_on="recover() goes on without it"
            )
            self.claim = torch.full((slots,), UNCLAIMED, dtype=torch.int32, device=device)

    def enter(self) -> None:
        """Raise what has arrived; the first call says which stream is the pool's."""
        if self._stream is None:
            self._stream = Stream(self.device)
        self._stream.require()
        if self.backend == "triton":
            self.deferral.poll()

    def settle(self) -> None:
        """Wait for all calls so far, and raise the first fault of theirs."""
        if self.backend == "triton":
            self.deferral.check()

    def recover(self) -> None:
        """Forget a fault: its call and those behind it have written nothing."""
        if self.backend == "triton":
            self.deferral.recover()

    def audit(self) -> list[str]:
        """Claims left behind by a call."""
        if self.backend != "triton":
            return []
        left = (self.claim != UNCLAIMED).nonzero()[:, 0].tolist()
        return [f"I9: slot {slot} is claimed though no call is under way" for slot in left]
