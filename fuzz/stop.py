"""Ctrl-C and SIGTERM: the first asks the run to end with its summary, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether the run was asked to end."""

    def __init__(self) -> None:
        self.asked = False
        #: set while nothing would be lost by being interrupted at once
        self.at_once = False

    def ask(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler."""
        again, self.asked = self.asked, True
        if again or self.at_once:
            raise KeyboardInterrupt

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A stretch that the first signal already interrupts."""
        self.at_once = True
        try:
            yield
        finally:
            self.at_once = False


@contextmanager
def listening() -> Iterator[Stop]:
    """A Stop that hears signals inside the block; only a main thread can install handlers."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
