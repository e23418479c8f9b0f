"""Frees by slots, segments and pages: `core.md` §4, `swa_unified.md` §1.5-1.6."""

from reference.examples.form import Example, SizeConfig, extend

ALL_OF_24 = ("alloc", {"need_size": 24}, [*range(4, 28)])  # pages 1..6

PAGED_FREE = (
    Example(
        name="any slot frees its page; pages go to the front, ascending",
        spec="core.md §4; swa_unified.md §1.5",
        system="paged",
        config={"size": 24, "page_size": 4},
        steps=(
            ("alloc", {"need_size": 16}, [*range(4, 20)]),
            ("free", {"free_index": [17, 5]}, None),
            ("get_all_free_pages", {}, [1, 4, 5, 6]),
            ("free", {"free_index": [8]}, None),
        ),
        free=[2, 1, 4, 5, 6],
        staged=[],
    ),
    Example(
        name="several slots of a page, or one slot repeated, free it once",
        spec="core.md §4",
        system="paged",
        config={"size": 24, "page_size": 4},
        steps=(ALL_OF_24, ("free", {"free_index": [9, 8, 8, 11, 4]}, None)),
        free=[1, 2],
    ),
    Example(
        name="a segment keeps the order of its pages, a free sorts them",
        spec="core.md §4",
        system="paged",
        config={"size": 16, "page_size": 4},
        steps=(
            ("alloc", {"need_size": 12}, [*range(4, 16)]),
            ("free_page_ids", {"page_ids": [3, 1]}, None),
            ("alloc_extend", extend([0], [6], [-1], 6), [12, 13, 14, 15, 4, 5]),
            ("free_segment", {"free_index": [12, 13, 14, 15, 4, 5], "start_pos": 0}, None),
            ("get_all_free_pages", {}, [3, 1, 4]),
            ("alloc_extend", extend([0], [6], [-1], 6), [12, 13, 14, 15, 4, 5]),
            ("free_full_segment", {"free_index": [12, 13, 14, 15, 4, 5], "start_pos": 0}, None),
        ),
        free=[1, 3, 4],
    ),
    Example(
        name="a segment may end mid-page: that page goes too",
        spec="swa_unified.md §1.6",
        system="paged",
        config={"size": 12, "page_size": 4},
        steps=(
            ("alloc_extend", extend([0], [10], [-1], 10), [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
            ("free_segment", {"free_index": [8, 9, 10, 11, 12, 13], "start_pos": 4}, None),
        ),
        free=[2, 3],
    ),
    Example(
        name="full segments: ascending inside, each in front of the earlier ones",
        spec="core.md §4a",
        system="paged",
        config={"size": 24, "page_size": 4},
        steps=(
            ALL_OF_24,
            (
                "free_full_segments",
                {"segments": [([12, 13, 14, 15, 4], 0), ([8], 8), ([24, 25, 26, 27, 20], 12)]},
                None,
            ),
        ),
        free=[5, 6, 2, 1, 3],
    ),
    Example(
        name="page ids keep the order given",
        spec="core.md §4",
        system="paged",
        config={"size": 24, "page_size": 4},
        steps=(
            ALL_OF_24,
            ("free_page_ids", {"page_ids": [2, 6, 1]}, None),
            ("free_page_ids", {"page_ids": [4, 3]}, None),
        ),
        free=[4, 3, 2, 6, 1],
    ),
    Example(
        name="empty frees are no-ops",
        spec="core.md §4; bugs.md I55",
        system="paged",
        config={"size": 8, "page_size": 4},
        steps=(
            ("free", {"free_index": []}, None),
            ("free_page_ids", {"page_ids": []}, None),
            ("free_segment", {"free_index": [], "start_pos": 0}, None),
            ("free_segments", {"segments": []}, None),
        ),
        free=[1, 2],
    ),
    Example(
        name="an empty segment is skipped wherever it starts",
        spec="core.md §4",
        system="paged",
        config={"size": 8, "page_size": 4},
        steps=(
            ("alloc", {"need_size": 4}, [4, 5, 6, 7]),
            ("free_segments", {"segments": [([], 3), ([4, 5], 0), ([], -2)]}, None),
            ("free_full_segment", {"free_index": [], "start_pos": 1}, None),
        ),
        free=[1, 2],
        ours_only=True,
    ),
    Example(
        name="resize: another size, then the initial state",
        spec="core.md §4a; pools_states_sizing.md §19",
        system="paged",
        config={"size": 24, "page_size": 4},
        steps=(
            ALL_OF_24,
            ("free_page_ids", {"page_ids": [6, 5, 4, 3, 2, 1]}, None),
            ("resize", {"config": SizeConfig(15)}, None),
            ("available_size", {}, 12),
        ),
        free=[1, 2, 3],
        staged=[],
    ),
)
