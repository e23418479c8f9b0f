"""Lines as commands: who gets and gives back a row, and what stands in it before it is extended.

Follows `spec/core.md` §2 and §5a. Each command is one call of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.paged_rows_model import LineModel, LineSide
from properties.systems.slot_model import Faults


@dataclass(frozen=True)
class Admit(Command):
    """`alloc_rows`: new requests get rows of the table."""

    methods: ClassVar[tuple[str, ...]] = ("alloc_rows",)
    weight: ClassVar[int] = 24
    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    # situations count pages, and this takes none
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("served", "one short"), ("short", "one short")}
    )

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> Admit:
        free = len(model.side.free_rows())
        count = choices.integer(0, min(free + 1, 3), (1, 1, free, free + 1))
        return cls(tuple(range(model.next_name, model.next_name + count)))

    def applies(self, model: LineModel) -> bool:
        return len(set(self.requests)) == len(self.requests) and all(
            map(model.fresh, self.requests)
        )

    def call(self, model: LineModel, side: LineSide) -> Call:
        return Call("alloc_rows", {"need_size": len(self.requests)})

    def settle(self, model: LineModel, side: LineSide, value: list[int]) -> Faults:
        faults: Faults = []
        for name, row in zip(self.requests, value, strict=False):
            model.next_name = max(model.next_name, name + 1)
            faults += side.admit(name, row)
        return faults


@dataclass(frozen=True)
class GiveRows(Command):
    """`free_rows`: pages that the requests still own keep their holders, which are stale now."""

    methods: ClassVar[tuple[str, ...]] = ("free_rows",)
    weight: ClassVar[int] = 20

    requests: tuple[int, ...]

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> GiveRows:
        return cls(tuple(choices.subset(model.line_names, 0, 2)))

    def applies(self, model: LineModel) -> bool:
        lines = model.side.lines
        return len(set(self.requests)) == len(self.requests) and all(
            n in lines for n in self.requests
        )

    def call(self, model: LineModel, side: LineSide) -> Call:
        return Call("free_rows", {"indices": [side.row(name) for name in self.requests]})

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        return [fault for name in self.requests for fault in side.finish(name)]


# ---- what stands in a row before it is extended --------------------


@dataclass(frozen=True)
class _Fill(Command):
    """Writes the first slots of one request into the row of another, which has no tokens."""

    methods: ClassVar[tuple[str, ...]] = ("write",)

    requests: tuple[int, ...]  # the line that is written, and the request whose slots these are
    amount: int

    @classmethod
    def slots(cls, model: LineModel, side: LineSide, name: int, source: int) -> list[int]:
        """What of the source could be written."""
        return side.prefix(source)[: model.config.width]

    @classmethod
    def most(cls, model: LineModel, name: int, source: int) -> int:
        """The largest `amount` for this pair; 0 where there is none."""
        raise NotImplementedError

    @classmethod
    def pairs(cls, model: LineModel) -> list[tuple[int, int]]:
        side = model.side
        empty = [name for name, line in side.lines.items() if not line.length]
        if not empty:
            return []
        sources = [*side.rows, *(name for name, line in side.lines.items() if line.length)]
        return [(n, source) for n in empty for source in sources if cls.most(model, n, source)]

    @classmethod
    def enabled(cls, model: LineModel) -> bool:
        return bool(cls.pairs(model))

    @classmethod
    def draw(cls, choices: Choices, model: LineModel) -> Any:
        pair = choices.pick(cls.pairs(model))
        most = cls.most(model, *pair)
        return cls(pair, choices.integer(1, most, (most,)))

    def applies(self, model: LineModel) -> bool:
        return (
            len(self.requests) == 2
            and self.requests in self.pairs(model)
            and 0 < self.amount <= self.most(model, *self.requests)
        )

    def count(self, model: LineModel, side: LineSide) -> int:
        """How many slots are written."""
        raise NotImplementedError

    def call(self, model: LineModel, side: LineSide) -> Call:
        name, source = self.requests
        count = self.count(model, side)
        return Call(
            "write",
            {
                "indices": (side.row(name), slice(0, count)),
                "values": self.slots(model, side, name, source)[:count],
                "handle": side.pool.held[name],
            },
        )


class Hit(_Fill):
    """A prefix hit: the first full pages of another request, which stay that one's."""

    weight: ClassVar[int] = 40

    @classmethod
    def most(cls, model: LineModel, name: int, source: int) -> int:
        return len(cls.slots(model, model.side, name, source)) // model.page_size

    def count(self, model: LineModel, side: LineSide) -> int:
        return self.amount * model.page_size

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        name, source = self.requests
        count = self.count(model, side)
        side.write(name, self.slots(model, side, name, source)[:count])
        side.lines[name].start = side.hits[name] = count
        return []


class Adopt(_Fill):
    """A row takes over what `alloc` gave: anonymous pages, the last of them perhaps half filled."""

    weight: ClassVar[int] = 32

    @classmethod
    def most(cls, model: LineModel, name: int, source: int) -> int:
        side = model.side
        row = side.rows.get(source)
        if row is None or row.start or not 0 < len(row.slots) <= model.config.width:
            return 0
        if any(page in side.holders for page in side.pages(row.slots)):
            return 0
        return (len(row.slots) - 1) % model.page_size + 1

    def count(self, model: LineModel, side: LineSide) -> int:
        return len(side.rows[self.requests[1]].slots) - self.amount + 1

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        name, source = self.requests
        return side.adopt(name, source, self.count(model, side))


class Forge(_Fill):
    """Half of somebody's page in a row that can't go on there: what misuse starts from."""

    weight: ClassVar[int] = 24

    @classmethod
    def most(cls, model: LineModel, name: int, source: int) -> int:
        if model.page_size == 1:
            return 0
        return len(cls.slots(model, model.side, name, source))

    def count(self, model: LineModel, side: LineSide) -> int:
        return self.amount

    def settle(self, model: LineModel, side: LineSide, value: Any) -> Faults:
        name, source = self.requests
        side.write(name, self.slots(model, side, name, source)[: self.amount])
        return []


LINES: tuple[type[Command], ...] = (Admit, GiveRows, Hit, Adopt, Forge)
