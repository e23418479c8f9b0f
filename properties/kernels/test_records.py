"""What a deferred fault says: each kind in words, from the numbers that a kernel leaves."""

from __future__ import annotations

import pytest

from impl import errors
from impl.allocators.states import BEYOND, FREE, NEVER, OWNED, RESERVED
from impl.errors import PoolError
from impl.kernels.device.pages import Record, describe, kind_of, make_pages, read

HELD = (4, 9, OWNED)  # by row 4, generation 9
SEQ = 7


@pytest.mark.parametrize(
    ("kind", "fields", "page_size", "words"),
    [
        (
            errors.BadLengths, (8, 6, 9, 7, 0), 4,
            "[2] prefix and seq are (8, 9) on the device, (6, 7) on the host",
        ),
        (
            errors.BadLengths, (8, 6, 9, 7, 3), 4,
            "[2] prefix and seq are (8, 9) on the device, (6, 7) on the host (row 3 on the device)",
        ),
        (errors.TooMany, (5, 0, 0, 0, 3), 4, "5 pages given back, 3 are out"),
        (errors.NotConsecutive, (11, *HELD, 10), 4, "[2] slot 11 (page 2) where 10 was expected"),
        (errors.Duplicate, (9, *HELD, 1), 4, "[2] slot 9 (page 2) was named at 1 already"),
        (errors.Duplicate, (9, *HELD, 1), 1, "[2] id 9 was named at 1 already"),
        (
            errors.BadLastLoc, (9, *HELD, 0), 4,
            "[2] last_loc 9 doesn't fit its prefix, or its page is held by row 4, generation 9",
        ),
        (
            errors.BadLastLoc, (9, 0, 1, OWNED, 0), 4,
            "[2] last_loc 9 doesn't fit its prefix, or its page is owned",
        ),
        (errors.NotOwned, (9, *HELD, 0), 4, "[2] slot 9 (page 2) is held by row 4, generation 9"),
        (errors.NotOwned, (9, 0, 1, NEVER, 0), 1, "[2] id 9 is not issued since the last clear"),
        (errors.DoubleFree, (9, 4, 1, FREE, 0), 2, "[2] slot 9 (page 4) is free"),
        (errors.Reserved, (3, 0, 0, RESERVED, 0), 4, "[2] slot 3 (page 0) is reserved"),
        (errors.OutOfRange, (-1, 0, 0, RESERVED, 0), 1, "[2] id -1 is outside the pool"),
        (errors.OutOfRange, (77, 0, 0, BEYOND, 0), 1, "[2] id 77 is outside the pool"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)  # fmt: skip
def test_words(kind: type[PoolError], fields: tuple[int, ...], page_size: int, words: str) -> None:
    """A record reads as the fault that it is."""
    record = read((SEQ, kind.rank, 2, *fields))
    assert record == Record(SEQ, kind.rank, 2, *fields)
    assert kind_of(record) is kind
    assert describe(record, page_size=page_size) == words


def test_nothing_wrong() -> None:
    """A record of zeros is none; new pages have one, and were never issued."""
    pages = make_pages(3, 4, "cpu")
    assert read(pages.record.tolist()) is None
    assert pages.record.shape == (8,)
    assert pages.states.tolist() == [RESERVED, NEVER, NEVER, NEVER, BEYOND]
    assert pages.holder_row.tolist() == pages.holder_gen.tolist() == [0] * 5
    assert len(set(pages.claim.tolist())) == 1
    assert pages.claim.shape == (5,)
    assert pages.num_pages == 3
