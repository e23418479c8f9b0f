"""A scope: how small a pool and how few requests an exhaustive search walks, or a bug fits in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A pool of `pages` pages of `page_size` slots, at most `requests` requests at a time.

    For rows and the token allocator a page is a row or a slot, and `page_size` is 1.
    """

    pages: int
    page_size: int
    requests: int

    def __str__(self) -> str:
        return f"{self.pages} pages of {self.page_size}, {self.requests} requests"

    def within(self, other: Scope) -> bool:
        """Whether all of it lies in the other scope."""
        return (
            self.pages <= other.pages
            and self.page_size <= other.page_size
            and self.requests <= other.requests
        )
