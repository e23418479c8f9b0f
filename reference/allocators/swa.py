"""The sliding-window pair, one token at a time (`spec/swa_unified.md` §2).

Two allocators in lockstep: whoever takes a full slot takes a window slot with it, until the window
has passed; then the window slot goes back and the full slot stays.
"""

from typing import Any, NamedTuple, Protocol

from reference.allocators.paged import Lengths, PagedTokenToKVPoolAllocator
from reference.allocators.segments import Ids
from reference.allocators.swa_frees import SWAFrees
from reference.refusal import Fault, Refused, as_int, refuse_smallest


class EvictParams(NamedTuple):
    """How many tokens a prefix cache is asked to let go of, on either side."""

    num_tokens: int
    swa_num_tokens: int


class Tree(Protocol):
    """What a prefix cache is asked for when slots are short."""

    def supports_prefix_sharing(self) -> bool: ...

    def evict_for_alloc(self, params: EvictParams) -> Any: ...


class SWATokenToKVPoolAllocator(SWAFrees):
    """Any page size; without pages slots are taken by `alloc`, with pages by extend and decode."""

    # --- allocation: both sides are tested, exactly, before either is touched ---

    def alloc(self, need_size: int) -> list[int] | None:
        """`need_size` slots, each with a window slot; only where a page is a slot."""
        if self.page_size > 1:
            raise Refused("Unsupported")
        need = as_int(need_size)
        if need is None:
            raise Refused("WrongDtype")
        if need < 0:
            raise Refused("NegativeSize")
        if not self._fits(need, need):
            return None
        slots = self.full_attn_allocator.alloc(need)
        windows = self.swa_attn_allocator.alloc(need)
        return self._paired(slots, windows)

    def alloc_extend(
        self,
        prefix_lens: Ids,
        prefix_lens_cpu: Ids,
        seq_lens: Ids,
        seq_lens_cpu: Ids,
        last_loc: Ids,
        extend_num_tokens: int,
        num_new_pages: int | None = None,
    ) -> list[int] | None:
        """Slots for positions `prefix .. seq - 1` of every request, on both sides."""
        full = self._paged()
        lengths = (prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc)
        need = full._extend_need(lengths, extend_num_tokens, num_new_pages)
        if not self._fits(need, need):
            return None
        refuse_smallest(full._length_faults(lengths) + self._peer_faults(lengths))
        slots = full.alloc_extend(*lengths, extend_num_tokens)
        if self.ring_cost:
            return slots
        side = self.swa_attn_allocator
        side._merge_if_short(extend_num_tokens // self.page_size + len(last_loc) + 1)
        before, after, last_windows = self._growing(lengths)
        windows = side.alloc_extend(before, before, after, after, last_windows, extend_num_tokens)
        return self._paired(slots, windows)

    def alloc_extend_swa_tail(
        self,
        prefix_lens: Ids,
        prefix_lens_cpu: Ids,
        seq_lens: Ids,
        seq_lens_cpu: Ids,
        last_loc: Ids,
        extend_num_tokens: int,
        swa_tail_len: int,
    ) -> list[int] | None:
        """One request's extend whose last `swa_tail_len` tokens only have window slots."""
        full = self._paged()
        lengths = (prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc)
        need, tail = self._tail_need(full, lengths, extend_num_tokens, swa_tail_len)
        if not self._fits(need, full._pages_of(tail)):
            return None
        refuse_smallest(full._length_faults(lengths))
        slots = full.alloc_extend(*lengths, extend_num_tokens)
        assert slots is not None, "it fits"
        if self.ring_cost:
            return slots
        head = slots[: len(slots) - tail]
        for slot in head:  # a recycled slot must not keep what it was mapped to
            self.full_to_swa_index_mapping[slot] = 0
        if tail:
            ends, fresh = [tail], [0]
            windows = self.swa_attn_allocator.alloc_extend(fresh, fresh, ends, ends, [-1], tail)
            self._paired(slots[len(head) :], windows)
        return slots

    def alloc_decode(self, seq_lens: Ids, seq_lens_cpu: Ids, last_loc: Ids) -> list[int] | None:
        """One slot per request for position `seq - 1`, on both sides."""
        full = self._paged()
        lengths, need = full._decode_need(seq_lens, seq_lens_cpu, last_loc)
        if not self._fits(need, need):
            return None
        refuse_smallest(full._length_faults(lengths) + self._peer_faults(lengths))
        slots = full.alloc_decode(seq_lens, seq_lens_cpu, last_loc)
        if self.ring_cost:
            return slots
        _, after, last_windows = self._growing(lengths)
        windows = self.swa_attn_allocator.alloc_decode(after, after, last_windows)
        return self._paired(slots, windows)

    def _paged(self) -> PagedTokenToKVPoolAllocator:
        """The full side where there are pages to continue."""
        if not isinstance(self.full_attn_allocator, PagedTokenToKVPoolAllocator):
            raise Refused("Unsupported")
        return self.full_attn_allocator

    def _tail_need(
        self,
        full: PagedTokenToKVPoolAllocator,
        lengths: Lengths,
        extend_num_tokens: int,
        swa_tail_len: int,
    ) -> tuple[int, int]:
        """Full pages needed, and the tail, which begins at a page border; of one request."""
        tail = as_int(swa_tail_len)
        faults: list[Fault] = []
        if tail is None:
            faults.append(("WrongDtype", 0))
        elif tail < 0:
            faults.append(("NegativeSize", 0))
        need = 0
        try:
            need = full._extend_need(lengths, extend_num_tokens, None)
        except Refused as refused:
            faults.append((refused.kind, 0))
        seq_lens = lengths[3]
        if len(seq_lens) != 1:
            faults.append(("BadLengths", 0))
        elif tail is not None:
            if (seq_lens[0] - tail) % self.page_size and tail > 0:
                faults.append(("Misaligned", 0))
            if tail > seq_lens[0] - lengths[1][0]:
                faults.append(("BadLengths", 0))
        refuse_smallest(faults)
        assert tail is not None, "it was refused"
        return need, tail

    def _peer_faults(self, lengths: Lengths) -> list[Fault]:
        """Requests that would go on in a page whose window was released (D2)."""
        if self.ring_cost:
            return []
        _, prefix_lens, _, seq_lens, last_loc = lengths
        return [
            ("NoWindowPeer", index)
            for index, (prefix, seq, last) in enumerate(
                zip(prefix_lens, seq_lens, last_loc, strict=True)
            )
            if prefix % self.page_size and seq > prefix and not self._live(last // self.page_size)
        ]

    def _growing(self, lengths: Lengths) -> tuple[list[int], list[int], list[int]]:
        """Prefix, seq and last window slot of the requests that get tokens."""
        before, after, last_windows = [], [], []
        for prefix, seq, last in zip(lengths[1], lengths[3], lengths[4], strict=True):
            if seq == prefix:
                continue
            before.append(prefix)
            after.append(seq)
            peer = self._peer(last // self.page_size) if prefix % self.page_size else 0
            last_windows.append(peer * self.page_size + last % self.page_size if peer else -1)
        return before, after, last_windows

    def _paired(self, slots: list[int] | None, windows: list[int] | None) -> list[int]:
        """The slots, each mapped to its window slot."""
        assert slots is not None, "the full side fits"
        assert windows is not None, "the window side fits"
        for slot, window in zip(slots, windows, strict=True):
            self.full_to_swa_index_mapping[slot] = window
        return slots

    # --- a prefix cache that makes room ---

    def evict_to_free_tokens(self, tree_cache: Tree | None, num_tokens: int) -> None:
        """Ask the tree for what each side is short of; nothing where it can't help."""
        if num_tokens < 0:
            raise Refused("NegativeSize")
        if tree_cache is None or not tree_cache.supports_prefix_sharing():
            return
        short = max(0, num_tokens - self.full_available_size())
        # A ring belongs to its request: no eviction gives it back.
        windows = 0 if self.ring_cost else max(0, num_tokens - self.swa_available_size())
        if short or windows:
            tree_cache.evict_for_alloc(EvictParams(short, windows))

    def reclaim_for_prealloc(
        self, tree_cache: Tree, full_tokens: int, swa_tokens: int
    ) -> str | None:
        """Make room for windows; None when it is there, else what is missing."""
        if min(full_tokens, swa_tokens) < 0:
            raise Refused("NegativeSize")
        short = swa_tokens - self.swa_available_size()
        if short > 0 and not self.ring_cost:
            tree_cache.evict_for_alloc(EvictParams(0, short))
        left = self.swa_available_size()
        return (
            None if left >= swa_tokens else f"windows short: {swa_tokens} needed, {left} available"
        )
