"""How much a model needs of each kind of memory, what is kept and let go: arithmetic for callers.

Spec: `spec/pools_states_sizing.md` §17, `spec/swa_unified.md` §10.2.
"""

from __future__ import annotations

from impl import checks


def get_mamba_tracking_slots(*, extra_buffer: bool, overlap: bool, lazy: bool = False) -> int:
    """State slots that a request tracks its state in from the start: 0, 1 or 2.

    None without an extra buffer; one where the second is taken when it is needed (`lazy`), or
    where nothing overlaps; else two. Spec: §17.
    """
    if not extra_buffer:
        return 0
    return 2 if overlap and not lazy else 1


def slots_needed(num_without_state: int, num_without_tracking: int, tracking_slots: int) -> int:
    """State slots that admitting a batch of requests takes.

    `num_without_state` of them have no slot for their state yet, `num_without_tracking` no slots
    to track it in, of which each gets `tracking_slots` (`get_mamba_tracking_slots`). Raises
    `NegativeSize`, `WrongDtype`. O(1). Spec: §4 (`alloc`), H7.
    """
    states = checks.host_size(num_without_state, "num_without_state")
    tracked = checks.host_size(num_without_tracking, "num_without_tracking")
    return states + tracked * checks.host_size(tracking_slots, "tracking_slots")


def window_frontier(n: int, window: int, page_size: int, bigram: bool) -> int:
    """The first position whose window slot a request of `n` tokens keeps: free those below it.

    All in tokens. At a page border, never going back as `n` grows; a window, and at least a page,
    stays below the last border up to which a prefix cache takes the request, whose keys are pairs
    of tokens, one fewer, if `bigram`. Raises `NegativeSize`, `WrongDtype`. O(1). Spec: §10.2.
    """
    checks.raise_first(
        checks.collected(
            lambda: checks.host_size(n, "n"),
            lambda: checks.host_size(window, "window", least=1),
            lambda: checks.host_size(page_size, "page_size", least=1),
        )
    )
    kept = -(-max(window, page_size) // page_size) * page_size
    frontier = n - bool(bigram) - kept
    return max(0, frontier // page_size * page_size)
