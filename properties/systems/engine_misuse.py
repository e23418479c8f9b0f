"""Misuse of the small engine's parts: what has to be refused, whatever is going on around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.engine_model import EngineModel, EngineSide

FULL = "exactly full"


@dataclass(frozen=True)
class _Careless(Command):
    """Base: a call with one of the ids that it mustn't be made with."""

    misuse: ClassVar[bool] = True
    weight: ClassVar[int] = 1
    outcomes: ClassVar[tuple[str, ...]] = ("refused",)

    at: int

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        """What it may be about."""
        raise NotImplementedError

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(cls.able(model, model.side))

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Any:
        return cls(choices.integer(0, len(cls.able(model, model.side)) - 1))

    def applies(self, model: EngineModel) -> bool:
        return 0 <= self.at < len(self.able(model, model.side))

    def chosen(self, model: EngineModel, side: EngineSide) -> Any:
        return self.able(model, side)[self.at]


class FreeAgain(_Careless):
    """The slots of a page that nobody has."""

    methods: ClassVar[tuple[str, ...]] = ("free_slots",)
    # then there is no such page
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset({("refused", FULL)})

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        return sorted(side.ledger.available_pages())

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        first = self.chosen(model, side) * model.page_size
        return Call("free_slots", {"slots": list(range(first, first + model.page_size))})


class FreeRowAgain(_Careless):
    """A row that nobody has."""

    methods: ClassVar[tuple[str, ...]] = ("free_row",)

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        held = model.state["rows"]["held"]
        return [row for row in range(model.config.rows + 1) if row not in held]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("free_row", {"row": self.chosen(model, side)})


class WriteByOldRow(_Careless):
    """A row by the generation that it had before, or when it was held last."""

    methods: ClassVar[tuple[str, ...]] = ("write_row",)

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        state = model.state["rows"]
        return [
            (row, generation - (row in state["held"]))
            for row, generation in enumerate(state["generations"])
            if row and generation > (row in state["held"])
        ]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        row, generation = self.chosen(model, side)
        slot = model.page_size
        return Call("write_row", {"row": row, "generation": generation, "slot": slot})


class WriteBeyond(_Careless):
    """KV for a slot beyond the pool, behind one for nobody."""

    methods: ClassVar[tuple[str, ...]] = ("write_slots",)

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        end = model.config.size + model.page_size
        return [end, end + 1]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("write_slots", {"slots": [0, self.chosen(model, side)]})


class CopyNobodys(_Careless):
    """A copy of slots that no request has."""

    methods: ClassVar[tuple[str, ...]] = ("copy_slots",)

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        free = [page * model.page_size for page in sorted(side.ledger.available_pages())]
        return [0, model.page_size - 1, model.config.size + model.page_size, *free]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("copy_slots", {"slots": [self.chosen(model, side)]})


class LoadElsewhere(_Careless):
    """The copy of a request for the reserved page, for one slot twice, or for pages nobody has."""

    methods: ClassVar[tuple[str, ...]] = ("load_slots",)

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        size = model.page_size
        free = [p * size + at for p in sorted(side.ledger.available_pages()) for at in range(size)]
        found: list[tuple[int, list[int]]] = []
        for name, kept in side.kept.items():
            count = len(kept.lines)
            if not kept.host:
                found.append((name, [0] * count))
                found += [(name, [size] * count)] * (count > 1)
                found += [(name, free[:count])] * (count <= len(free))
        return found

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        name, slots = self.chosen(model, side)
        return Call("load_slots", {"request": name, "slots": list(slots)})


class FreeHostAgain(_Careless):
    """Host slots that nobody has, or that a transfer reads."""

    methods: ClassVar[tuple[str, ...]] = ("free_host_slots",)

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        free, size = model.state["host"]["free"], model.page_size
        pages = [free[at : at + size] for at in range(0, len(free), size)]
        return [each.host for each in side.arriving.values()] + pages

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("free_host_slots", {"host": list(self.chosen(model, side))})


class BackupToReader(_Careless):
    """A backup to host slots that a transfer reads, or nobody has."""

    methods: ClassVar[tuple[str, ...]] = ("backup_slots",)

    @classmethod
    def able(cls, model: EngineModel, side: EngineSide) -> list[Any]:
        free: list[int] = model.state["host"]["free"]
        return [each.host[0] for each in side.arriving.values()] + free

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        host = [self.chosen(model, side)]
        return Call("backup_slots", {"host": host, "slots": [model.page_size]})


MISUSE: tuple[type[Command], ...] = (
    FreeAgain, FreeRowAgain, WriteByOldRow, WriteBeyond, CopyNobodys, LoadElsewhere, FreeHostAgain,
    BackupToReader,
)  # fmt: skip
