"""The recount that every `audit()` starts with: I1, I2, I3, I34 of `bugs.md`, id by id."""

from collections import Counter
from collections.abc import Iterable, Set


def partition_faults(noun: str, listed: Iterable[int], held: Set[int], count: int) -> list[str]:
    """What keeps `listed` (free, staged, parked) and `held` from partitioning `1..count`."""
    times = Counter(listed)
    found, legal = set(times), set(range(1, count + 1))
    kinds = {
        "I1: {} are listed twice": {number for number in found if times[number] > 1},
        "I3: {} are listed or held and can't exist": (found | held) - legal,
        "I34: {} are held and listed": found & held,
        "I2: {} are neither listed nor held": legal - found - held,
    }
    return [text.format(f"{noun}s {sorted(numbers)}") for text, numbers in kinds.items() if numbers]
