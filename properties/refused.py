"""Calls that are refused, as tables: what each kind of argument may not be.

A scene is what a call is made on; it says with `shown` all that a refused call leaves as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import pytest
import torch

from impl import PoolError

Act = Callable[[Any], Any]
#: scene, argument → a call with it
Given = Callable[[Any, Any], Any]


class Scene(Protocol):
    """What calls are made on."""

    def shown(self) -> Any:
        """Everything that a refused call leaves as it is."""

    def settle(self) -> None:
        """Behind a call: raises what it deferred."""

    def recover(self) -> None:
        """Goes on behind a refusal."""

    def audit(self) -> list[str]:
        """What is wrong by its own account."""


class ForeignStream:
    """In place of what looks at the current stream on a GPU: it isn't the pool's."""

    def require(self) -> None:
        raise InterruptedError


class Case(NamedTuple):
    """A call that is refused: of which kind, with which words (… between them may be more).

    `spoil` goes before it.
    """

    name: str
    act: Act
    kind: str
    words: str = ""
    spoil: Act | None = None
    options: Mapping[str, Any] = {}


def judge(case: Case, make: Callable[..., Scene]) -> None:
    """The call raises its kind with these words, says what to do, and nothing has changed."""
    scene = make(**case.options)
    if case.spoil is not None:
        case.spoil(scene)
    before = scene.shown()
    with pytest.raises(PoolError) as caught:  # noqa: PT012 (on kernels it is raised later)
        case.act(scene)
        scene.settle()
    assert type(caught.value).__name__ == case.kind, caught.value
    for words in case.words.split(" … "):
        assert words in str(caught.value)
    assert str(caught.value).endswith(".")
    scene.recover()
    assert scene.shown() == before
    assert scene.audit() == []


def ids(*numbers: int) -> torch.Tensor:
    """Ids as pools take them."""
    return torch.tensor(numbers, dtype=torch.int64)


def _each(name: str, given: Given, lines: Iterator[tuple[str, Any, str, str]]) -> Iterator[Case]:
    for what, value, kind, words in lines:
        yield Case(f"{name}: {what}", partial(_called, given, value), kind, words)


def _called(given: Given, value: Any, scene: Any) -> Any:
    return given(scene, value)


def no_tensor_of_ids(name: str, given: Given, said: str, good: int = 1) -> Iterator[Case]:
    """A tensor int32 or int64 [k] on the pool's device is due."""
    yield from _each(name, given, iter((
        ("a list", [good], "WrongDtype", f"{said} must be a tensor, got list"),
        ("floats", ids(good).float(), "WrongDtype", f"{said} must be int32 or int64"),
        ("bools", ids(good).bool(), "WrongDtype", f"{said} must be int32 or int64"),
        ("elsewhere", ids(good).to("meta"), "WrongDevice", f"{said} must be on cpu, got meta"),
        ("two axes", ids(good)[None], "WrongShape", f"{said} must have one dimension"),
    )))  # fmt: skip


def no_ids(name: str, given: Given, said: str, good: int = 1) -> Iterator[Case]:
    """As above, and an id alone is none either."""
    yield from no_tensor_of_ids(name, given, said, good)
    alone = "no axis", torch.tensor(good), "WrongShape", f"{said} must have one dimension"
    yield from _each(name, given, iter([alone]))


def no_slot(name: str, given: Given, said: str, good: int = 1) -> Iterator[Case]:
    """A tensor of one slot, of no or of one axis, is due."""
    yield from no_tensor_of_ids(name, given, said, good)
    yield from _each(name, given, iter((
        ("a float", torch.tensor(1.0), "WrongDtype", f"{said} must be int32 or int64"),
        ("two slots", ids(good, good + 1), "WrongShape", f"{said} must be one slot, got 2"),
        ("no slot", ids(), "WrongShape", f"{said} must be one slot, got 0"),
    )))  # fmt: skip


def no_int(name: str, given: Given, said: str) -> Iterator[Case]:
    """An int of the host's is due."""
    for value in (1.0, True, torch.tensor(1), "1"):
        line = repr(value), value, "WrongDtype", f"{said} must be an int"
        yield from _each(name, given, iter([line]))


def no_size(name: str, given: Given, said: str, least: int = 0) -> Iterator[Case]:
    """An int of at least `least` is due."""
    yield from no_int(name, given, said)
    words = f"{said} must be at least {least}, got {least - 1}"
    yield from _each(name, given, iter([(str(least - 1), least - 1, "NegativeSize", words)]))


def no_place(name: str, given: Given, said: str, end: int, words: str) -> Iterator[Case]:
    """An int of 0..end - 1 is due; `words` say so of one, as a format string."""
    yield from no_int(name, given, said)
    lines = ((str(value), value, "OutOfRange", words.format(value)) for value in (-1, end))
    yield from _each(name, given, lines)
