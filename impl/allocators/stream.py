"""The stream that a pool is used on. Spec: DESIGN's value faults."""

from __future__ import annotations

import torch

from impl.errors import Unsupported


class Stream:
    """The stream that an allocator was made on, and must be used on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def require(self) -> None:
        """`Unsupported` under stream capture, or on another stream."""
        if self._stream is None:
            return
        if torch.cuda.is_current_stream_capturing():
            raise Unsupported(
                "a pool can't be used while a graph is captured: a replay would hand the same "
                "pages out again. Allocate before the capture."
            )
        if torch.cuda.current_stream(self._device) != self._stream:
            raise Unsupported(
                "a pool was used on another stream than the one it was made on. Use that one."
            )
