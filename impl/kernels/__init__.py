"""One module per operation: its vectorised torch form, and the launcher that chooses a form.

`backend` "auto" and "torch" both mean the torch forms. Every form places the same slots.
Spec: `spec/core.md` §4 and §5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from impl.errors import Unsupported
from impl.kernels import decode, extend, release

Tensor = torch.Tensor


class Kernels(NamedTuple):
    """The forms of one backend."""

    backend: str
    place_extend: Callable[[extend.ExtendPlan, Tensor, Tensor, Tensor, Tensor], Tensor]
    place_decode: Callable[[decode.DecodePlan, Tensor, Tensor], Tensor]
    expand_pages: Callable[[Tensor, Tensor, Tensor], Tensor]
    distinct_pages: Callable[[Tensor, Tensor], Tensor]


TORCH = Kernels(
    backend="torch",
    place_extend=extend.place,
    place_decode=decode.place,
    expand_pages=release.expand_pages,
    distinct_pages=release.distinct_pages,
)


def resolve(backend: str) -> Kernels:
    """The forms that `backend` names; `Unsupported` for a name that isn't known or built."""
    if backend in ("auto", "torch"):
        return TORCH
    if backend == "triton":
        raise Unsupported('backend "triton" isn\'t built yet. Use "auto" or "torch".')
    raise Unsupported(f'backend {backend!r} is unknown. Use "auto" or "torch".')
