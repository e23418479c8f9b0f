"""Commands that only the paged allocator has: extend, decode, trim, repeated slot frees in a group.

Follows `spec/core.md` §4. Every request's tokens lie in pages that it alone continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import ALLOCATION_NEVER, Call, Command
from properties.systems import scoped
from properties.systems.slot_model import Faults, Side, SlotModel


def extend_args(side: Side, requests: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The five tensors of `alloc_extend` for appending (name, tokens), as lists."""
    prefix, seq, last, rows = [], [], [], side.rows
    for name, tokens in requests:
        before, at = 0, -1
        if name in rows:
            before, at = rows[name].length, rows[name].last_loc
        prefix.append(before)
        seq.append(before + tokens)
        last.append(at)
    return {
        "prefix_lens": prefix,
        "prefix_lens_cpu": list(prefix),
        "seq_lens": seq,
        "seq_lens_cpu": list(seq),
        "last_loc": last,
    }


@dataclass(frozen=True)
class _Grow(Command):
    """Appends tokens to requests, new ones and live ones mixed, in one call."""

    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = ALLOCATION_NEVER

    @property
    def growth(self) -> tuple[tuple[int, int], ...]:
        raise NotImplementedError

    def applies(self, model: SlotModel) -> bool:
        names = [name for name, _ in self.growth]
        return len(set(names)) == len(names) and all(
            name in model.side.rows or model.fresh(name) for name in names
        )

    def demand(self, model: SlotModel) -> int:
        return model.pages_for(self.growth)

    def settle(self, model: SlotModel, side: Side, value: list[int]) -> Faults:
        faults: Faults = []
        at = 0
        for name, tokens in self.growth:
            if tokens:
                faults += side.grow(name, value[at : at + tokens])
                at += tokens
            if name >= model.next_name:
                model.next_name = name + 1
        return faults

    def chunks(self, model: SlotModel, side: Side) -> Iterator[tuple[int, int, int]]:
        """(first position, tokens, last_loc) of each request, for the placement checks."""
        for name, tokens in self.growth:
            row = side.rows.get(name)
            yield (row.length, tokens, row.last_loc) if row else (0, tokens, -1)


def draw_names(choices: Choices, model: SlotModel, most: int) -> list[int]:
    """A batch of live and fresh names, seldom an empty one."""
    first = model.next_name
    if model.scope is not None:
        return list(scoped_names(choices, model))
    live = choices.subset(model.growable, 0, most)
    room = min(most - len(live), model.openings)
    return live + list(range(first, first + choices.integer(0, max(0, room), (1, 2))))


def draw_tokens(choices: Choices, size: int, rest: int, left: int, fits: bool) -> int:
    """How much a request grows: `rest` fits in its last page, `left` pages are to be had."""
    tight = rest + max(0, left) * size
    if choices.once_in(8):
        return tight + (0 if fits else choices.integer(0, 1))
    most = min(2 * size + 1, tight) if fits else 2 * size + 1
    return choices.integer(0, most, (rest, size - 1, size, size + 1, 1))


def scoped_names(choices: Choices, model: SlotModel) -> Iterator[int]:
    """A batch in a scope, name by name."""
    fresh = range(model.next_name, model.next_name + model.openings)
    most = 0 if model.scope is None else model.scope.requests
    return scoped.batch(choices, model.growable, fresh, 0, most)


def scoped_growth(choices: Choices, model: SlotModel) -> tuple[tuple[int, int], ...]:
    """A batch in a scope: its last request may make it too large, a lone one may ask for none."""
    size, left, rows = model.page_size, model.available_pages, model.side.rows
    requests: list[tuple[int, int]] = []
    for name in scoped_names(choices, model):
        rest = -rows[name].length % size if name in rows else 0
        tokens = scoped.amount(choices, rest + left * size, least=int(bool(requests)))
        requests.append((name, tokens))
        left -= -(-(tokens - rest) // size) if tokens > rest else 0
        if left < 0 or not tokens:
            break
    return tuple(requests)


# Sometimes int32, which tests one conversion and costs five of them.
NARROW = (False, False, True)
# (fits, narrow, counted) of an extend: mostly it fits, so that pools fill and empty; else anything,
# tight and one short too.
_FORMS = tuple(product((True, True, True, True, True, False), NARROW, (False, True)))


@dataclass(frozen=True)
class Extend(_Grow):
    """`alloc_extend`: first chunk of new requests, later chunks of live ones."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_extend",)
    weight: ClassVar[int] = 70

    requests: tuple[tuple[int, int], ...]
    narrow: bool  # int32 instead of int64 arguments
    counted: bool  # the caller passes num_new_pages

    @property
    def growth(self) -> tuple[tuple[int, int], ...]:
        return self.requests

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Extend:
        if model.scope is not None:
            return cls(scoped_growth(choices, model), narrow=False, counted=False)
        size, left, rows = model.page_size, model.available_pages, model.side.rows
        fits, narrow, counted = choices.pick(_FORMS)
        requests: list[tuple[int, int]] = []
        for name in draw_names(choices, model, 4):
            rest = -rows[name].length % size if name in rows else 0
            tokens = draw_tokens(choices, size, rest, left, fits)
            requests.append((name, tokens))
            left -= -(-(tokens - rest) // size) if tokens > rest else 0
        return cls(tuple(requests), narrow, counted)

    def call(self, model: SlotModel, side: Side) -> Call:
        args = extend_args(side, self.requests)
        args["extend_num_tokens"] = sum(args["seq_lens"]) - sum(args["prefix_lens"])
        if self.counted:
            args["num_new_pages"] = model.pages_for(self.requests)
        return Call("alloc_extend", args, "int32" if self.narrow else "int64")


@dataclass(frozen=True)
class Decode(_Grow):
    """`alloc_decode`: one more token for each request."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_decode",)
    weight: ClassVar[int] = 18

    requests: tuple[int, ...]
    narrow: bool

    @property
    def growth(self) -> tuple[tuple[int, int], ...]:
        return tuple([(name, 1) for name in self.requests])

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Decode:
        names = draw_names(choices, model, 6)
        return cls(tuple(names), model.scope is None and choices.pick(NARROW))

    def call(self, model: SlotModel, side: Side) -> Call:
        args = extend_args(side, self.growth)
        del args["prefix_lens"], args["prefix_lens_cpu"]
        return Call("alloc_decode", args, "int32" if self.narrow else "int64")


@dataclass(frozen=True)
class Trim(Command):
    """Drops a request's last tokens (rejected drafts): whole pages go back, a kept page stays."""

    methods: ClassVar[tuple[str, ...]] = ("free_segment",)
    weight: ClassVar[int] = 8

    request: int
    tokens: int

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return any(len(row.slots) > 1 for row in model.side.rows.values())

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> Trim:
        rows = model.side.rows
        name = choices.pick([name for name, row in rows.items() if len(row.slots) > 1])
        return cls(name, choices.integer(1, len(rows[name].slots) - 1, (1, model.page_size)))

    def applies(self, model: SlotModel) -> bool:
        row = model.side.rows.get(self.request)
        return row is not None and 0 < self.tokens < len(row.slots)

    def kept(self, side: Side) -> tuple[int, int]:
        """(slots kept, slots kept by allocator: up to the end of the last kept page)."""
        row = side.rows[self.request]
        kept = len(row.slots) - self.tokens
        return kept, min(len(row.slots), -(-kept // side.page_size) * side.page_size)

    def call(self, model: SlotModel, side: Side) -> Call:
        row = side.rows[self.request]
        _, page_end = self.kept(side)
        return Call(
            "free_segment",
            {"free_index": row.slots[page_end:], "start_pos": row.start + page_end}
            if page_end < len(row.slots)
            else {"free_index": [], "start_pos": row.start},
        )

    def settle(self, model: SlotModel, side: Side, value: Any) -> Faults:
        row = side.rows[self.request]
        kept, page_end = self.kept(side)
        pages = list(dict.fromkeys([slot // side.page_size for slot in row.slots[page_end:]]))
        faults = side.ledger.drop(self.request, row.slots[kept:page_end])
        del row.slots[kept:]
        return faults + side.release(pages, model.group, by_slots=False)


@dataclass(frozen=True)
class FreeParked(Command):
    """A page that a slot free parked is named by another slot free of the group: released once."""

    of_pool: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("free", "free_group_begin", "free_group_end")
    weight: ClassVar[int] = 30  # few states allow it, and those don't last

    index: int
    offset: int

    @classmethod
    def enabled(cls, model: SlotModel) -> bool:
        return bool(model.side.parked_by_slots)

    @classmethod
    def draw(cls, choices: Choices, model: SlotModel) -> FreeParked:
        return cls(
            choices.integer(0, len(model.side.parked_by_slots) - 1),
            choices.integer(0, model.page_size - 1),
        )

    def applies(self, model: SlotModel) -> bool:
        return (
            0 <= self.index < len(model.side.parked_by_slots) and 0 <= self.offset < model.page_size
        )

    def call(self, model: SlotModel, side: Side) -> Call:
        page = side.parked_by_slots[self.index]
        return Call("free", {"free_index": [page * model.page_size + self.offset]})


GROWTH: tuple[type[Command], ...] = (Extend, Decode, Trim, FreeParked)
