"""Where a host pool copies: on a CUDA stream of its own, or simply here.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.6 (engine).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Lane:
    """Copies of one direction, in their order, beside the caller's stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def follow(self) -> None:
        """What is copied from now on comes behind the caller's work so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Copies that are begun inside are the lane's; an error drains it."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            try:
                yield
            except BaseException:
                self._stream.synchronize()
                raise

    def down(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of the device on the host, once the lane has been waited for."""
        if self._stream is None:
            return rows
        found = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        return found.copy_(rows, non_blocking=True)

    def up(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of the host on the device, behind what the lane has to do."""
        if self._stream is None:
            return rows
        return rows.pin_memory().to(self._device, non_blocking=True)

    def wait(self) -> None:
        """Until all that was begun is done."""
        if self._stream is not None:
            self._stream.synchronize()
