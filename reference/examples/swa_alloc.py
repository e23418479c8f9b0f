"""What the sliding-window pair has, and hands out: `swa_unified.md` §2.2 to §2.4, §11."""

from reference.examples.form import Example, decode, extend, refused

SIX = ("alloc_extend", extend([0], [6], [-1], 6), [4, 5, 6, 7, 8, 9])
SIXTEEN = {"size": 16, "size_swa": 16, "page_size": 4}


def available(full: int, windows: int) -> tuple[tuple[str, dict[str, int], int], ...]:
    """Steps that ask both sides."""
    return ("full_available_size", {}, full), ("swa_available_size", {}, windows)


SWA_SIZES = (
    Example(
        name="the smaller side decides; short of either, both are unchanged",
        spec="swa_unified.md §2.3",
        system="swa",
        config={"size": 16, "size_swa": 4, "page_size": 1},
        steps=(
            ("size", {}, 4),
            ("available_size", {}, 4),
            ("alloc", {"need_size": 5}, None),
            *available(16, 4),
            ("alloc", {"need_size": 0}, []),
            ("alloc", {"need_size": 4}, [1, 2, 3, 4]),
            ("available_size", {}, 0),
            *available(12, 0),
        ),
        free=[*range(5, 17)],
        window_free=[],
        mapping={1: 1, 2: 2, 3: 3, 4: 4},
    ),
    Example(
        name="so many pages on each side",
        spec="swa_unified.md §2.3",
        system="swa",
        config={"size": 16, "size_swa": 8, "page_size": 4},
        steps=(
            ("new_pages_available", {"num_full_pages": 4, "num_swa_pages": 2}, True),
            ("new_pages_available", {"num_full_pages": 5, "num_swa_pages": 2}, False),
            ("new_pages_available", {"num_full_pages": 4, "num_swa_pages": 3}, False),
        ),
    ),
    Example(
        name="a ring costs whole pages of each free row, and no slot is mapped",
        spec="swa_unified.md §2.8",
        system="swa",
        config={"size": 32, "size_swa": 8, "page_size": 4, "ring": 10, "rows": 3},
        steps=(
            ("size_swa", {}, 36),
            *available(32, 36),
            ("alloc_rows", {"need_size": 2}, [2, 3]),
            *available(32, 12),
            ("available_size", {}, 32),
            SIX,
            ("free_swa", {"free_index": [4, 8]}, None),
            ("available_size", {}, 24),
            ("set_full_to_swa_mapping", {"full_indices": [4], "swa_indices": [4]},
             refused("Unsupported")),
            ("free", {"free_index": [4, 8]}, None),
            ("available_size", {}, 32),
        ),
        mapping={},
        ours_only=True,
    ),
    Example(
        name="a pair may only shrink, and only while nothing is out",
        spec="swa_unified.md §2.10",
        system="swa",
        config={"size": 16, "size_swa": 8, "page_size": 1},
        steps=(
            ("alloc", {"need_size": 1}, [1]),
            ("resize", {"config": (8, 4)}, refused("StillOwned")),
            ("free", {"free_index": [1]}, None),
            ("resize", {"config": (8, 9)}, refused("OutOfRange")),
            ("resize", {"config": (8, 4)}, None),
            *available(8, 4),
        ),
        free=[*range(1, 9)],
        window_free=[1, 2, 3, 4],
        mapping={},
        ours_only=True,
    ),
)  # fmt: skip

SWA_TAKING = (
    Example(
        name="an extend of two requests and a decode, in lockstep",
        spec="swa_unified.md §1.4, §2.4",
        system="swa",
        config=SIXTEEN,
        steps=(
            ("alloc_extend", extend([0, 0], [6, 3], [-1, -1], 9), [*range(4, 10), 12, 13, 14]),
            ("alloc_decode", decode([7, 4], [9, 14]), [10, 15]),
            *available(4, 4),
        ),
        free=[4],
        window_free=[4],
        mapping={slot: slot for slot in (*range(4, 11), *range(12, 16))},
    ),
    Example(
        name="a tail has windows from its first page on, on fresh pages",
        spec="swa_unified.md §2.4",
        system="swa",
        config=SIXTEEN,
        steps=(
            ("alloc_extend_swa_tail", extend([0], [10], [-1], 10, swa_tail_len=2),
             [*range(4, 14)]),
            *available(4, 12),
        ),
        free=[4],
        window_free=[2, 3, 4],
        mapping={12: 4, 13: 5},
    ),
    Example(
        name="a tail of 3 of 10 tokens would begin inside a page",
        spec="swa_unified.md §2.4",
        system="swa",
        config=SIXTEEN,
        steps=(
            ("alloc_extend_swa_tail", extend([0], [10], [-1], 10, swa_tail_len=3),
             refused("Misaligned")),
            ("alloc_extend_swa_tail", extend([0], [4], [-1], 4, swa_tail_len=8),
             refused("BadLengths")),
            ("alloc_extend_swa_tail", extend([0], [4], [-1], 4, swa_tail_len=-4),
             refused("NegativeSize")),
            *available(16, 16),
        ),
        mapping={},
        ours_only=True,
    ),
    Example(
        name="D1: a decode without a window takes no full page either",
        spec="swa_unified.md §11",
        system="swa",
        config={"size": 16, "size_swa": 4, "page_size": 4},
        steps=(
            ("alloc_extend", extend([0], [4], [-1], 4), [4, 5, 6, 7]),
            *available(12, 0),
            ("alloc_decode", decode([5], [7]), None),
            *available(12, 0),
        ),
        free=[2, 3, 4],
        window_free=[],
        ours_only=True,
    ),
    Example(
        name="D2: a page whose window was released isn't gone on with",
        spec="swa_unified.md §11",
        system="swa",
        config=SIXTEEN,
        steps=(
            SIX,
            ("free_swa", {"free_index": [8]}, None),
            ("alloc_extend", extend([6], [7], [9], 1), refused("NoWindowPeer")),
            ("alloc_decode", decode([7], [9]), refused("NoWindowPeer")),
            *available(8, 12),
        ),
        free=[3, 4],
        window_free=[2, 3, 4],
        mapping={4: 4, 5: 5, 6: 6, 7: 7},
        ours_only=True,
    ),
    Example(
        name="each way to take belongs to a page size",
        spec="swa_unified.md §2.4",
        system="swa",
        config={"size": 4, "size_swa": 4, "page_size": 1},
        steps=(
            ("alloc_extend", extend([0], [1], [-1], 1), refused("Unsupported")),
            ("alloc_decode", decode([1], [-1]), refused("Unsupported")),
            ("alloc", {"need_size": -4}, refused("NegativeSize")),  # D21
            ("alloc", {"need_size": 1}, [1]),
        ),
        ours_only=True,
    ),
)  # fmt: skip

SWA_ALLOC = SWA_SIZES + SWA_TAKING
