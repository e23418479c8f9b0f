"""The commands of the small engine, legal use: how requests grow, and what is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.subjects.engine_content import Row
from properties.subjects.engine_parts import BATCHES, Token
from properties.systems.engine_model import EngineModel, EngineSide, Line
from properties.systems.slot_model import Faults

Chunks = Iterable[tuple[int, int, int]]
#: exactly full isn't short of slots, but it may be of rows
NEVER = frozenset({("served", "one short")})


def pages(count: int, model: EngineModel) -> int:
    """Pages of so many tokens."""
    return -(-count // model.page_size)


@dataclass(frozen=True)
class Grows(Command):
    """Base: a command that takes slots; what is read then of the requests it is about is I60."""

    outcomes: ClassVar[tuple[str, ...]] = ("served", "short")
    never: ClassVar[frozenset[tuple[str, str]]] = NEVER

    def parts(self, model: EngineModel, side: EngineSide) -> list[tuple[int, int, int]]:
        """Request, its tokens before, and those that it gets."""
        raise NotImplementedError

    def demand(self, model: EngineModel) -> int:
        return sum(
            pages(before + more, model) - pages(before, model)
            for _, before, more in self.parts(model, model.side)
        )

    def chunks(self, model: EngineModel, side: EngineSide) -> Chunks:
        for name, before, more in self.parts(model, side):
            yield before, more, side.rows[name].last_loc if name in side.rows else -1


def computed(side: EngineSide, name: int, start: int, end: int) -> list[Line]:
    """What tokens of a request have once they are computed."""
    return [side.computed(Token(name, at)) for at in range(start, end)]


@dataclass(frozen=True)
class Admit(Grows):
    """A request comes in; the first chunk of its prompt is prefilled."""

    methods: ClassVar[tuple[str, ...]] = ("admit",)
    weight: ClassVar[int] = 16

    request: int
    prompt: int

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return model.openings > 0

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Admit:
        most, chunk = model.config.width, model.config.chunk
        return cls(model.next_name, choices.integer(1, most, (1, 2, chunk, chunk + 1)))

    def applies(self, model: EngineModel) -> bool:
        return model.fresh(self.request) and 1 <= self.prompt <= model.config.width

    def parts(self, model: EngineModel, side: EngineSide) -> list[tuple[int, int, int]]:
        return [(self.request, 0, min(self.prompt, model.config.chunk))]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("admit", {"request": self.request, "prompt": self.prompt})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        model.know(self.request)
        lines = computed(side, self.request, 0, len(value))
        return side.begin(self.request, self.prompt, value, lines)


@dataclass(frozen=True)
class Hit(Grows):
    """A request comes in that begins as another one does: what that has written is copied."""

    methods: ClassVar[tuple[str, ...]] = ("hit",)
    weight: ClassVar[int] = 10

    request: int
    like: int
    tokens: int
    prompt: int

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return model.openings > 0 and bool(model.ready)

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Hit:
        like = choices.pick(model.ready)
        most = model.side.rows[like].length
        tokens = choices.integer(1, most, (most,))
        return cls(
            model.next_name, like, tokens, choices.integer(tokens, model.config.width, (tokens,))
        )

    def applies(self, model: EngineModel) -> bool:
        return (
            model.fresh(self.request)
            and self.like in model.ready
            and 1 <= self.tokens <= model.side.rows[self.like].length
            and self.tokens <= self.prompt <= model.config.width
        )

    def simpler(self, earlier: Sequence[Command]) -> Iterator[Command]:
        yield Admit(self.request, self.prompt)
        if self.prompt > self.tokens:
            yield replace(self, prompt=self.tokens)
        if self.tokens > 1:
            yield replace(self, tokens=self.tokens - 1)

    def parts(self, model: EngineModel, side: EngineSide) -> list[tuple[int, int, int]]:
        return [(self.request, 0, self.tokens)]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        args = {"request": self.request, "like": self.like, "tokens": self.tokens}
        return Call("hit", {**args, "prompt": self.prompt})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        model.know(self.request)
        copied = side.lines[self.like][: min(self.tokens, side.written(self.like))]
        lines = copied + computed(side, self.request, len(copied), self.tokens)
        return side.begin(self.request, self.prompt, value, lines)

    def broken(self, side: EngineSide, token: Token, seen: Row) -> str:
        """What was there to be copied wasn't."""
        copied = min(self.tokens, side.written(self.like))
        return "I58" if token.request == self.request and token.position < copied else ""


@dataclass(frozen=True)
class Prefill(Grows):
    """The next chunk of a prompt."""

    methods: ClassVar[tuple[str, ...]] = ("prefill",)
    weight: ClassVar[int] = 16
    # nothing but pages can be short
    never: ClassVar[frozenset[tuple[str, str]]] = NEVER | {("short", "exactly full")}

    request: int

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(model.unfinished)

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Prefill:
        return cls(choices.pick(model.unfinished))

    def applies(self, model: EngineModel) -> bool:
        return self.request in model.unfinished

    def parts(self, model: EngineModel, side: EngineSide) -> list[tuple[int, int, int]]:
        if self.request not in side.rows:
            return []
        before = side.rows[self.request].length
        return [
            (self.request, before, min(model.config.chunk, side.prompts[self.request] - before))
        ]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("prefill", {"request": self.request})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        start = side.rows[self.request].length
        side.lines[self.request] += computed(side, self.request, start, start + len(value))
        return side.got(self.request, value)


@dataclass(frozen=True)
class Decode(Grows):
    """A token for some requests, in a padded batch; `lazy`: its KV is written later."""

    methods: ClassVar[tuple[str, ...]] = ("decode",)
    weight: ClassVar[int] = 30
    never: ClassVar[frozenset[tuple[str, str]]] = NEVER | {("short", "exactly full")}

    requests: tuple[int, ...]
    lazy: bool

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(model.decoding)

    @classmethod
    def draw(cls, choices: Choices, model: EngineModel) -> Decode:
        chosen = choices.subset(model.decoding, 1, BATCHES[-1])
        return cls(tuple(chosen), choices.once_in(3))

    def applies(self, model: EngineModel) -> bool:
        names = self.requests
        return (
            0 < len(names) <= BATCHES[-1]
            and len(set(names)) == len(names)
            and set(names) <= set(model.decoding)
        )

    def parts(self, model: EngineModel, side: EngineSide) -> list[tuple[int, int, int]]:
        return [(name, side.rows[name].length, 1) for name in self.requests]

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("decode", {"requests": tuple(self.requests), "lazy": self.lazy})

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        faults: Faults = []
        for name, slot in zip(self.requests, value, strict=True):
            at = side.rows[name].length
            line = side.computed(Token(name, at))
            if self.lazy:
                side.late.append((name, at))
                line = side.nothing
            side.lines[name].append(line)
            faults += side.got(name, [slot])
        return faults


@dataclass(frozen=True)
class Flush(Command):
    """All that was to be written later is written, for requests that still have their rows."""

    methods: ClassVar[tuple[str, ...]] = ("flush",)
    weight: ClassVar[int] = 10

    @classmethod
    def enabled(cls, model: EngineModel) -> bool:
        return bool(model.side.late)

    def call(self, model: EngineModel, side: EngineSide) -> Call:
        return Call("flush")

    def settle(self, model: EngineModel, side: EngineSide, value: Any) -> Faults:
        gone = [Token(*each) for each in side.late if each[0] not in side.lines]
        side.dropped = [side.computed(token) for token in gone]
        side.write_late([name for name, _ in side.late])
        return []

    def broken(self, side: EngineSide, token: Token, seen: Row) -> str:
        """Late KV of a request that is gone has gone by a row that is another's."""
        return "I28" if any(seen in line for line in side.dropped) else ""


LEGAL: tuple[type[Command], ...] = (Admit, Hit, Prefill, Decode, Flush)
