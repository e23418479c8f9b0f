"""The contents of everything mutable that an object reaches, to be put back in place.

A search over states goes back to a state for each command that it tries there. A deep copy takes
milliseconds, and a replay of the path longer still; putting back what lists, sets, attributes and
memory held takes microseconds, and everybody who knows the objects still knows them.

What can't be saved is refused, never left out: `Unsaved` names it.
"""

from __future__ import annotations

import enum
import types
from array import array
from collections.abc import Iterable
from dataclasses import is_dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch

# What never changes, and leads to nothing that does. Code is among it: what a function closes over
# belongs to whoever made it.
_ATOMS: tuple[type, ...] = (
    type(None), bool, int, float, complex, str, bytes, type, range, slice, enum.Enum,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MappingProxyType,
    torch.dtype, torch.device, np.dtype, np.generic,
)  # fmt: skip


class Unsaved(TypeError):
    """An object of a kind that a memento can't hold."""


@cache
def _is_atom(kind: type) -> bool:
    return issubclass(kind, _ATOMS)


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """The names of all slots of a class."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


@cache
def _declared(kind: type, word: str) -> frozenset[str]:
    """Attributes that a class says something about.

    `passing` ones decide nothing, whatever they hold; what `replaced` ones hold is never changed.
    """
    return frozenset(name for base in kind.__mro__ for name in base.__dict__.get(word, ()))


_ROOTS = (object, list, dict, set, types.SimpleNamespace)
_POINTER = 8


@cache
def _is_plain(kind: type) -> bool:
    """Whether items, attributes and slots are all that an instance of a class has.

    Told by its size, as `pickle` does: what is written in C may have more.
    """
    roots = [base for base in kind.__mro__ if base in _ROOTS]
    others = [base for base in kind.__mro__ if base not in _ROOTS]
    if len(roots) > 2 or not all(base.__flags__ & _HEAP for base in others):
        return False
    pointers = len(_slots(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    known = sum(root is not object and root.__dictoffset__ > 0 for root in roots)
    return kind.__basicsize__ <= roots[0].__basicsize__ + _POINTER * (pointers - known)


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE, which classes written in Python have


@cache
def _is_frozen(kind: type) -> bool:
    """Whether a class is a frozen dataclass: its fields stay, what they hold may change."""
    return is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


_BITS = {1: torch.uint8, 2: torch.int16}


class Memento:
    """What the objects reachable from `root` hold now."""

    def __init__(self, root: Any) -> None:
        self._seen: set[Any] = set()
        self._lists: list[tuple[Any, Any]] = []
        self._sets: list[tuple[set[Any], frozenset[Any]]] = []
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._attributes: list[tuple[dict[str, Any], dict[str, Any], int, frozenset[str]]] = []
        self._slotted: list[tuple[Any, str, Any]] = []
        self._memory: list[tuple[memoryview, bytes]] = []
        self._strided: list[tuple[Any, Any]] = []
        #: keeps what was looked at alive, so that no other object gets its id meanwhile
        self._kept: list[Any] = []
        waiting = [root]
        while waiting:
            item = waiting.pop()
            kind: Any = type(item)
            if _is_atom(kind) or id(item) in self._seen:
                continue
            self._seen.add(id(item))
            waiting.extend(self._save(item))
        self._seen.clear()
        self._kept.clear()

    def restore(self) -> None:
        """Puts everything back."""
        for found, items in self._lists:
            found[:] = items
        for group, members in self._sets:
            if group != members:
                group.clear()
                group.update(members)
        for named, values in self._dicts:  # in their order, which decides too
            named.clear()
            named.update(values)
        for named, values, count, passing in self._attributes:
            named.update(values)
            if len(named) != count:
                for name in named.keys() - values.keys() - passing:
                    del named[name]
        for item, name, value in self._slotted:
            setattr(item, name, value)
        for memory, content in self._memory:
            memory[:] = content
        for strided, copy in self._strided:
            strided[...] = copy

    def _save(self, item: Any) -> Iterable[Any]:
        """Notes what one object holds; gives back what it leads to."""
        kind: Any = type(item)
        self._kept.append(item)
        if isinstance(item, tuple | frozenset):
            return item
        if isinstance(item, np.ndarray | torch.Tensor):
            self._save_memory(item)
            return ()
        if isinstance(item, bytearray | array):
            self._lists.append((item, item[:]))
            return ()
        if isinstance(item, types.MethodType):
            return (item.__self__,)
        if isinstance(item, partial):
            return (item.func, item.args, item.keywords)
        if not _is_plain(kind):
            raise Unsaved(f"{kind.__module__}.{kind.__qualname__} can't be saved: {item!r:.80}")
        return [*self._save_items(item), *self._save_attributes(item, kind)]

    def _save_items(self, item: Any) -> Iterable[Any]:
        if isinstance(item, list):
            held = list(item)
            self._lists.append((item, held))
            return held
        if isinstance(item, set):
            self._sets.append((item, frozenset(item)))
            return item
        if isinstance(item, dict):
            values = dict(item)
            self._dicts.append((item, values))
            return [*values, *values.values()]
        return ()

    def _save_attributes(self, item: Any, kind: type) -> Iterable[Any]:
        passing, replaced = _declared(kind, "passing"), _declared(kind, "replaced")
        named = getattr(item, "__dict__", {})
        values = {name: value for name, value in named.items() if name not in passing}
        slots = [(name, getattr(item, name)) for name in _slots(kind) if hasattr(item, name)]
        if not _is_frozen(kind):
            if hasattr(item, "__dict__"):
                self._attributes.append((named, values, len(named), passing))
            self._slotted += [(item, *slot) for slot in slots]
        return [value for name, value in (*values.items(), *slots) if name not in replaced]

    def _save_memory(self, item: Any) -> None:
        """Notes the memory of an array; two that lie in the same memory are noted once."""
        if isinstance(item, torch.Tensor):
            if item.device.type != "cpu":
                self._strided.append((item, item.clone()))
                return
            # numpy hasn't got all types that are shorter than 32 bits
            narrow = _BITS.get(item.itemsize) if item.is_floating_point() else None
            item = item.detach().view(narrow or item.dtype).numpy()
        if item.dtype.hasobject:
            raise Unsaved(f"an array of objects can't be saved: {item!r:.80}")
        if not item.nbytes or not item.flags.writeable:
            return
        if not item.flags.c_contiguous:
            self._strided.append((item, item.copy()))
            return
        place = (item.__array_interface__["data"][0], item.nbytes)
        if place not in self._seen:
            self._seen.add(place)
            memory = memoryview(item).cast("B")
            self._memory.append((memory, memory.tobytes()))


def can_be_saved(root: Any) -> bool:
    """Whether a memento can hold all that `root` reaches."""
    try:
        Memento(root)
    except Unsaved:
        return False
    return True
