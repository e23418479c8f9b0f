"""Segments as they are given: (slots, start_pos) pairs, and what host data says about them.

Spec: `spec/core.md` §4 (`free_segment(s)`), §4b.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from impl import checks
from impl.errors import Misaligned, NegativeSize, OverlappingSegments, PoolError, WrongShape


def parse(segments: Iterable[Any], page_size: int, device: torch.device) -> list[torch.Tensor]:
    """The slots of the non-empty segments as given; the smallest immediate fault is raised.

    Empty segments are type-checked and skipped.
    """
    errors: list[PoolError | None] = []
    slots: list[torch.Tensor] = []
    end_page = -1
    for index, segment in enumerate(checks.listed(segments, "segments")):
        if not isinstance(segment, (tuple, list)) or len(segment) != 2:
            errors.append(WrongShape(f"segment {index} must be a pair (free_index, start_pos)."))
            continue
        free_index, start_pos = segment
        try:
            start = checks.host_int(start_pos, f"start_pos of segment {index}")
        except PoolError as error:
            errors += [error, checks.ids_fault(free_index, f"segment {index}", device)]
            continue
        if not checks.is_ids(free_index, device):
            errors.append(checks.ids_fault(free_index, f"segment {index}", device))
            continue
        length = free_index.shape[0]
        if not length:
            continue
        errors.append(_position_fault(index, start, page_size, end_page))
        end_page = (start + length - 1) // page_size
        slots.append(free_index)
    checks.raise_first(errors)
    return slots


def _position_fault(index: int, start: int, page_size: int, end_page: int) -> PoolError | None:
    """What is wrong with a segment that starts at `start`, behind one that ends in `end_page`."""
    if start < 0:
        return NegativeSize(f"segment {index} starts at {start}. Positions start at 0.")
    if start % page_size:
        return Misaligned(
            f"segment {index} starts at {start}, which isn't a multiple of the page size "
            f"{page_size}. Start it at a page border."
        )
    if start < (end_page + 1) * page_size:
        return OverlappingSegments(
            f"segment {index} starts at {start}, but an earlier one reaches page of positions "
            f"{end_page}. Give ascending segments that share no page."
        )
    return None
