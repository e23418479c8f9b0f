"""How much a model needs of each kind of memory (`pools_states_sizing.md` §17)."""

from reference.refusal import Refused, as_int


def get_mamba_tracking_slots(*, extra_buffer: bool, overlap: bool, lazy: bool = False) -> int:
    """The table of §17, line by line."""
    if not extra_buffer:
        return 0
    if lazy:
        return 1
    if overlap:
        return 2
    return 1


def slots_needed(num_without_state: int, num_without_tracking: int, tracking_slots: int) -> int:
    """One slot for each missing state, and for each missing buffer what it begins with (§4)."""
    counts = (num_without_state, num_without_tracking, tracking_slots)
    numbers = [number for count in counts if (number := as_int(count)) is not None]
    if any(number < 0 for number in numbers):
        raise Refused("NegativeSize")
    if len(numbers) < len(counts):
        raise Refused("WrongDtype")
    slots = 0
    for _ in range(num_without_state):
        slots += 1
    for _ in range(num_without_tracking):
        slots += tracking_slots
    return slots
