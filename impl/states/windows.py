"""Conv windows of the steps of a draft: one by one, or overlapping in memory.

The window of step t is inputs t..t+W-1 of a chain, so D windows are D + W - 1 inputs. Spec:
`spec/pools_states_sizing.md` §3, M4.
"""

from __future__ import annotations

import torch


class DraftWindows:
    """The windows of one conv of `shape` for `steps` steps of rows [layers, rows].

    `view` [layers, rows, steps, *shape] is what the steps are; `storage` is what they take. With
    an `axis`, the window's in `shape`, they overlap: one longer window for all steps.
    """

    def __init__(
        self,
        rows: tuple[int, int],
        steps: int,
        shape: tuple[int, ...],
        axis: int | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.steps, self.shape, self.axis = steps, tuple(shape), axis
        if axis is None:
            self.storage = torch.zeros((*rows, steps, *shape), dtype=dtype, device=device)
            self.view = self.storage
            return
        long = list(shape)
        long[axis] += steps - 1
        self.storage = torch.zeros((*rows, *long), dtype=dtype, device=device)
        self.view = self.overlapping()

    def overlapping(self) -> torch.Tensor:
        """The windows of the steps in the one long window."""
        assert self.axis is not None
        layer, row, *within = self.storage.stride()
        rows = self.storage.shape[:2]
        return self.storage.as_strided(
            (*rows, self.steps, *self.shape), (layer, row, within[self.axis], *within)
        )

    def audit(self) -> list[str]:
        """Steps whose windows aren't slices of the storage."""
        found = []
        for step in range(self.steps if self.axis is not None else 0):
            assert self.axis is not None
            due = self.storage.narrow(2 + self.axis, step, self.shape[self.axis])
            window = self.view[:, :, step]
            where = (window.storage_offset(), window.stride(), window.data_ptr())
            if where != (due.storage_offset(), due.stride(), due.data_ptr()):
                found.append(f"I57: the window of draft step {step} isn't at input {step}")
        return found
