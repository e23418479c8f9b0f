"""Rows of hybrid models: `pools_states_sizing.md` §4, §17, §25."""

from typing import Any

from reference.examples.form import Example, RequestSpec, refused

FRESH = RequestSpec(kv_allocated_len=1)
PLACES = (
    "mamba_ping_pong_track_buffer", "mamba_ping_pong_empty", "mamba_next_track_idx",
    "mamba_last_track_idx", "mamba_last_track_seqlen", "mamba_prev_track_seqlen",
)  # fmt: skip
PLANNED = ("mamba_pool_idx", "mamba_cow_src_index", "mamba_needs_clear")
ROW = ("req_pool_idx", "mamba_pool_idx", "mamba_ping_pong_track_buffer")


def pool(size: int, mamba_size: int, **tracks: bool) -> dict[str, Any]:
    """Rows with these slots; without a word about tracks they have none."""
    return {"size": size, "max_context_len": 4, "mamba_size": mamba_size, **tracks}


def pairs(size: int, mamba_size: int) -> dict[str, Any]:
    """Rows whose requests track their state in two places."""
    return pool(size, mamba_size, enable_mamba_extra_buffer=True)


def lazy(size: int, mamba_size: int) -> dict[str, Any]:
    """Rows whose requests have the second place while they need it."""
    return {**pairs(size, mamba_size), "enable_mamba_extra_buffer_lazy": True}


def tracking(expected: int, extra_buffer: bool, overlap: bool, lazily: bool) -> tuple[Any, ...]:
    """A step that asks how many places a request is given at first."""
    args = {"extra_buffer": extra_buffer, "overlap": overlap, "lazy": lazily}
    return ("get_mamba_tracking_slots", args, expected)


HYBRID_ROWS = (
    Example(
        name="a row, a state and two places, the state's slot first",
        spec="pools_states_sizing.md §4",
        system="hybrid_rows",
        config=pairs(3, 6),
        requests=(FRESH, FRESH),
        steps=(
            ("alloc", {"reqs": [0, 1]}, [2, 3]),
            ("record", {"req": 0, "names": ROW}, [2, 1, [2, 3]]),
            ("record", {"req": 1, "names": ROW}, [3, 4, [5, 6]]),
            ("record", {"req": 0, "names": PLACES}, [[2, 3], [False, False], 0, 1, None, None]),
            ("get_mamba_indices", {"req_indices": [3, 0, 2]}, [4, 0, 1]),
            ("alloc", {"reqs": [1, 0]}, [3, 2]),
            ("record", {"req": 1, "names": ROW}, [3, 4, [5, 6]]),
        ),
        free=[1],
        slots=[],
    ),
    Example(
        name="lazily one place has a slot, without overlap there is one",
        spec="pools_states_sizing.md §4, §17",
        system="hybrid_rows",
        config=lazy(1, 2),
        requests=(FRESH,),
        steps=(
            tracking(0, False, True, False),
            tracking(0, False, False, True),
            tracking(1, True, True, True),
            tracking(2, True, True, False),
            tracking(1, True, False, False),
            ("alloc", {"reqs": [0]}, [1]),
            ("record", {"req": 0, "names": PLACES}, [[2, -1], [False, True], 0, 0, None, None]),
            ("get_mamba_ping_pong_keep_idx", {"req": 0}, 0),
            ("get_mamba_ping_pong_other_idx", {"mamba_next_track_idx": 0}, 1),
        ),
        slots=[],
    ),
    Example(
        name="one place is its own other one",
        spec="pools_states_sizing.md §4 (ping-pong tracking)",
        system="hybrid_rows",
        config={**pairs(1, 2), "enable_overlap_schedule": False},
        requests=(FRESH,),
        steps=(
            ("alloc", {"reqs": [0]}, [1]),
            ("mamba_track_boundary", {"req": 0, "seq_len": 8}, None),
            ("mamba_track_boundary", {"req": 0, "seq_len": 16}, None),
            ("record", {"req": 0, "names": PLACES}, [[2], [False], 0, 0, 16, None]),
            ("get_mamba_ping_pong_other_idx", {"mamba_next_track_idx": 0}, 0),
            ("mamba_checkpoint", {"req": 0, "key_len": 15}, None),
            ("mamba_checkpoint", {"req": 0, "key_len": 16}, (16, 0)),
        ),
        slots=[],
    ),
    Example(
        name="short of state slots: None, no row and no slot is taken",
        spec="pools_states_sizing.md §4, §25.1",
        system="hybrid_rows",
        config=pairs(3, 5),
        requests=(FRESH, FRESH),
        steps=(
            ("slots_needed", {"num_without_state": 2, "num_without_tracking": 2,
                              "tracking_slots": 2}, 6),
            ("alloc", {"reqs": [0, 1]}, None),
            ("record", {"req": 0, "names": ROW}, [None, None, None]),
            ("alloc", {"reqs": [1]}, [3]),
            ("record", {"req": 1, "names": ROW}, [3, 1, [2, 3]]),
        ),
        free=[1, 2],
        slots=[4, 5],
        ours_only=True,
    ),
    Example(
        name="a fresh state is cleared once, at the first extend",
        spec="pools_states_sizing.md §4 (deferred clear), H6",
        system="hybrid_rows",
        config=pool(2, 3),
        requests=(FRESH, FRESH),
        steps=(
            ("alloc", {"reqs": [0, 1]}, [1, 2]),
            ("record", {"req": 0, "names": PLANNED}, [1, None, True]),
            ("collect_deferred_mamba", {"reqs": [0, 1]}, ([1, 2], [], [])),
            ("collect_deferred_mamba", {"reqs": [0, 1]}, ([], [], [])),
            ("record", {"req": 0, "names": PLANNED}, [1, None, False]),
        ),
        slots=[3],
    ),
    Example(
        name="a prefix hit is copied instead, and may come before the row",
        spec="pools_states_sizing.md §4 (copy-on-write)",
        system="hybrid_rows",
        config=pool(2, 4),
        requests=(FRESH, FRESH),
        steps=(
            ("alloc", {"need_size": 1}, [1]),
            ("cow_mamba_state", {"req": 0, "src_index": [1]}, [2]),
            ("record", {"req": 0, "names": PLANNED}, [2, 1, False]),
            ("alloc", {"reqs": [0, 1]}, [1, 2]),
            ("record", {"req": 0, "names": ROW}, [1, 2, None]),
            ("cow_mamba_state", {"req": 1, "src_index": [1]}, [3]),
            ("collect_deferred_mamba", {"reqs": [0, 1]}, ([], [1, 1], [2, 3])),
            ("cow_mamba_state", {"req": 0, "src_index": [2]}, refused("Duplicate")),
            ("cow_mamba_state", {"req": 0, "src_index": [4]}, refused("NotOwned")),
        ),
        slots=[4],
        ours_only=True,
    ),
    Example(
        name="the places change over at each boundary, and the step before is still found",
        spec="pools_states_sizing.md §4 (ping-pong tracking)",
        system="hybrid_rows",
        config=pairs(1, 3),
        requests=(FRESH,),
        steps=(
            ("alloc", {"reqs": [0]}, [1]),
            ("mamba_checkpoint", {"req": 0, "key_len": 100}, None),
            ("mamba_track_boundary", {"req": 0, "seq_len": 64}, None),
            ("record", {"req": 0, "names": PLACES}, [[2, 3], [False, False], 1, 0, 64, None]),
            ("mamba_track_boundary", {"req": 0, "seq_len": 128}, None),
            ("record", {"req": 0, "names": PLACES}, [[2, 3], [False, False], 0, 1, 128, 64]),
            ("mamba_checkpoint", {"req": 0, "key_len": 128}, (128, 1)),
            ("mamba_checkpoint", {"req": 0, "key_len": 127}, (64, 0)),
            ("mamba_checkpoint", {"req": 0, "key_len": 63}, None),
        ),
        slots=[],
    ),
    Example(
        name="lazily the second place is there for a step, or the step overwrites",
        spec="pools_states_sizing.md §4 (lazy)",
        system="hybrid_rows",
        config=lazy(1, 3),
        requests=(FRESH,),
        steps=(
            ("alloc", {"reqs": [0]}, [1]),
            ("mamba_lazy_prealloc", {"req": 0}, True),
            ("record", {"req": 0, "names": PLACES}, [[2, 3], [False, False], 1, 0, None, None]),
            ("mamba_track_boundary", {"req": 0, "seq_len": 8}, None),
            ("record", {"req": 0, "names": PLACES}, [[-1, 3], [True, False], 1, 1, 8, None]),
            ("mamba_lazy_prealloc", {"req": 0}, True),
            ("mamba_lazy_undo_prealloc", {"req": 0}, None),
            ("record", {"req": 0, "names": PLACES}, [[-1, 3], [True, False], 1, 1, 8, None]),
            ("alloc", {"need_size": 1}, [2]),
            ("mamba_lazy_prealloc", {"req": 0}, False),
            ("record", {"req": 0, "names": PLACES}, [[-1, 3], [True, False], 1, 1, None, None]),
            ("mamba_checkpoint", {"req": 0, "key_len": 8}, None),
        ),
        slots=[],
    ),
    Example(
        name="at the end a place may be kept; the state goes back before the row",
        spec="pools_states_sizing.md §4, §25.2",
        system="hybrid_rows",
        config=pairs(2, 6),
        requests=(FRESH, FRESH),
        steps=(
            ("alloc", {"reqs": [0, 1]}, [1, 2]),
            ("free", {"req": 0}, refused("StillOwned")),
            ("free_rows", {"indices": [2]}, refused("StillOwned")),
            ("free_mamba_cache",
             {"req": 0, "mamba_ping_pong_track_buffer_to_keep": 2}, refused("OutOfRange")),
            ("free_mamba_cache", {"req": 0, "mamba_ping_pong_track_buffer_to_keep": 1}, [3]),
            ("record", {"req": 0, "names": (*ROW, *PLANNED[1:])}, [1, None, None, None, False]),
            ("free_mamba_cache", {"req": 0}, refused("NotOwned")),
            ("free", {"req": 0}, None),
            ("free_mamba_cache", {"req": 1}, None),
            ("free", {"req": 1}, None),
        ),
        free=[1, 2],
        slots=[1, 2, 4, 5, 6],
        ours_only=True,
    ),
    Example(
        name="a donated slot is the cache's, and a new one stands in its place",
        spec="pools_states_sizing.md §4, H5",
        system="hybrid_rows",
        config=pairs(1, 5),
        requests=(FRESH,),
        steps=(
            ("alloc", {"reqs": [0]}, [1]),
            ("mamba_track_boundary", {"req": 0, "seq_len": 8}, None),
            ("alloc", {"need_size": 1}, [4]),
            ("donate_mamba_ping_pong_slot", {"req": 0, "new_slot": [4]}, [2]),
            ("record", {"req": 0, "names": PLACES}, [[4, 3], [False, False], 1, 0, None, None]),
            ("set_mamba_ping_pong_slot", {"req": 0, "idx": 0, "value": [2]}, None),
            ("set_mamba_ping_pong_slot", {"req": 0, "idx": 1, "value": -1}, None),
            ("record", {"req": 0, "names": PLACES[:2]}, [[2, -1], [False, True]]),
        ),
        slots=[5],
    ),
    Example(
        name="tracking that contradicts itself",
        spec="pools_states_sizing.md §4",
        system="hybrid_rows",
        config=pairs(1, 4),
        requests=(FRESH, FRESH),
        steps=(
            ("alloc", {"reqs": [0]}, [1]),
            ("mamba_track_boundary", {"req": 0, "seq_len": 8}, None),
            ("mamba_track_boundary", {"req": 0, "seq_len": 8}, refused("BadLengths")),
            ("mamba_track_boundary", {"req": 0, "seq_len": -1}, refused("NegativeSize")),
            ("mamba_track_boundary", {"req": 1, "seq_len": 8}, refused("NotOwned")),
            ("mamba_lazy_prealloc", {"req": 0}, refused("Unsupported")),
            ("set_mamba_ping_pong_slot", {"req": 0, "idx": 2, "value": -1}, refused("OutOfRange")),
            ("set_mamba_ping_pong_slot", {"req": 0, "idx": 0, "value": [3]}, refused("Duplicate")),
            ("set_mamba_ping_pong_slot", {"req": 0, "idx": 0, "value": [4]}, refused("NotOwned")),
            ("donate_mamba_ping_pong_slot", {"req": 0, "new_slot": [1]}, refused("Duplicate")),
            ("donate_mamba_ping_pong_slot", {"req": 0, "new_slot": [0]}, refused("Reserved")),
            ("donate_mamba_state", {"req": 0}, refused("Unsupported")),
            ("get_mamba_indices", {"req_indices": [0, 2]}, refused("OutOfRange")),
        ),
        slots=[4],
        ours_only=True,
    ),
    Example(
        name="who tracks nothing donates his own slot at the end",
        spec="pools_states_sizing.md §4 (finish protocol), §25.2",
        system="hybrid_rows",
        config=pool(1, 2),
        requests=(FRESH,),
        steps=(
            ("alloc", {"reqs": [0]}, [1]),
            ("donate_mamba_state", {"req": 0}, [1]),
            ("record", {"req": 0, "names": PLANNED}, [None, None, False]),
            ("donate_mamba_state", {"req": 0}, refused("NotOwned")),
            ("free", {"req": 0}, None),
            ("free", {"free_index": [1]}, None),
        ),
        free=[1],
        slots=[2, 1],
    ),
    Example(
        name="clear drops rows, slots and maps; what requests say then isn't theirs",
        spec="pools_states_sizing.md §4, §25.3",
        system="hybrid_rows",
        config=pairs(2, 3),
        requests=(FRESH, FRESH),
        steps=(
            ("alloc", {"reqs": [0]}, [2]),
            ("clear", {}, None),
            ("get_mamba_indices", {"req_indices": [2]}, [0]),
            ("free_mamba_cache", {"req": 0}, refused("TooMany")),
            ("alloc", {"reqs": [0]}, refused("RowNotHeld")),
            ("alloc", {"reqs": [1]}, [2]),
            ("handle", {"row": 2}, (2, 2)),
        ),
        free=[1],
        slots=[],
        ours_only=True,
    ),
)  # fmt: skip
