"""What a recorder saw: calls of an allocator that is known only from outside.

Such an allocator shows no requests. Its calls are `raw` commands, which name ids by where they came
from: the call that gave them and the place in what it gave; an id itself stands there only where
the recording never saw it given. So a recording is a trace like any other: any part of it means
something, and it runs on any allocator, whatever pages that one hands out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar

from properties.commands import ALLOCATING, Call, Command
from properties.systems.paged import PAGED
from properties.systems.slot_model import Faults, Side, SlotModel
from properties.systems.system import System
from properties.systems.token import TOKEN

# (call, index): the slot at this place in what the call gave. LITERAL: the id itself.
Ref = tuple[int, int]
LITERAL = -1
#: methods of the family that change a pool, with what they release by
BY_SLOTS = frozenset({"free", "free_full", "free_full_segment", "free_full_segments"})
BY_PAGES = frozenset({"free_page_ids", "free_segment", "free_segments"})
GROWING = frozenset({"alloc_extend", "alloc_decode"})
METHODS = frozenset(
    {
        "alloc", "free_group_begin", "free_group_end", "merge_and_sort_free", "clear", "resize",
        *GROWING, *BY_SLOTS, *BY_PAGES,
    }
)  # fmt: skip


class RawSide(Side):
    """Who owns what, and what each call gave, on one side."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        super().__init__(num_pages, page_size)
        self.given: dict[int, list[int]] = {}
        self._owners = 0

    def slot(self, ref: Ref) -> int:
        """The id that is meant on this side."""
        call, index = ref
        return index if call == LITERAL else self.given[call][index]

    def known(self, ref: Ref) -> bool:
        """Whether this side has seen the call that gave the id."""
        call, index = ref
        return call == LITERAL or 0 <= index < len(self.given.get(call, ()))

    def book(self, call: Call, value: Any, group: bool) -> Faults:
        """Books a served call, with this side's ids in it."""
        match call.method:
            case "clear":
                self.reset()
            case "resize":
                self.reset(call.args["config"].max_total_num_tokens // self.page_size)
            case "free_group_end":
                self.end_group()
            case method if method in ALLOCATING:
                return self._gave(call, value)
            case method if method in BY_SLOTS | BY_PAGES:
                return self._took(call, group)
        return []

    def _gave(self, call: Call, slots: list[int]) -> Faults:
        """Fresh pages get an owner of their own, a page that is gone on in stays with its owner."""
        faults: Faults = []
        at = 0
        for before, tokens, last in chunks(call):
            goes_on = before % self.page_size and last >= 0
            owner = self.ledger.owner_of(last) if goes_on else None
            if owner is None:
                self._owners += 1
                owner = self._owners
            mine = slots[at : at + tokens]
            found = self._reissued(before, mine) or self.ledger.issue(owner, mine)
            if call.method == "alloc" and not found:
                # Whole pages: how much of them the caller uses, nobody says; it may go on in one.
                self.ledger.drop(owner, mine)
            faults += found
            at += tokens
        return faults

    def _reissued(self, before: int, slots: list[int]) -> Faults:
        """I34: pages that are opened and have an owner already."""
        opened = slots[-before % self.page_size :: self.page_size]
        pages = [slot // self.page_size for slot in opened]
        return [
            ("I34", f"page {page} was opened: page {page} is owned already")
            for page in pages
            if self.ledger.owns(page)
        ]

    def _took(self, call: Call, group: bool) -> Faults:
        pages, by_slots = released(call, self.page_size), call.method in BY_SLOTS
        if group and by_slots:  # which may name again what they have parked
            pages = [page for page in pages if page not in self.parked_by_slots]
        return self.release(pages, group, by_slots)


def chunks(call: Call) -> Iterator[tuple[int, int, int]]:
    """(first position, tokens, last_loc) of each request of an allocation."""
    args = call.args
    if call.method == "alloc":
        yield 0, args["need_size"], -1
    elif call.method in GROWING:
        seq = args["seq_lens_cpu"]
        prefix = args.get("prefix_lens_cpu", [length - 1 for length in seq])
        for before, length, last in zip(prefix, seq, args["last_loc"], strict=False):
            yield before, length - before, last


def released(call: Call, page_size: int) -> list[int]:
    """The pages that a call gives back, each once, in order."""
    if call.method == "free_page_ids":
        return list(dict.fromkeys(call.args["page_ids"]))
    parts = [ids for ids, _ in call.args.get("segments", ())] or [call.args.get("free_index", [])]
    return list(dict.fromkeys([slot // page_size for ids in parts for slot in ids]))


class RawModel(SlotModel):
    """The reference beside a recording; what it knows of requests is what pages go on."""

    side: RawSide

    def new_side(self) -> RawSide:
        return RawSide(self.config.size // self.page_size, self.page_size)


@dataclass(frozen=True)
class Raw(Command):
    """One recorded call, numbered: later ones name by the number what it gave."""

    outcomes: ClassVar[tuple[str, ...]] = ()

    method: str
    number: int
    #: plain integers by keyword; of segments the start positions, in their order
    sizes: tuple[tuple[str, int], ...]
    #: lists of ids or lengths by keyword; of segments one each
    lists: tuple[tuple[str, tuple[Ref, ...]], ...]
    narrow: bool
    #: the invariant that the caller broke by it, or ""
    wrong: str

    @classmethod
    def enabled(cls, model: RawModel) -> bool:
        return False  # what was recorded is run again; nothing is drawn

    @classmethod
    def supported(cls, calls: frozenset[str]) -> bool:
        return bool(calls & METHODS)

    def applies(self, model: RawModel) -> bool:
        side = model.side
        return (
            self.method in METHODS
            and self.method in model.calls
            and self.number >= 0
            and self.number not in side.given
            and all(side.known(ref) for _, refs in self.lists for ref in refs)
        )

    def call(self, model: RawModel, side: RawSide) -> Call:
        args: dict[str, Any] = {}
        lists = [(name, [side.slot(ref) for ref in refs]) for name, refs in self.lists]
        if self.method.endswith("segments"):
            starts = [start for _, start in self.sizes]
            args["segments"] = [
                (ids, start) for (_, ids), start in zip(lists, starts, strict=False)
            ]
        elif self.method == "resize":
            args["config"] = SimpleNamespace(max_total_num_tokens=dict(self.sizes).get("size", 0))
        else:
            args = {**dict(self.sizes), **dict(lists)}
        if self.method == "free_page_ids":
            args["page_ids"] = [slot // side.page_size for slot in args.get("page_ids", [])]
        return Call(self.method, args, "int32" if self.narrow else "int64")

    def chunks(self, model: RawModel, side: RawSide) -> Iterator[tuple[int, int, int]]:
        """(first position, tokens, last_loc) of each request of an allocation."""
        return chunks(self.call(model, side))

    def settle(self, model: RawModel, side: RawSide, value: Any) -> Faults:
        call = self.call(model, side)
        side.given[self.number] = list(value) if self.method in ALLOCATING else []
        return side.book(call, value, model.group)

    def caller_breaks(self) -> str:
        return self.wrong

    def __str__(self) -> str:
        """As the call would be written, with its number in front of what it gives."""
        inner = [f"{name}={value}" for name, value in self.sizes]
        inner += [f"{name}=[{', '.join(map(_shown, refs))}]" for name, refs in self.lists]
        wrong = f" (breaks {self.wrong})" if self.wrong else ""
        return f"#{self.number} = {self.method}({', '.join(inner)}){wrong}"

    def simpler(self, earlier: Sequence[Command]) -> Iterator[Raw]:
        """The call with fewer ids, fewer requests in its batch, or ids of earlier calls."""
        if self.method in GROWING:
            yield from self._smaller_batch()
        else:
            yield from self._fewer()
        gave = [each.number for each in earlier if isinstance(each, Raw) and each.allocates]
        for i, (name, refs) in enumerate(self.lists):
            if len(refs) == 1 and refs[0][0] != LITERAL:
                for number in gave:
                    if (number, 0) < refs[0]:
                        other = (name, ((number, 0),))
                        yield replace(self, lists=(*self.lists[:i], other, *self.lists[i + 1 :]))

    @property
    def allocates(self) -> bool:
        """Whether it gives ids."""
        return self.method in ALLOCATING

    def _fewer(self) -> Iterator[Raw]:
        for i, (name, refs) in enumerate(self.lists):
            for low, high in _parts(len(refs)):
                fewer = (name, refs[:low] + refs[high:])
                yield replace(self, lists=(*self.lists[:i], fewer, *self.lists[i + 1 :]))
        if self.method == "alloc":
            size = dict(self.sizes)["need_size"]
            for smaller in sorted({1, size // 2, size - 1}):
                if 0 <= smaller < size:
                    yield replace(self, sizes=(("need_size", smaller),))

    def _smaller_batch(self) -> Iterator[Raw]:
        """Without some requests; the totals that the caller passed follow."""
        count = len(dict(self.lists)["last_loc"])
        for low, high in _parts(count) if count > 1 else ():
            lists = tuple((name, refs[:low] + refs[high:]) for name, refs in self.lists)
            lengths = {name: [index for _, index in refs] for name, refs in lists}
            prefix = lengths.get("prefix_lens_cpu", [])
            total = sum(lengths["seq_lens_cpu"]) - sum(prefix)
            sizes = tuple(
                (name, total if name == "extend_num_tokens" else value)
                for name, value in self.sizes
                if name != "num_new_pages"
            )
            yield replace(self, lists=lists, sizes=sizes)


def _shown(ref: Ref) -> str:
    call, index = ref
    return str(index) if call == LITERAL else f"#{call}[{index}]"


def _parts(count: int) -> list[tuple[int, int]]:
    """Halves, quarters, … and single places of a list."""
    found: list[tuple[int, int]] = []
    size = count
    while size:
        edges = [*range(0, count, size), count]
        found += pairwise(edges)
        size //= 2
    return found


def raw(of: System) -> System:
    """The system of recordings of such an allocator."""
    return System(
        name=f"{of.name}_raw",
        config=of.config,
        commands=(Raw,),
        situations=(),
        reference=of.reference,
        model=lambda config, target: RawModel(config, target, paged=of is PAGED),
        interface=of.interface,
        made_as=of.name,
    )


PAGED_RAW, TOKEN_RAW = raw(PAGED), raw(TOKEN)
