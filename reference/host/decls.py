"""What is mirrored on the host, and in which order (`interleave_hisparse_host_prefix.md` §4.2)."""

from collections.abc import Sequence
from typing import NamedTuple

from reference.refusal import Fault, Refused, refuse_smallest


class Decl(NamedTuple):
    """A pool to be mirrored, as far as its validation looks at it."""

    name: str
    layout_source: str | None = None
    indices_from: str | None = None
    has_builder: bool = True
    has_storage: bool = True
    layers: Sequence[int] = ()


def ordered(decls: Sequence[Decl], num_layers: int, primary: str = "kv") -> list[str]:
    """Names, the root first, each behind what it is laid out after."""
    names = [decl.name for decl in decls]
    faults: list[Fault] = []
    if len(set(names)) < len(names):
        faults.append(("Duplicate", 0))
    if [decl.name for decl in decls if decl.layout_source is None] != [primary]:
        faults.append(("Unsupported", 0))
    for decl in decls:
        if len(set(decl.layers)) < len(decl.layers):
            faults.append(("Duplicate", 0))
        if any(not 0 <= layer < num_layers for layer in decl.layers):
            faults.append(("OutOfRange", 0))
        if decl.layout_source is not None:
            complete = decl.has_builder and decl.has_storage
            if not complete or decl.indices_from != primary:
                faults.append(("Unsupported", 0))
            if decl.layout_source not in names:
                faults.append(("NotOwned", 0))
    refuse_smallest(faults)
    source = {decl.name: decl.layout_source for decl in decls}

    def depth(name: str) -> int:
        """How many pools stand between this one and nothing."""
        steps, behind = 0, source[name]
        while behind is not None:
            steps, behind = steps + 1, source[behind]
            if steps > len(names):
                raise Refused("Unsupported")
        return steps

    return sorted(names, key=depth)
