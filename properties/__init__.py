"""The harness: pairs `impl` and `reference`, states what must hold, and drives them.

`record` and `watch` write the calls of a live allocator as a trace (`properties.recorder`).
"""

from __future__ import annotations

from typing import Any

__all__ = ["record", "watch"]


def __getattr__(name: str) -> Any:
    # Whoever imports a part of the harness doesn't want the recorder, and all that it needs.
    if name in __all__:
        from properties import recorder

        return getattr(recorder, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
