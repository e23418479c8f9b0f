"""Commands: what every driver of the harness speaks, and what a command becomes for one side.

A `Command` is a frozen dataclass of plain values. It names requests by small integers and speaks
of lengths, never of slots, so any part of a trace is again a trace. Resolved with one side's own
rows it becomes a `Call`: a method and plain lists of ints, which an adapter turns into tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from properties.choices import Choices

# Bounds on what a trace may say: no system here is larger, and a foreign file can't ask for memory.
LARGEST_INT = 2**40
LONGEST_LIST = 8192
MOST_SHOWN = 120  # characters of what was found, in a message of one line


class UnusableTrace(ValueError):
    """A trace or command that can't be read; the message says what was found, what is allowed."""


class Outcome(NamedTuple):
    """What a call came to: `served` with a value, `short`, `refused` by kind, or `crashed`."""

    kind: str
    value: Any = None

    def __str__(self) -> str:
        match self.kind:
            case "served":
                return "ok" if self.value is None else str(self.value)
            case "short":
                return "None"
            case "refused":
                return f"refused {self.value}"
        return f"crashed: {self.value}"


SHORT = Outcome("short")
# One page short is None and exactly full is served, by what the words mean.
ALLOCATION_NEVER = frozenset({("served", "one short"), ("short", "exactly full")})
# Methods for which None means "capacity is short"; elsewhere None is simply the result.
ALLOCATING = frozenset(
    {
        "alloc",
        "alloc_extend",
        "alloc_extend_swa_tail",
        "alloc_decode",
        "alloc_rows",
        "alloc_extend_rows",
        "alloc_decode_rows",
        "cow_mamba_state",
        "admit",
        "hit",
        "prefill",
        "decode",
        "retract_to_host",
        "resume",
        "begin_resume",
    }
)


@dataclass(frozen=True, slots=True)
class Distortion:
    """A fault that plain lists can't carry: one argument of the wrong type, shape or device."""

    argument: str
    what: str  # "dtype", "shape" or "device"

    @property
    def kind(self) -> str:
        return {"dtype": "WrongDtype", "shape": "WrongShape", "device": "WrongDevice"}[self.what]


class Call(NamedTuple):
    """One method call with plain arguments; lists become tensors, `…_cpu` ones on the host."""

    method: str
    args: Mapping[str, Any] = MappingProxyType({})
    dtype: str = "int64"
    distortion: Distortion | None = None


C = TypeVar("C", bound="Command")


class Command:
    """Base of all commands; a subclass is a frozen dataclass with fields of plain values."""

    misuse: ClassVar[bool] = False
    #: the invariant that a caller breaks who gives it, taking it for legal use
    breaks: ClassVar[str] = ""
    #: methods of the subject that the command may call
    methods: ClassVar[tuple[str, ...]] = ()
    #: whether one of `methods` suffices, the command choosing among those that the subject has
    any_method: ClassVar[bool] = False
    #: whether all that it can be in a state, and call there, depends on the pool alone, and not on
    #: which requests there are
    of_pool: ClassVar[bool] = False
    #: relative frequency in seeded and Hypothesis runs
    weight: ClassVar[int] = 4
    #: outcomes that a long run must have reached
    outcomes: ClassVar[tuple[str, ...]] = ("served",)
    #: (outcome, situation) pairs that cannot occur, each with its reason beside it
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset()

    @classmethod
    @cache
    def name(cls) -> str:
        """The command's name in traces and tables: its class name in snake case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def supported(cls, calls: frozenset[str]) -> bool:
        """Whether a subject with these methods can be driven with the command.

        One that breaks something has to be among them by its name: it is a planted bug's.
        """
        if cls.breaks and cls.name() not in calls:
            return False
        have = [method in calls for method in cls.methods]
        return any(have) if cls.any_method else all(have)

    @classmethod
    def enabled(cls, model: Any) -> bool:
        """Whether `draw` can make a command that applies in this state."""
        return True

    @classmethod
    def draw(cls: type[C], choices: Choices, model: Any) -> C:
        """A command that applies in this state."""
        return cls()

    def applies(self, model: Any) -> bool:
        """Whether the command means something in this state; a driver skips it otherwise."""
        return type(self).enabled(model)

    def call(self, model: Any, side: Any) -> Call:
        """The command for one side, resolved with that side's own rows."""
        raise NotImplementedError

    def settle(self, model: Any, side: Any, value: Any) -> list[tuple[str, str]]:
        """Books a served call on a side; returns what its ledger objects to."""
        return []

    def plainly(self) -> Command | None:
        """The plain free that gives back what this command does, where there is one."""
        return None

    def absorbed(self, config: Any) -> Any:
        """The config that makes the command needless as a first one, or None."""
        return None

    def caller_breaks(self) -> str:
        """The invariant that the caller breaks by this very command, if it is refused."""
        return self.breaks

    def simpler(self, earlier: Sequence[Command]) -> Iterator[Command] | None:
        """Simpler forms, behind these commands; None where the fields say enough to go by."""
        return None

    def answer_faults(self, model: Any, call: Call, value: Any) -> list[tuple[str, str]]:
        """What is wrong about the answer to a query, whatever the level."""
        return []

    def demand(self, model: Any) -> int:
        """Pages (or rows) that the call needs; 0 where it allocates nothing."""
        return 0

    def to_json(self) -> dict[str, Any]:
        """The command as a JSON object."""
        return {"command": self.name(), **{f.name: getattr(self, f.name) for f in fields(self)}}  # type: ignore[arg-type]

    def __str__(self) -> str:
        inner = ", ".join(f"{f.name}={_plain(getattr(self, f.name))}" for f in fields(self))  # type: ignore[arg-type]
        return f"{self.name()}({inner})"


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_plain(item) for item in value) + "]"
    return str(value)


@cache
def field_types(cls: type[Command]) -> dict[str, Any]:
    """Field name to type of a command class, resolved once."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]


def from_json(data: Any, known: Mapping[str, type[Command]], where: str) -> Command:
    """Parses one JSON object into a command of `known`; raises UnusableTrace with the place."""
    if not isinstance(data, dict):
        raise UnusableTrace(f"{where}: a command is an object, found {type(data).__name__}")
    cls = known.get(data["command"]) if isinstance(data.get("command"), str) else None
    if cls is None:
        raise UnusableTrace(
            f"{where}: unknown command {str(data.get('command'))[:60]!r}; known: {', '.join(known)}"
        )
    types = field_types(cls)  # type: ignore[arg-type]  # classes hash, mypy sees the dataclass
    if set(data) - {"command"} != set(types):
        raise UnusableTrace(
            f"{where}: {cls.name()} has fields {sorted(types)}, found {shown(sorted(data))}"
        )
    return cls(**{key: parse(kind, data[key], f"{where}.{key}") for key, kind in types.items()})


def shown(value: Any) -> str:
    """A foreign value in a message: whole where it is short."""
    text = str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def parse(kind: Any, value: Any, where: str) -> Any:
    """Checks a JSON value against int, bool, str or (nested) tuples; returns it frozen."""
    if kind in (int, bool, str):
        if type(value) is not kind:
            raise UnusableTrace(f"{where}: wants {kind.__name__}, found {str(value)[:60]!r}")
        if kind is int and abs(value) > LARGEST_INT:
            raise UnusableTrace(f"{where}: {value} is beyond ±{LARGEST_INT}")
        if kind is str and len(value) > 64:
            raise UnusableTrace(f"{where}: a word of at most 64 characters, found {len(value)}")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list) or len(value) > LONGEST_LIST:
            raise UnusableTrace(f"{where}: wants a list of at most {LONGEST_LIST} items")
        parts = get_args(kind)
        if parts[-1] is Ellipsis:
            return tuple(parse(parts[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        if len(parts) != len(value):
            raise UnusableTrace(f"{where}: wants {len(parts)} items, found {len(value)}")
        return tuple(
            parse(part, item, f"{where}[{i}]")
            for i, (part, item) in enumerate(zip(parts, value, strict=True))
        )
    raise TypeError(f"{where}: no JSON form for {kind}")
