"""The layer gate: what lets a forward begin while the last layers are still on their way.

Spec: `spec/interleave_hisparse_host_prefix.md` §4.6 (layer counter), HT-7.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from impl import checks
from impl.errors import Duplicate, OutOfRange, StillOwned

NUM_SETS = 3
OFF = -1
"""A consumer that waits for nothing."""


class LayerGate:
    """`NUM_SETS` rotating sets of `layers` marks: which layers of a load have arrived.

    The loading thread takes a set (`update_producer`) and marks its layers (`complete`); the
    thread of the forward chooses a set (`set_consumer`) and waits (`wait_until`). On CUDA a mark
    is an event of the stream that loads, and a wait makes the caller's stream wait for it, after
    the host has seen it recorded; on the CPU the caller itself waits. Each method may be called
    by any thread. Raises `NegativeSize` below one layer, `WrongDtype`. Spec: §4.6.
    """

    def __init__(self, layers: int, *, device: torch.device | str = "cpu") -> None:
        self.layers = checks.host_size(layers, "layers", 1)
        self._on_cuda = torch.device(device).type == "cuda"
        self._changed = threading.Condition()
        self._events: list[list[Any]] = [[None] * self.layers for _ in range(NUM_SETS)]
        self.reset()

    def reset(self) -> None:
        """Both indices off, every set as if drained: for loads given up. O(layers). Spec: §4.6."""
        with self._changed:
            self.producer = self.consumer = OFF
            self._done = [[True] * self.layers for _ in range(NUM_SETS)]
            self._changed.notify_all()

    def update_producer(self) -> int:
        """The next set, none of its layers arrived; its number.

        Raises `StillOwned` while layers of an earlier load are awaited in it. O(layers). §4.6.
        """
        with self._changed:
            following = (self.producer + 1) % NUM_SETS
            if not all(map(self._arrived, [following] * self.layers, range(self.layers))):
                found = f"update_producer: set {following} awaits layers of an earlier load"
                raise StillOwned(f"{found}. Finish that one, or reset.")
            self._done[following] = [False] * self.layers
            self.producer = following
            return following

    def complete(self, producer: int, layer: int) -> None:
        """A layer of set `producer` is there, in the order of the caller's CUDA stream.

        `layer` counts from 0. Raises `OutOfRange`, `Duplicate` for one that is there, `WrongDtype`.
        O(1). Spec: §4.6.
        """
        chosen = _within(producer, "producer", range(NUM_SETS))
        at = _within(layer, "layer", range(self.layers))
        with self._changed:
            if self._done[chosen][at]:
                found = f"complete: layer {at} of set {chosen} is there"
                raise Duplicate(f"{found}. Take a set by update_producer for each load.")
            if self._on_cuda:
                event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
                self._events[chosen][at] = event
            self._done[chosen][at] = True
            self._changed.notify_all()

    def set_consumer(self, consumer: int) -> None:
        """Wait for the layers of this set from now on; -1: for none.

        Raises `OutOfRange`, `WrongDtype`. O(1). Spec: §4.6.
        """
        self.consumer = _within(consumer, "consumer", range(OFF, NUM_SETS))

    def ready(self, layer: int) -> bool:
        """Whether `wait_until` would let a reader of this layer pass at once.

        Raises `OutOfRange`, `WrongDtype`. O(1). Spec: §4.6, HT-7.
        """
        at = _within(layer, "layer", range(self.layers))
        return self.consumer == OFF or self._arrived(self.consumer, at)

    def wait_until(self, layer: int) -> None:
        """Wait until a layer of the chosen set is there: who reads it next, reads what was loaded.

        Raises `OutOfRange`, `WrongDtype`. Spec: §4.6, HT-7.
        """
        at = _within(layer, "layer", range(self.layers))
        if self.consumer == OFF:
            return
        chosen = self.consumer
        with self._changed:
            self._changed.wait_for(lambda: self._done[chosen][at])
        if event := self._events[chosen][at]:
            torch.cuda.current_stream().wait_event(event)

    def _arrived(self, chosen: int, layer: int) -> bool:
        event = self._events[chosen][layer]
        return self._done[chosen][layer] and (event is None or event.query())

    def snapshot(self) -> dict[str, Any]:
        """Both indices, and for each set which layers have been marked. O(layers)."""
        with self._changed:
            done = [list(each) for each in self._done]
            return {"producer": self.producer, "consumer": self.consumer, "done": done}


def _within(value: Any, name: str, allowed: Sequence[int]) -> int:
    number = checks.host_int(value, name)
    if number not in allowed:
        raise OutOfRange(f"{name} {number} is outside {allowed[0]}..{allowed[-1]}.")
    return number
