"""Mementos: all that is reachable comes back in place, and what can't be saved is refused."""

from __future__ import annotations

import random
from array import array
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from properties.choices import Seeded
from properties.lockstep import Lockstep
from properties.memento import Memento, Unsaved
from properties.seeded import Picker
from properties.subjects import load
from properties.systems import SYSTEMS


@dataclass(slots=True)
class Slotted:
    """Has slots, no dict."""

    value: Any


@dataclass(frozen=True)
class Frozen:
    """Its field stays, what is in it doesn't."""

    items: list[int] = field(default_factory=list)


class Node:
    """Has attributes, and leads to itself."""

    passing: ClassVar[tuple[str, ...]] = ("scratch",)
    replaced: ClassVar[tuple[str, ...]] = ("whole",)

    def __init__(self) -> None:
        self.me = self
        self.items = [1, [2]]
        self.names: dict[str, Any] = {"b": 1, "a": {3}}
        self.scratch = [4]
        self.whole = [5]
        self.bound = self.items.append


def test_containers_come_back_in_place() -> None:
    """Lists, dicts with their order, sets, attributes and slots hold what they held before."""
    node = Node()
    root: tuple[Any, ...] = (
        node, Slotted([6]), Frozen([7]), SimpleNamespace(x=[8]), bytearray(b"9"),
    )  # fmt: skip
    inner: Any = node.items[1]
    slotted, frozen = root[1].value, root[2].items
    memento = Memento(root)
    node.items.append(0)
    inner.clear()
    node.names.pop("b")
    node.names["b"] = 2
    node.names["a"].add(4)
    node.added = 1  # type: ignore[attr-defined]
    node.items = []
    root[1].value = None
    slotted.append(1)
    frozen.append(1)
    root[3].x = None
    root[4].extend(b"10")
    memento.restore()
    assert node.items == [1, [2]]
    assert node.items[1] is inner
    assert list(node.names.items()) == [("b", 1), ("a", {3})]
    assert not hasattr(node, "added")
    assert root[1].value is slotted
    assert (slotted, frozen, root[3].x, root[4]) == ([6], [7], [8], b"9")


def test_memory_comes_back_in_place() -> None:
    """Arrays and tensors, contiguous or not, and their views have their bytes again."""
    tensor = torch.arange(6)
    strided = torch.arange(12).view(3, 4)[:, ::2]
    apart = np.arange(4.0)
    plain = array("q", [1, 2])
    # types that numpy hasn't got, one of them in windows that overlap
    short, byte = torch.arange(5).bfloat16(), torch.ones(2).to(torch.float8_e4m3fn)
    windows = short.as_strided((3, 3), (1, 1))
    root = [tensor, tensor.numpy(), tensor[2:4], strided, apart, plain, torch.empty(0)]
    root += [short, byte, windows]
    memento = Memento(root)
    for each in (tensor, strided, apart):
        each[...] = -1
    plain[0] = -1
    short.fill_(9)
    byte.view(torch.uint8).fill_(0)
    memento.restore()
    assert windows.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert byte.float().tolist() == [1, 1]
    assert tensor.tolist() == list(range(6))
    assert strided.tolist() == [[0, 2], [4, 6], [8, 10]]
    assert apart.tolist() == [0, 1, 2, 3]
    assert plain == array("q", [1, 2])


def test_declared_attributes_are_left_alone() -> None:
    """What passes isn't put back; what is only replaced is, by what it was, not in its content."""
    node = Node()
    whole = node.whole
    memento = Memento(node)
    node.scratch, node.whole = [0], [0]
    whole.append(6)
    memento.restore()
    assert node.scratch == [0]
    assert node.whole is whole
    assert whole == [5, 6]


@pytest.mark.parametrize(
    "hidden",
    [random.Random(0), deque([1]), iter([1]), np.array([[]], dtype=object)],
    ids=lambda each: type(each).__name__,
)
def test_unknown_kinds_are_refused(hidden: Any) -> None:
    """An object with state that a memento can't see is named, wherever it is."""
    with pytest.raises(Unsaved, match="can't be saved"):
        Memento({"deep": [SimpleNamespace(inside=(hidden,))]})


@pytest.mark.parametrize("name", ["rows", "token", "paged", "paged_rows"])
def test_a_run_goes_on_from_where_it_was(name: str) -> None:
    """A lockstep run put back and driven again comes to the same states, command by command."""
    system, choices = SYSTEMS[name], Seeded(name)
    lock = Lockstep(system, system.config.draw(choices, {}), load("impl").make)
    picker = Picker(system.commands)

    def drive(seed: str) -> list[str]:
        source, seen = Seeded(seed), []
        for _ in range(60):
            command = picker.draw(source, lock.model)
            assert command is not None
            lock.step(command)
            seen.append(f"{command}: {lock.outcomes[-1]}, {lock.states}, {lock.model.names}")
        return seen

    drive("before")
    memento = Memento(lock)
    first = drive("first")
    for seed in ("second", "third"):
        memento.restore()
        drive(seed)
    memento.restore()
    assert drive("first") == first
