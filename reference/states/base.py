"""What is done by state slots, and what is wrong with the slots of a call (§3, §5).

The content of a slot is a dict, part to list of numbers; lists are never changed in place. Slot 0
is a padded lane's: as a target it is left as it is, and nobody reads it into another slot.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reference.refusal import Fault, Refused, refuse_smallest

Content = dict[str, list[Any]]
Entry = tuple[str, int, int | None, int]
"""Of what a transfer moves: name, bytes of a slot, the axis that ranks share, layer."""


def target_faults(slots: Sequence[int], last: int, padding: int = 0) -> list[Fault]:
    """Targets of a call: rows there are, each once unless it is the padding."""
    faults: list[Fault] = []
    for at, slot in enumerate(slots):
        if not 0 <= slot <= last:
            faults.append(("OutOfRange", at))
        elif slot != padding and slot in slots[:at]:
            faults.append(("Duplicate", at))
    return faults


def source_faults(slots: Sequence[int], last: int) -> list[Fault]:
    """What a call reads: rows there are."""
    return [("OutOfRange", at) for at, slot in enumerate(slots) if not 0 <= slot <= last]


def pair_faults(src: Sequence[int], dst: Sequence[int], last: int) -> list[Fault]:
    """Sources and targets of a copy; a lane whose target is slot 0 does nothing."""
    faults = target_faults(dst, last) + source_faults(src, last)
    for at, (source, target) in enumerate(zip(src, dst, strict=True)):
        if target == 0:
            continue
        if source == 0:
            faults.append(("Reserved", at))
        elif source in dst:
            faults.append(("Duplicate", at))
    return faults


def reserved_faults(slots: Sequence[int]) -> list[Fault]:
    """A host copy is of requests' slots only."""
    return [("Reserved", at) for at, slot in enumerate(slots) if slot == 0]


class SlotState:
    """Slots 0..size, each with `fresh()` content at first; disabled it has none."""

    def __init__(self, size: int, fresh: Callable[[], Content], *, enabled: bool) -> None:
        self.size = size
        self.enabled = enabled
        self._fresh = fresh
        self.slots: list[Content] = []
        self.clear()

    def entries(self) -> list[Entry]:
        """What a transfer moves."""
        return []

    def clear(self) -> None:
        """All slots as if nobody had ever used them."""
        self.slots = [self._fresh() for _ in range(self.size + 1)] if self.enabled else []

    # --- with slots that are looked at ---

    def reset_slots(self, indices: Sequence[int]) -> None:
        """The named slots as if nobody had ever used them."""
        if self.enabled:
            refuse_smallest(target_faults(indices, self.size))
            self.reset(indices)

    def copy_slots(self, src_index: Sequence[int], dst_index: Sequence[int]) -> None:
        """The content of each source under its target."""
        if self.enabled:
            if len(src_index) != len(dst_index):
                raise Refused("BadLengths")
            refuse_smallest(pair_faults(src_index, dst_index, self.size))
            self.copy(src_index, dst_index)

    def get_cpu_slots(self, indices: Sequence[int]) -> list[Content] | None:
        """The content of the named slots."""
        if not self.enabled:
            return None
        refuse_smallest(source_faults(indices, self.size) + reserved_faults(indices))
        return self.saved(indices)

    def load_cpu_slots(self, data: Any, indices: Sequence[int]) -> None:
        """What `get_cpu_slots` gave, under the same or other slots."""
        if self.enabled:
            refuse_smallest(target_faults(indices, self.size) + reserved_faults(indices))
            refuse_smallest(self.payload_faults(data, len(indices)))
            self.restore(data, indices)

    # --- what a pool does for its siblings, with slots that it has looked at ---

    def reset(self, indices: Iterable[int]) -> None:
        for slot in indices:
            if slot != 0:
                self.slots[slot] = self._fresh()

    def copy(self, src: Sequence[int], dst: Sequence[int]) -> None:
        for source, target in zip(src, dst, strict=True):
            if target != 0:
                self.slots[target] = dict(self.slots[source])

    def saved(self, indices: Iterable[int]) -> list[Content]:
        return [dict(self.slots[slot]) for slot in indices]

    def restore(self, data: Sequence[Content], indices: Sequence[int]) -> None:
        for content, slot in zip(data, indices, strict=True):
            self.slots[slot] = dict(content)

    def payload_faults(self, data: Any, count: int) -> list[Fault]:
        """What is wrong with `data` as the content of `count` slots."""
        if not isinstance(data, list):
            return [("WrongDtype", 0)]
        shape = {part: len(values) for part, values in self._fresh().items()}
        if any({part: len(values) for part, values in each.items()} != shape for each in data):
            return [("WrongShape", 0)]
        return [("BadLengths", 0)] if len(data) != count else []

    def snapshot(self) -> dict[str, Any]:
        """All content: slots 1..size, the reserved one."""
        return {
            "state": [dict(content) for content in self.slots[1:]],
            "reserved": dict(self.slots[0]) if self.slots else {},
        }
