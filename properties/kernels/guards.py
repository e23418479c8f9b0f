"""Tensors with poison on both sides, and the test that nobody wrote where nobody may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

# More than a tile's stray lane or two; a write a whole tile away lands in another guard or crashes.
GUARD = 40
POISON = {torch.uint8: 0x5A, torch.int32: 0x5A5A5A5A, torch.int64: -0x5A5A5A5A5A5A5A5B}


@dataclass
class Zone:
    """One guarded buffer; of what is `writable` only the surroundings are compared."""

    name: str
    whole: torch.Tensor
    body: torch.Tensor
    before: torch.Tensor = field(init=False)

    def remember(self) -> None:
        """What the whole buffer holds now is what it has to hold."""
        self.before = self.whole.clone()

    def require_unchanged(self, writable: bool) -> None:
        """Fail if anything differs that wasn't writable."""
        if writable:
            found = self.body.clone()
            kept = self.whole.clone()
            self.body.copy_(self._body_of(self.before))
            same = torch.equal(self.whole, self.before)
            self.whole.copy_(kept)
            assert same, f"{self.name}: written outside its bounds"
            assert torch.equal(self.body, found)
        else:
            assert torch.equal(self.whole, self.before), f"{self.name}: changed"

    def _body_of(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.as_strided(self.body.shape, self.body.stride(), self.body.storage_offset())


class Guards:
    """The buffers of one call."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = device
        self.zones: dict[str, Zone] = {}

    def line(
        self, name: str, values: Sequence[int] | torch.Tensor, dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """A 1-D buffer; not aligned to anything but its elements."""
        body = torch.as_tensor(values, dtype=dtype)
        whole = torch.full((GUARD + len(body) + GUARD + 1,), POISON[dtype], dtype=dtype)
        whole = whole.to(self.device)
        view = whole[GUARD + 1 : GUARD + 1 + len(body)]
        view.copy_(body)
        return self._add(name, whole, view)

    def rect(
        self, name: str, values: Sequence[Sequence[int]], dtype: torch.dtype, gap: int = 7
    ) -> torch.Tensor:
        """A 2-D buffer with poison before, behind and on both sides of each row."""
        body = torch.tensor(values, dtype=dtype)
        rows, width = body.shape
        whole = torch.full((rows + 2, width + 2 * gap), POISON[dtype], dtype=dtype)
        whole = whole.to(self.device)
        view = whole[1:-1, gap:-gap]
        view.copy_(body)
        return self._add(name, whole, view)

    def empty(self, name: str, length: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """A 1-D buffer full of poison."""
        return self.line(name, torch.full((length,), POISON[dtype], dtype=dtype), dtype)

    def _add(self, name: str, whole: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        zone = Zone(name, whole, view)
        zone.remember()
        self.zones[name] = zone
        return view

    def remember(self) -> None:
        """Everything as it is now."""
        for zone in self.zones.values():
            zone.remember()

    def require(self, *writable: str) -> None:
        """Guards whole, and only the named buffers written."""
        for name, zone in self.zones.items():
            zone.require_unchanged(name in writable)
