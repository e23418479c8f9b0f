"""Which sizes a pool can have (`spec/core.md` §2, §4)."""

from reference.refusal import Fault, as_int


def size_faults(size: object, page_size: object) -> list[Fault]:
    """Slots go up to `size + page_size`, and the row table that holds them is int32 (§2)."""
    tokens, page = as_int(size), as_int(page_size)
    if tokens is None:
        return [("WrongDtype", 0)]
    if tokens < 0:
        return [("NegativeSize", 0)]
    if page is not None and tokens + page >= 2**31:
        return [("OutOfRange", 0)]
    return []
