"""Allocation (core.md §3, §4): where every new position goes, in closed form."""

from itertools import accumulate, chain

from reference.oracle.state import Ids, Next, State, ceil_pages, merged_for, taken, worst


def alloc(state: State, need_size: int) -> Next:
    """§3, §4: the first n ids; whole pages, expanded page by page."""
    size = state.page_size
    if need_size < 0:
        return state, "NegativeSize"
    if need_size % size:
        return state, "NotPageMultiple"
    count = need_size // size
    state = merged_for(state, count)
    if count > len(state.free):
        return state, None
    slots = chain(*(range(page * size, page * size + size) for page in state.free[:count]))
    return taken(state, count), tuple(slots)


def alloc_extend(
    state: State,
    prefix_lens: Ids,
    prefix_lens_cpu: Ids,
    seq_lens: Ids,
    seq_lens_cpu: Ids,
    last_loc: Ids,
    extend_num_tokens: int,
    num_new_pages: int | None = None,
) -> Next:
    """§4: request i appends positions `prefix_i .. seq_i - 1`."""
    columns = [prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc]
    if state.is_token:
        return state, "Unsupported"
    if any(len(column) != len(last_loc) for column in columns):
        return state, "BadLengths"
    counts = new_page_counts(state, prefix_lens_cpu, seq_lens_cpu)
    if (
        any(prefix < 0 for prefix in prefix_lens_cpu)
        or any(seq < prefix for prefix, seq in zip(prefix_lens_cpu, seq_lens_cpu, strict=True))
        or extend_num_tokens != sum(seq_lens_cpu) - sum(prefix_lens_cpu)
        or num_new_pages not in (None, sum(counts))
    ):
        return state, "BadLengths"
    bound = extend_num_tokens // state.page_size + len(last_loc) + 1
    same = list(prefix_lens) == list(prefix_lens_cpu) and list(seq_lens) == list(seq_lens_cpu)
    return appended(state, prefix_lens_cpu, seq_lens_cpu, last_loc, bound, same)


def alloc_decode(state: State, seq_lens: Ids, seq_lens_cpu: Ids, last_loc: Ids) -> Next:
    """§4: one slot per request for position `seq_i - 1`; the bound is the batch."""
    if state.is_token:
        return state, "Unsupported"
    if (
        len({len(seq_lens), len(seq_lens_cpu), len(last_loc)}) > 1
        or min(seq_lens_cpu, default=1) < 1
    ):
        return state, "BadLengths"
    prefix = [seq - 1 for seq in seq_lens_cpu]
    same = list(seq_lens) == list(seq_lens_cpu)
    return appended(state, prefix, seq_lens_cpu, last_loc, len(last_loc), same)


def new_page_counts(state: State, prefix_lens: Ids, seq_lens: Ids) -> list[int]:
    """§4: `ceil(seq_i/B) - ceil(prefix_i/B)`."""
    return [
        ceil_pages(seq, state.page_size) - ceil_pages(prefix, state.page_size)
        for prefix, seq in zip(prefix_lens, seq_lens, strict=True)
    ]


def appended(
    state: State, prefix_lens: Ids, seq_lens: Ids, last_loc: Ids, bound: int, same: bool
) -> Next:
    """Capacity, then values, then placement. `same`: device and host copies agree."""
    size = state.page_size
    counts = new_page_counts(state, prefix_lens, seq_lens)
    state = merged_for(state, bound)
    if sum(counts) > len(state.free):
        return state, None
    requests = list(zip(prefix_lens, seq_lens, last_loc, strict=True))
    halves = [last // size for prefix, _, last in requests if prefix % size]
    continued = [last // size for prefix, seq, last in requests if prefix % size and seq > prefix]
    fits = all(
        (last + 1) % size == prefix % size and (prefix > 0 or last == -1)
        for prefix, _, last in requests
    )
    kind = worst(
        [
            None if same else "BadLengths",
            None if fits and state.owned.issuperset(halves) else "BadLastLoc",
            None if len(set(continued)) == len(continued) else "Duplicate",
        ]
    )
    if kind:
        return state, kind
    slots: list[int] = []
    starts = accumulate(counts, initial=0)  # where each request's run of new pages begins
    for (prefix, seq, last), start in zip(requests, starts, strict=False):
        whole = ceil_pages(prefix, size)  # pages that the prefix already touches
        rest = range(prefix, min(seq, whole * size))
        slots += [last + 1 + position - prefix for position in rest]
        for position in range(whole * size, seq):
            slots.append(state.free[start + position // size - whole] * size + position % size)
    return taken(state, sum(counts)), tuple(slots)
