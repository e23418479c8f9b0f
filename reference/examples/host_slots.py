"""Host slots: `interleave_hisparse_host_prefix.md` §4.4, §8 Q12 and Q13."""

from reference.examples.form import Example, refused

HOST_SLOTS = (
    Example(
        name="first in, first out, from slot 0 on",
        spec="interleave_hisparse_host_prefix.md §4.4",
        system="host_slots",
        config={"size": 12, "page_size": 4},
        steps=(
            ("alloc", {"need_size": 4}, [0, 1, 2, 3]),
            ("alloc", {"need_size": 4}, [4, 5, 6, 7]),
            ("free", {"free_index": [0, 1, 2, 3]}, 4),
            ("alloc", {"need_size": 8}, [8, 9, 10, 11, 0, 1, 2, 3]),
            ("alloc", {"need_size": 4}, None),
            ("alloc", {"need_size": 0}, []),
            ("available_size", {}, 0),
        ),
        free=[],
    ),
    Example(
        name="pages go back by their first slots, whole however they are named",
        spec="interleave_hisparse_host_prefix.md §4.10, HT-2",
        system="host_slots",
        config={"size": 6, "page_size": 2},
        steps=(
            ("alloc", {"need_size": 6}, [0, 1, 2, 3, 4, 5]),
            ("free", {"free_index": [5, 3, 4, 2]}, 4),
            ("free", {"free_index": []}, 0),
            ("alloc", {"need_size": 2}, [4, 5]),
        ),
        free=[2, 3],
    ),
    Example(
        name="clear: all free, and nothing was ever issued",
        spec="interleave_hisparse_host_prefix.md §4.4",
        system="host_slots",
        config={"size": 3, "page_size": 1},
        steps=(
            ("alloc", {"need_size": 2}, [0, 1]),
            ("free", {"free_index": [0]}, 1),
            ("clear", {}, None),
            ("alloc", {"need_size": 1}, [0]),
            ("free", {"free_index": [1]}, refused("NotOwned")),
        ),
        free=[1, 2],
    ),
    Example(
        name="slots that can't be freed, or asked for",
        spec="interleave_hisparse_host_prefix.md §4.11, §8 Q13",
        system="host_slots",
        config={"size": 12, "page_size": 2},
        steps=(
            ("alloc", {"need_size": 8}, [0, 1, 2, 3, 4, 5, 6, 7]),
            ("alloc", {"need_size": 3}, refused("NotPageMultiple")),
            ("alloc", {"need_size": -2}, refused("NegativeSize")),
            ("alloc", {"need_size": 2.0}, refused("WrongDtype")),
            ("free", {"free_index": [0]}, refused("NotPageMultiple")),
            ("free", {"free_index": [0, 2]}, refused("NotPageMultiple")),
            ("free", {"free_index": [0, 0]}, refused("NotPageMultiple")),
            ("free", {"free_index": [12, 13]}, refused("OutOfRange")),
            ("free", {"free_index": [-2, -1]}, refused("OutOfRange")),
            ("free", {"free_index": [8, 9]}, refused("NotOwned")),
            ("free", {"free_index": [0, 1, 0, 1]}, refused("Duplicate")),
            ("free", {"free_index": list(range(12))}, refused("TooMany")),
            ("free", {"free_index": [0, 1]}, 2),
            ("free", {"free_index": [0, 1]}, refused("DoubleFree")),
            ("free", {"free_index": [2, 3, 0, 1]}, refused("DoubleFree")),
        ),
        free=[8, 9, 10, 11, 0, 1],
    ),
)
