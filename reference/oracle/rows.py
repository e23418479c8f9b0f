"""Request rows as one immutable value (core.md §2)."""

from typing import NamedTuple

from reference.oracle.state import Answer, Ids, Numbers, repeated, worst


class Rows(NamedTuple):
    """§2: `generations[row]` counts the hand-outs of a row."""

    size: int
    free: Numbers
    generations: Numbers
    held: frozenset[int] = frozenset()


def row_pool(size: int) -> Rows:
    """§2: `free_slots` starts as `1..size`."""
    return Rows(size, tuple(range(1, size + 1)), (0,) * (size + 1))


def alloc_rows(pool: Rows, need_size: int) -> tuple[Rows, Answer]:
    """§2: the last k entries, in list order."""
    if need_size < 0:
        return pool, "NegativeSize"
    if need_size > len(pool.free):
        return pool, None
    keep = len(pool.free) - need_size
    rows = pool.free[keep:]
    generations = tuple(g + (row in rows) for row, g in enumerate(pool.generations))
    return Rows(pool.size, pool.free[:keep], generations, pool.held | set(rows)), rows


def free_rows(pool: Rows, indices: Ids) -> tuple[Rows, Answer]:
    """§1 of `pools_states_sizing.md`: appended to the free list."""
    kinds = [
        "OutOfRange" if not set(indices) <= set(range(pool.size + 1)) else None,
        "Reserved" if 0 in indices else None,
        repeated(indices),
        "RowNotHeld" if not pool.held.issuperset(indices) else None,
    ]
    kind = worst(kinds)
    if kind:
        return pool, kind
    return pool._replace(free=pool.free + tuple(indices), held=pool.held - set(indices)), None


def clear_rows(pool: Rows) -> tuple[Rows, Answer]:
    """§2: generations are never lowered, not even by `clear()`."""
    return row_pool(pool.size)._replace(generations=pool.generations), None
