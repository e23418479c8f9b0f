"""The file of a recording, and what is known of the allocator that is recorded.

A recording is a head and then one command a line. Where the pool wasn't fresh, the first commands
rebuild the state that the recording began in: everything is taken at once, then what was free goes
back in the order of the free list.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from properties.commands import ALLOCATING, Call
from properties.subjects import UnusableSubject
from properties.systems.raw import LITERAL, PAGED_RAW, TOKEN_RAW, Raw, Ref
from properties.systems.system import System
from properties.trace import SCHEMA, versions

#: arguments that hold ids; all other lists are lengths
IDS = frozenset({"free_index", "last_loc", "page_ids", "segments"})


@dataclass(frozen=True)
class Family:
    """What an allocator is to the harness."""

    system: System
    subject: str
    config: Any
    #: the allocator's lists as they are now
    observe: Callable[[], dict[str, Any]]


def family_of(allocator: Any) -> Family:
    """The family of a live allocator; raises UnusableSubject for one that nobody here knows."""
    from impl import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
    from properties.subjects.impl import ImplSubject
    from properties.subjects.sglang import SglangSubject

    kinds = [f"{kind.__module__}.{kind.__name__}" for kind in type(allocator).__mro__]
    theirs = [kind for kind in kinds if kind.startswith("sglang.")]
    if isinstance(allocator, PagedTokenToKVPoolAllocator | TokenToKVPoolAllocator):
        paged = isinstance(allocator, PagedTokenToKVPoolAllocator)
        observe = ImplSubject(allocator, str(allocator.device)).observe
        return _family(allocator, paged, "impl", observe)
    for name, paged in (("PagedTokenToKVPoolAllocator", True), ("TokenToKVPoolAllocator", False)):
        if any(kind.endswith(f".{name}") for kind in theirs):
            shown = SglangSubject(allocator, "paged" if paged else "token")
            return _family(allocator, paged, "sglang", shown.observe)
    raise UnusableSubject(
        f"{kinds[0]} can't be recorded: a token or paged allocator of impl or of SGLang is wanted"
    )


def _family(
    allocator: Any, paged: bool, subject: str, observe: Callable[[], dict[str, Any]]
) -> Family:
    need_sort = bool(allocator.need_sort)
    if not paged:
        config = TOKEN_RAW.config(size=int(allocator.size), need_sort=need_sort)
        return Family(TOKEN_RAW, subject, config, observe)
    page_size = int(allocator.page_size)
    num_pages, spare = divmod(int(allocator.size), page_size)
    config = PAGED_RAW.config(
        page_size=page_size, num_pages=num_pages, spare=spare, need_sort=need_sort
    )
    return Family(PAGED_RAW, subject, config, observe)


def plain(original: Callable[..., Any], args: Any, kwargs: Any) -> tuple[dict[str, Any], bool]:
    """The arguments of a call by keyword, tensors as lists; and whether they were int32."""
    given = inspect.signature(original).bind(*args, **kwargs).arguments
    made: dict[str, Any] = {}
    narrow = False
    for name, value in given.items():
        tensors = [part for part, _ in value] if name == "segments" else [value]
        narrow = narrow or any(getattr(part, "dtype", None) == torch.int32 for part in tensors)
        if name == "segments":
            made[name] = [(ids.tolist(), int(start)) for ids, start in value]
        elif name == "config":
            made[name] = value
        elif value is not None:
            made[name] = value.tolist() if hasattr(value, "tolist") else int(value)
    return made, narrow


class Origins:
    """Where every id came from: the call that gave it and the place in what that gave."""

    def __init__(self, num_slots: int) -> None:
        self._call = np.full(num_slots, LITERAL, dtype=np.int64)
        self._index = np.arange(num_slots, dtype=np.int64)

    def gave(self, number: int, slots: list[int]) -> None:
        """A call gave these ids."""
        self._call[slots] = number
        self._index[slots] = np.arange(len(slots))

    def refs(self, ids: list[int]) -> tuple[Ref, ...]:
        """Names for ids; one that is no id of the pool stands for itself."""
        count = len(self._call)
        if ids and min(ids) >= 0 and max(ids) < count:
            calls, places = self._call[ids].tolist(), self._index[ids].tolist()
            return tuple(zip(calls, places, strict=True))
        return tuple(
            (int(self._call[i]), int(self._index[i])) if 0 <= i < count else (LITERAL, i)
            for i in ids
        )


class Namer:
    """Turns calls with actual ids into commands that name them, from a state of the pool on."""

    def __init__(self, family: Family, shown: dict[str, Any]) -> None:
        self.config = family.config.resized(shown["size"])
        self._page_size: int = self.config.page_size
        self._number = 0
        slots = list(range(self._page_size, self._origins(shown["size"])))
        #: what leads to the state from a fresh pool
        self.first: list[Raw] = []
        for call in preamble(self.config, shown):
            self.first.append(self.command(call))
            if call.method == "alloc":
                self.origins.gave(0, slots)

    def _origins(self, size: int) -> int:
        """Ids of a pool of this size have no names yet; how many there are."""
        count = (size // self._page_size + 1) * self._page_size
        self.origins = Origins(count)
        return count

    def command(self, call: Call, wrong: str = "") -> Raw:
        """The call as a command; `wrong` is the invariant that it breaks."""
        sizes: list[tuple[str, int]] = []
        lists: list[tuple[str, tuple[Ref, ...]]] = []
        for name, value in call.args.items():
            if name == "segments":
                sizes += [(name, start) for _, start in value]
                lists += [(name, self.origins.refs(ids)) for ids, _ in value]
            elif name == "config":
                sizes.append(("size", int(value.max_total_num_tokens)))
            elif isinstance(value, list):
                lists.append((name, self._named(name, value)))
            else:
                sizes.append((name, value))
        number, self._number = self._number, self._number + 1
        return Raw(call.method, number, tuple(sizes), tuple(lists), call.dtype == "int32", wrong)

    def _named(self, name: str, values: list[int]) -> tuple[Ref, ...]:
        if name == "page_ids":  # a page is named by its first slot
            return self.origins.refs([page * self._page_size for page in values])
        if name in IDS:
            return self.origins.refs(values)
        return tuple((LITERAL, value) for value in values)

    def served(self, call: Call, value: Any) -> None:
        """What the last command gave has its names from now on."""
        if call.method in ALLOCATING:
            self.origins.gave(self._number - 1, value)
        elif call.method == "resize":
            self._origins(int(call.args["config"].max_total_num_tokens))


def preamble(config: Any, shown: dict[str, Any]) -> list[Call]:
    """Calls that lead a fresh pool to the state that is shown; none if it is fresh."""
    if shown["group"]:
        raise UnusableSubject("an allocator with an open group can't be recorded: end it first")
    size, count = config.page_size, config.size // config.page_size
    free, staged = shown["free"], shown["staged"]
    if not staged and free == list(range(1, count + 1)):
        return []
    calls = [Call("alloc", {"need_size": count * size})]
    if free:
        calls.append(Call("free_page_ids", {"page_ids": free}))
        if config.need_sort:
            calls.append(Call("merge_and_sort_free"))
    if staged:
        calls.append(Call("free_page_ids", {"page_ids": staged}))
    return calls


class File:
    """A recording's file: a line for each command, complete up to the last one."""

    def __init__(self, path: Path, family: Family, config: Any) -> None:
        """Writes the head, over what was there."""
        head = {
            "recording": 1,
            "schema": SCHEMA,
            "system": family.system.name,
            "subject": family.subject,
            "level": "exact",
            "config": family.system.config_to_json(config),
            "versions": versions(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self.write(head)

    def write(self, line: dict[str, Any]) -> None:
        """One line, at once."""
        self._file.write(json.dumps(line) + "\n")

    def close(self, invariant: str | None) -> None:
        """The last line says which invariant was broken, if one was."""
        self.write({"invariant": invariant})
        self._file.close()
