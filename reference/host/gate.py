"""Which layers of which load have arrived (`interleave_hisparse_host_prefix.md` §4.6).

The pure model of it: three lists of booleans, and who looks at which.
"""

from typing import Any

from reference.refusal import Refused

SETS = 3


class LayerGate:
    """A reader of layer l may read while `ready(l)`; what comes before that, nobody may see."""

    producer: int
    consumer: int
    done: list[list[bool]]

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.reset()

    def reset(self) -> None:
        """Nobody loads, nobody waits, nothing is awaited."""
        self.producer = -1
        self.consumer = -1
        self.done = [[True] * self.layers for _ in range(SETS)]

    def update_producer(self) -> int:
        """The next set; all of an earlier load must have arrived in it."""
        following = (self.producer + 1) % SETS
        if not all(self.done[following]):
            raise Refused("StillOwned")
        self.producer = following
        self.done[following] = [False] * self.layers
        return following

    def complete(self, producer: int, layer: int) -> None:
        """A layer of a set is there, for the first time."""
        self.require(producer, range(SETS))
        self.require(layer, range(self.layers))
        if self.done[producer][layer]:
            raise Refused("Duplicate")
        self.done[producer][layer] = True

    def set_consumer(self, consumer: int) -> None:
        """The set that readers look at, -1 for none."""
        self.require(consumer, range(-1, SETS))
        self.consumer = consumer

    def ready(self, layer: int) -> bool:
        """Whether a reader may pass."""
        self.require(layer, range(self.layers))
        return self.consumer == -1 or self.done[self.consumer][layer]

    def wait_until(self, layer: int) -> None:
        """A reader passes; nobody here can wait, so it has to be ready."""
        assert self.ready(layer)

    def require(self, value: int, allowed: range) -> None:
        """No number but these."""
        if value not in allowed:
            raise Refused("OutOfRange")

    def snapshot(self) -> dict[str, Any]:
        """All that decides what readers see."""
        done = [list(each) for each in self.done]
        return {"producer": self.producer, "consumer": self.consumer, "done": done}
