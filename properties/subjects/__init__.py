"""What can be put under test, by name.

`impl` (with the backend that it chooses itself), `impl:torch` and `impl:triton` (with this one),
`sglang`, `reference` (which stands in for a subject), `planted:BUG` (ours
with that planted bug), or `module:factory` of one's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from properties.subjects.protocol import Subject, TensorSubject

__all__ = ["Factory", "Subject", "TensorSubject", "UnusableSubject", "is_built_in", "load"]

#: the names of ours → the backend that the allocators are made with
OURS = {"impl": "auto", "impl:torch": "torch", "impl:triton": "triton"}
BUILT_IN = (*OURS, "sglang", "reference")
#: systems whose books are the host's
HOSTS = frozenset({"rows", "state_slots", "hybrid_rows", "host_tier"})
#: what the names begin with of ours with a planted bug
PLANTED = "planted:"
LEVELS = ("exact", "renamed")
#: what a subject has that doesn't say
USUAL_SYSTEMS = frozenset({"rows", "token", "paged"})


class UnusableSubject(ValueError):
    """A subject that can't be loaded; the message says why and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Factory:
    """How to make a subject, and what it promises."""

    name: str
    #: system name, config → subject
    make: Callable[[str, Any], Subject]
    #: the systems that it has
    systems: frozenset[str] = USUAL_SYSTEMS
    #: system → config field → allowed values
    limits: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    #: "exact" where its order is the spec's, else "renamed"
    level: str = "renamed"
    #: whether misuse is judged without being asked for
    misuse: bool = False
    #: (system, command name) pairs whose misuse it is known to accept
    known: frozenset[tuple[str, str]] = frozenset()
    #: commands of faulty callers that its subjects have among their calls
    faulty: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            words = ", ".join(LEVELS)
            raise UnusableSubject(f"subject {self.name}: level {self.level!r}; allowed: {words}")
        for system, fields in self.limits.items():
            for name, values in fields.items():
                if not values:
                    raise UnusableSubject(
                        f"subject {self.name}: limits of {system}.{name} allow no value"
                    )

    @property
    def is_ours(self) -> bool:
        """Whether this is `impl`, which must have and meet all that the systems know of."""
        return self.name in OURS

    def has(self, system: str) -> bool:
        return system in self.systems


def is_built_in(name: str) -> bool:
    """Whether the name stands for code that comes with the harness, none of the user's own."""
    return name in BUILT_IN or name.startswith(PLANTED)


def backends(name: str, system: str) -> list[str]:
    """The subjects that a subject stands for in a system: ours has two where it has kernels."""
    if name != "impl" or system in HOSTS:  # with any backend
        return [name]
    return [each for each in ("impl:torch", "impl:triton") if load(each).has(system)]


def load(name: str) -> Factory:
    """The factory called `name`; raises UnusableSubject."""
    if name in OURS:
        from properties.subjects import impl

        return Factory(
            name=name,
            make=partial(impl.build, backend=OURS[name]),
            systems=impl.systems(OURS[name]),
            level="exact",
            misuse=True,
        )
    if name == "sglang":
        from properties.subjects import sglang

        return sglang.factory()
    if name == "reference":
        from properties.subjects import standin

        return standin.factory()
    if name.startswith(PLANTED):
        from properties.subjects import planted

        return planted.factory(name)
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise UnusableSubject(
            f"subject {name!r} is unknown; allowed: {', '.join(BUILT_IN)} or module:factory,"
            f" or {PLANTED}BUG"
        )
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        raise UnusableSubject(
            f"subject {name!r} can't be imported: {type(error).__name__}: {error}"
        ) from error
    if isinstance(found, Factory):
        return found
    if not callable(found):
        raise UnusableSubject(f"subject {name!r} is no factory: {type(found).__name__}")
    return Factory(
        name=name,
        make=found,
        systems=frozenset(getattr(found, "systems", USUAL_SYSTEMS)),
        limits=getattr(found, "limits", {}),
        level=getattr(found, "level", "renamed"),
        misuse=getattr(found, "misuse", False),
    )
