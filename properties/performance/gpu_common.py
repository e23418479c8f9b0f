"""What the parts of the GPU script share: what must hold, what may not wait, graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from impl import PoolError

Save = Callable[[Any], None]
Check = Callable[[torch.device, Save], None]

#: long enough on any GPU that the host has made its next calls before the device gets to them
DEVICE_BUSY_CYCLES = 200_000_000


class CheckFailed(AssertionError):
    """Something that must hold on a GPU doesn't."""


def require(holds: bool, what: str) -> None:
    """Fail with `what` unless it holds."""
    if not holds:
        raise CheckFailed(what)


def busy(device: torch.device) -> None:
    """Give the device something to do, so that the host is far ahead of it."""
    if device.type == "cuda":
        torch.cuda._sleep(DEVICE_BUSY_CYCLES)  # type: ignore[no-untyped-call]


def waits(device: torch.device, first: Callable[[], object], second: Callable[[], object]) -> str:
    """What the second of two calls waits for, in torch's words; "" when it doesn't."""
    first()
    torch.cuda.synchronize(device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        second()
    except RuntimeError as error:
        return str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def capture(
    forward: Callable[[], None], forbidden: Callable[[], object]
) -> tuple[Callable[[], None], str]:
    """Capture `forward`; gives what replays it, and how `forbidden` is refused meanwhile."""
    forward()
    captured = torch.cuda.CUDAGraph()
    refused = ""
    with torch.cuda.graph(captured):
        forward()
        try:
            forbidden()
        except PoolError as error:
            refused = str(error)
    return captured.replay, refused
