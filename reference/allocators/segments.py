"""Runs of positions of one request, for `free_segment` and its siblings (`spec/core.md` §4).

All segments of a call are judged before any is freed.
"""

from collections.abc import Iterable, Sequence

from reference.refusal import Fault, as_int

Ids = Sequence[int]
Segments = Iterable[tuple[Ids, int]]


def read_segments(segments: Segments, page_size: int) -> tuple[list[list[int]], list[Fault]]:
    """Copies of the non-empty segments, and the faults of their starts."""
    parts: list[list[int]] = []
    faults: list[Fault] = []
    last_page_of_positions = -1
    for slots, start_pos in segments:
        start = as_int(start_pos)
        if start is None:
            faults.append(("WrongDtype", 0))
        if len(slots) == 0:
            continue
        parts.append(list(slots))
        if start is None:
            continue
        if start < 0:
            faults.append(("NegativeSize", 0))
        if start % page_size != 0:
            faults.append(("Misaligned", 0))
        if start // page_size <= last_page_of_positions:
            faults.append(("OverlappingSegments", 0))
        last_page_of_positions = (start + len(slots) - 1) // page_size
    return parts, faults


def segment_pages(
    parts: list[list[int]], page_size: int
) -> tuple[list[list[int]], list[int], list[Fault]]:
    """The pages of each segment, where each is named, and the slots that aren't consecutive."""
    pages: list[list[int]] = []
    indices: list[int] = []
    faults: list[Fault] = []
    index = 0  # counts through all segments of the call
    for slots in parts:
        pages.append([])
        for start in range(0, len(slots), page_size):
            in_page = slots[start : start + page_size]
            first = in_page[0]
            pages[-1].append(first // page_size)
            indices.append(index)
            for offset, slot in enumerate(in_page):
                if slot != first + offset or (offset == 0 and slot % page_size != 0):
                    faults.append(("NotConsecutive", index + offset))
            index += len(in_page)
    return pages, indices, faults
