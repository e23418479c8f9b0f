"""Subjects for the tests of campaigns: they kill their process, or never come back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from properties.subjects import Factory, TensorSubject, load


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _quit() -> None:
    os._exit(3)


def _sleep() -> None:
    time.sleep(1000)


def _factory(name: str, end: Callable[[], None]) -> Factory:
    """Our token allocator, which does something else when a second group is opened."""

    def make(system: str, config: Any) -> TensorSubject:
        subject: Any = load("impl:torch").make(system, config)
        begin = subject.target.free_group_begin
        begun: list[None] = []

        def free_group_begin() -> None:
            begun.append(None)
            if len(begun) == 2:
                end()
            begin()

        subject.target.free_group_begin = free_group_begin
        made: TensorSubject = subject
        return made

    return Factory(
        name=f"fuzz.deadly:{name}",
        make=make,
        systems=frozenset({"token"}),
        level="exact",
        misuse=True,
    )


killed = _factory("killed", _kill)
quits = _factory("quits", _quit)
sleeps = _factory("sleeps", _sleep)
