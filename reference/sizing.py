"""How much is needed, kept, let go: arithmetic that callers of the allocators share.

Follows `spec/swa_unified.md` §10.2.
"""

from reference.refusal import Fault, as_int, refuse_smallest


def window_frontier(n: int, window: int, page_size: int, bigram: bool) -> int:
    """The first position whose window slot is kept by a request of `n` tokens.

    A window, and at least a page, stays below the last whole page that a prefix cache will take;
    with bigram keys that cache sees one token fewer.
    """
    numbers = (n, window, page_size)
    faults: list[Fault] = [("WrongDtype", 0) for number in numbers if as_int(number) is None]
    faults += [
        ("NegativeSize", 0)
        for number, least in zip(numbers, (0, 1, 1), strict=True)
        if as_int(number) is not None and number < least
    ]
    refuse_smallest(faults)
    keys = max(0, n - 1) if bigram else n
    whole_pages = keys // page_size
    kept_pages = max(1, -(-window // page_size))
    return max(0, whole_pages - kept_pages) * page_size
