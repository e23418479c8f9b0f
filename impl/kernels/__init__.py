"""One module per operation: its vectorised torch form, and the plan that the host makes for it.

`backend` "auto" and "torch" both mean the torch forms. Every form places the same slots.
Spec: `spec/core.md` §4 and §5.
"""

from __future__ import annotations

from impl.errors import Unsupported

BACKENDS = ("auto", "torch")


def resolve(backend: str) -> str:
    """The backend that `backend` means; `Unsupported` for a name that isn't known or built."""
    if backend == "triton":
        raise Unsupported('backend "triton" isn\'t built yet. Use "auto" or "torch".')
    if backend not in BACKENDS:
        raise Unsupported(f'backend {backend!r} is unknown. Use "auto" or "torch".')
    return "torch"
