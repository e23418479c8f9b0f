"""How much a model needs of each kind of memory, what is kept and let go: arithmetic for callers.

Follows `spec/pools_states_sizing.md` §17 and `spec/swa_unified.md` §10.2.
"""

from reference.refusal import Fault, Refused, as_int, refuse_smallest


def window_frontier(n: int, window: int, page_size: int, bigram: bool) -> int:
    """The first position whose window slot is kept by a request of `n` tokens.

    A window, and at least a page, stays below the last whole page that a prefix cache will take;
    with bigram keys that cache sees one token fewer.
    """
    numbers = (n, window, page_size)
    faults: list[Fault] = [("WrongDtype", 0) for number in numbers if as_int(number) is None]
    faults += [
        ("NegativeSize", 0)
        for number, least in zip(numbers, (0, 1, 1), strict=True)
        if as_int(number) is not None and number < least
    ]
    refuse_smallest(faults)
    keys = max(0, n - 1) if bigram else n
    whole_pages = keys // page_size
    kept_pages = max(1, -(-window // page_size))
    return max(0, whole_pages - kept_pages) * page_size


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
