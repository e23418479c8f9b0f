"""Room that a prefix cache makes in the sliding-window pair.

Spec: `spec/pools_states_sizing.md` §19, `spec/swa_unified.md` §2.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from impl import checks
from impl.allocators.swa_base import SWAPair


class EvictParams(NamedTuple):
    """Tokens that a prefix cache is asked to let go of, on either side."""

    num_tokens: int
    swa_num_tokens: int


class Tree(Protocol):
    """What an allocator asks of a prefix cache."""

    def supports_prefix_sharing(self) -> bool: ...

    def evict_for_alloc(self, params: EvictParams) -> Any: ...


class SWARoom(SWAPair):
    """A pair that knows what each of its sides lacks, and whom to ask for it."""

    def evict_to_free_tokens(self, tree_cache: Tree | None, num_tokens: int) -> None:
        """Have the cache let go of what each side lacks for `num_tokens` slots.

        Nothing without a cache that shares prefixes; rings are never evicted. Whether it was
        enough is for the caller to ask again. Raises `NegativeSize`, `WrongDtype`. Spec:
        `pools_states_sizing.md` §19.
        """
        size = checks.host_size(num_tokens, "num_tokens")
        if tree_cache is None or not tree_cache.supports_prefix_sharing():
            return
        full = max(0, size - self.full_available_size())
        windows = 0 if self.swa_req_ring else max(0, size - self.swa_available_size())
        if full or windows:
            tree_cache.evict_for_alloc(EvictParams(full, windows))

    def reclaim_for_prealloc(
        self, tree_cache: Tree, full_tokens: int, swa_tokens: int
    ) -> str | None:
        """Have the cache make room for `swa_tokens` windows; None when there is, else what lacks.

        The full side is the caller's budget: `full_tokens` isn't looked at. Raises `NegativeSize`,
        `WrongDtype`. Spec: `pools_states_sizing.md` §19.
        """
        checks.raise_first(
            checks.collected(
                lambda: checks.host_size(full_tokens, "full_tokens"),
                lambda: checks.host_size(swa_tokens, "swa_tokens"),
            )
        )
        short = swa_tokens - self.swa_available_size()
        if short > 0 and not self.swa_req_ring:
            tree_cache.evict_for_alloc(EvictParams(0, short))
        left = self.swa_available_size()
        if left >= swa_tokens:
            return None
        return f"windows short: {swa_tokens} needed, {left} available"
