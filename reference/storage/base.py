"""What all KV pools share: a list of codes for each slot, buffer and layer (§7, `core.md` §7).

Slots 0..page_size - 1 are padding, as negative ones are: nobody writes there, so they stay zero.
"""

from collections.abc import Sequence
from typing import Any

from reference.refusal import Fault, Refused, refuse_smallest
from reference.storage.floats import converted, size_bytes

Rows = list[list[int]]
"""Codes of several tokens."""


class KVWriteLoc:
    """Slots of a write, those of sub-pools beside them, and whether they are rows of buffers."""

    def __init__(
        self,
        loc: Sequence[int],
        swa_loc: Sequence[int] | None = None,
        full_loc: Sequence[int] | None = None,
        physical: bool = False,
    ) -> None:
        for companion in (swa_loc, full_loc):
            if companion is not None and len(companion) < len(loc):
                raise Refused("BadLengths")
        count = len(loc)
        self.loc = list(loc)
        self.swa_loc = None if swa_loc is None else list(swa_loc)[:count]
        self.full_loc = None if full_loc is None else list(full_loc)[:count]
        self.physical = physical


def as_loc(loc: Any) -> KVWriteLoc:
    """A bare list of slots is `loc` alone, and not marked."""
    return loc if isinstance(loc, KVWriteLoc) else KVWriteLoc(loc)


class KVCache:
    """Layers [start_layer, start_layer + layer_num), buffers named with the codes of a row."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: str,
        layer_num: int,
        widths: dict[str, tuple[int, str]],
        *,
        start_layer: int = 0,
        requires_physical_write_loc: bool = False,
    ) -> None:
        self.size, self.page_size, self.dtype = size, page_size, dtype
        self.layer_num, self.start_layer = layer_num, start_layer
        self.requires_physical_write_loc = requires_physical_write_loc
        self.end = size + page_size
        #: buffer → codes of a row, and their type
        self.widths = widths
        #: buffer → layer → slot → codes
        self.content = {
            name: {layer: [[0] * width for _ in range(self.end)] for layer in self.layers_of(name)}
            for name, (width, _) in widths.items()
        }

    def layers_of(self, name: str) -> list[int]:
        """The layers that have a buffer of this name."""
        return list(range(self.start_layer, self.start_layer + self.layer_num))

    # --- what is looked at ---

    def require_layer(self, layer: int) -> None:
        """A layer of the pool."""
        if not self.start_layer <= layer < self.start_layer + self.layer_num:
            raise Refused("OutOfRange")

    def require_marked(self, loc: Any) -> None:
        """Slots that are marked, where they have to be."""
        if self.requires_physical_write_loc and not as_loc(loc).physical:
            raise Refused("Unsupported")

    def beyond(self, slots: Sequence[int]) -> list[Fault]:
        """Slots beyond the pool."""
        return [("OutOfRange", at) for at, slot in enumerate(slots) if slot >= self.end]

    # --- writes ---

    def write(self, name: str, layer: int, slots: Sequence[int], rows: Rows) -> None:
        """Rows under slots, one after another; what is aimed at the padding is dropped."""
        for slot, row in zip(slots, rows, strict=True):
            if slot >= self.page_size:
                self.content[name][layer][slot] = list(row)

    def as_stored(self, rows: Rows, source: str, scale: float | None) -> Rows:
        """Rows of a type as the pool has them."""
        return [[converted(code, source, self.dtype, scale) for code in row] for row in rows]

    # --- all buffers alike ---

    def move_kv_cache(self, tgt_loc: Sequence[int], src_loc: Sequence[int]) -> None:
        """All sources are read before any target is written."""
        if len(tgt_loc) != len(src_loc):
            raise Refused("BadLengths")
        faults = self.beyond(tgt_loc) + self.beyond(src_loc)
        for at, (target, source) in enumerate(zip(tgt_loc, src_loc, strict=True)):
            if target >= self.page_size and source < self.page_size:
                faults.append(("Reserved", at))
            if target >= self.page_size and target in tgt_loc[:at]:
                faults.append(("Duplicate", at))
        refuse_smallest(faults)
        for name, layers in self.content.items():
            for layer, rows in layers.items():
                self.write(name, layer, tgt_loc, [rows[max(source, 0)] for source in src_loc])

    def held_faults(self, indices: Sequence[int], once: bool) -> list[Fault]:
        """What is wrong with the slots of a host copy: those of requests only."""
        faults = self.beyond(indices)
        faults += [("Reserved", at) for at, slot in enumerate(indices) if slot < self.page_size]
        if once:
            faults += [("Duplicate", at) for at, s in enumerate(indices) if s in indices[:at]]
        return faults

    def get_cpu_copy(
        self, indices: Sequence[int], mamba_indices: Any = None, req_pool_index: Any = None
    ) -> Any:
        """The rows of slots: buffer → layer → rows."""
        refuse_smallest(self.held_faults(indices, once=False))
        return {
            name: {layer: [list(rows[slot]) for slot in indices] for layer, rows in layers.items()}
            for name, layers in self.content.items()
        }

    def load_cpu_copy(
        self,
        copy: Any,
        indices: Sequence[int],
        mamba_indices: Any = None,
        req_pool_index: Any = None,
    ) -> None:
        """A copy under the same or other slots."""
        self.require_copy(copy, indices)
        for name, layers in copy.items():
            for layer, rows in layers.items():
                self.write(name, layer, indices, rows)

    def require_copy(self, copy: Any, indices: Sequence[int]) -> None:
        """A copy of this pool's, for as many slots."""
        refuse_smallest(self.held_faults(indices, once=True))
        counts = {len(rows) for layers in copy.values() for rows in layers.values()}
        if counts - {len(indices)}:
            raise Refused("BadLengths")

    # --- reports ---

    def bytes_of(self, name: str) -> int:
        """Bytes of all buffers of a name, the padding's too."""
        width, dtype = self.widths[name]
        return self.end * width * size_bytes(dtype) * len(self.content[name])

    def snapshot(self) -> dict[str, Any]:
        """All content: (buffer, layer, rows), buffer by buffer."""
        return {
            "size": self.size,
            "buffers": [
                (name, layer, [list(row) for row in rows])
                for name, layers in self.content.items()
                for layer, rows in layers.items()
            ],
        }
