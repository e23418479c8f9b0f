"""The write of a decode: captured once for each size of a padded batch, then replayed.

Its arguments are fixed tensors, into which each decode copies its own. Spec: `spec/core.md` §7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: writes values [layer, part, lane, …] to where the table says, by rows and positions [lane]
Store = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


class FixedStore:
    """A write to the slots that the table has, for batches of one size, of fixed tensors.

    Where there is a GPU it is captured once and replayed; elsewhere the same runs as it stands.
    """

    def __init__(self, store: Store, lanes: torch.Tensor, values: torch.Tensor) -> None:
        self._lanes = torch.zeros_like(lanes)
        self._values = torch.zeros_like(values)
        self._store = store
        self._graph: Any = None
        if lanes.device.type == "cuda":
            self._run()  # what is compiled is compiled now; all lanes are padded
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._run()

    def _run(self) -> None:
        self._store(self._lanes[0], self._lanes[1], self._values)

    def __call__(self, lanes: torch.Tensor, values: torch.Tensor) -> None:
        self._lanes.copy_(lanes)
        self._values.copy_(values)
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()
