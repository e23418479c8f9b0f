"""How much is needed, kept, let go: arithmetic that callers of the allocators share.

Spec: `spec/swa_unified.md` §10.2.
"""

from __future__ import annotations

from impl import checks


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
