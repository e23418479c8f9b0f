"""Every test of kernels runs inside the fence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from properties.kernels.fence import fenced


@pytest.fixture(autouse=True)
def fence() -> Iterator[None]:
    """What a kernel touches lies in the tensors that it was given."""
    with fenced():
        yield
