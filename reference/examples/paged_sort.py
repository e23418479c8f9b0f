"""Staged pages and when they are sorted in: `core.md` §4."""

from reference.examples.form import Example, decode, extend

ALL_OF_24 = ("alloc", {"need_size": 24}, [*range(4, 28)])  # pages 1..6

PAGED_SORT = (
    Example(
        name="need_sort: free [5,6], staged [1,2]: an extend of 4 tokens gets page 1",
        spec="core.md §4",
        system="paged",
        config={"size": 24, "page_size": 4, "need_sort": True},
        steps=(
            ("alloc", {"need_size": 16}, [*range(4, 20)]),
            ("free_page_ids", {"page_ids": [1, 2]}, None),
            ("get_all_free_pages", {}, [5, 6, 1, 2]),
            ("alloc_extend", extend([0], [4], [-1], 4), [4, 5, 6, 7]),
        ),
        free=[2, 5, 6],
        staged=[],
    ),
    Example(
        name="need_sort: free [5,6], staged [1,2]: alloc(4) gets page 5",
        spec="core.md §4",
        system="paged",
        config={"size": 24, "page_size": 4, "need_sort": True},
        steps=(
            ("alloc", {"need_size": 16}, [*range(4, 20)]),
            ("free_page_ids", {"page_ids": [1, 2]}, None),
            ("alloc", {"need_size": 4}, [20, 21, 22, 23]),
        ),
        free=[6],
        staged=[1, 2],
    ),
    Example(
        name="need_sort: a decode of 2 merges with 1 free page, though no page is needed",
        spec="core.md §4",
        system="paged",
        config={"size": 20, "page_size": 4, "need_sort": True},
        steps=(
            ("alloc", {"need_size": 8}, [4, 5, 6, 7, 8, 9, 10, 11]),
            ("alloc_extend", extend([0, 0], [1, 1], [-1, -1], 2), [12, 16]),
            ("free_page_ids", {"page_ids": [2, 1]}, None),
            ("alloc_decode", decode([2, 2], [12, 16]), [13, 17]),
        ),
        free=[1, 2, 5],
        staged=[],
    ),
    Example(
        name="need_sort: a decode of 2 doesn't merge with 2 free pages",
        spec="core.md §4",
        system="paged",
        config={"size": 24, "page_size": 4, "need_sort": True},
        steps=(
            ("alloc", {"need_size": 8}, [4, 5, 6, 7, 8, 9, 10, 11]),
            ("alloc_extend", extend([0, 0], [1, 4], [-1, -1], 5), [12, 16, 17, 18, 19]),
            ("free_page_ids", {"page_ids": [2, 1]}, None),
            ("alloc_decode", decode([2, 5], [12, 19]), [13, 20]),
        ),
        free=[6],
        staged=[2, 1],
    ),
    Example(
        name="need_sort: everything staged serves an extend",
        spec="bugs.md 13 (I11)",
        system="paged",
        config={"size": 8, "page_size": 4, "need_sort": True},
        steps=(
            ("alloc", {"need_size": 8}, [4, 5, 6, 7, 8, 9, 10, 11]),
            ("free_page_ids", {"page_ids": [2, 1]}, None),
            ("available_size", {}, 8),
            ("alloc_extend", extend([0], [8], [-1], 8), [4, 5, 6, 7, 8, 9, 10, 11]),
        ),
        free=[],
        staged=[],
    ),
    Example(
        name="need_sort: the merge stays although the call returns None",
        spec="core.md §4",
        system="paged",
        config={"size": 8, "page_size": 4, "need_sort": True},
        steps=(
            ("alloc", {"need_size": 8}, [4, 5, 6, 7, 8, 9, 10, 11]),
            ("free_page_ids", {"page_ids": [2, 1]}, None),
            ("alloc_extend", extend([0], [9], [-1], 9), None),
        ),
        free=[1, 2],
        staged=[],
    ),
    Example(
        name="need_sort: freed pages are staged in the order of the frees",
        spec="core.md §4",
        system="paged",
        config={"size": 24, "page_size": 4, "need_sort": True},
        steps=(
            ALL_OF_24,
            ("free", {"free_index": [17, 5]}, None),
            ("free_page_ids", {"page_ids": [3]}, None),
            ("free_segments", {"segments": [([24, 25], 0), ([8], 4)]}, None),
            ("get_all_free_pages", {}, [1, 4, 3, 6, 2]),
            ("merge_and_sort_free", {}, None),
        ),
        free=[1, 2, 3, 4, 6],
        staged=[],
    ),
    Example(
        name="without need_sort, and with nothing staged, nothing is sorted",
        spec="core.md §4",
        system="paged",
        config={"size": 24, "page_size": 4},
        steps=(
            ALL_OF_24,
            ("free_page_ids", {"page_ids": [2, 6, 1]}, None),
            ("merge_and_sort_free", {}, None),
        ),
        free=[2, 6, 1],
        staged=[],
    ),
)
