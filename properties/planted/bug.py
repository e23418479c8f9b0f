"""What a planted bug is: an edit of `impl`, or a caller's command that is at fault.

It says which invariant a run must name when it meets the bug, and where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from properties.planted.edit import Edit
from properties.planted.entries import ENTRIES
from properties.planted.scopes import SCOPES
from properties.scope import Scope
from properties.systems import SYSTEMS, System
from properties.systems.system import Limits

# Where these are edited, the bug is met on kernels only.
ON_KERNELS = ("kernels.device.", "allocators.deferral:", "allocators.deferred:")


@dataclass(frozen=True)
class Bug:
    """A bug of our own making, and the invariant that a run must name when it meets it."""

    title: str
    system: str
    invariant: str
    #: what is changed in `impl`; None where the fault is the caller's
    edit: Edit | None = None
    #: whether it can show where slots are compared up to a renaming of pages
    renamed: bool = True
    #: what else it breaks, which a run may meet first
    also: tuple[str, ...] = ()
    #: configs in which it shows, where others only take time
    limits: Limits = field(default_factory=dict)
    #: commands that show it, where others only take time; all of its system's if empty
    commands: tuple[str, ...] = ()
    #: name of the command, one of its system's `faulty`, by which the caller breaks the invariant
    faulty: str = ""
    #: the entry of the bug list whose mechanism it is, if it is a real bug's
    entry: int | None = None

    def __str__(self) -> str:
        return self.title

    @property
    def slug(self) -> str:
        """The title as a word of a command line; kernels' bugs say so, some have a twin."""
        words = re.sub(r"[^a-z0-9]+", "-", self.title.lower().replace("'", "")).strip("-")
        return f"{words}-kernel" if self.place.startswith("kernels.device.") else words

    @property
    def upstream(self) -> tuple[str, ...]:
        """Where the mechanism was reported: repository and number."""
        return () if self.entry is None else ENTRIES[self.entry].upstream

    @property
    def scope(self) -> Scope | None:
        """The smallest pool in which a walk over all states shows it, where there is one."""
        sizes = SCOPES.get(self.slug)
        return (
            None if sizes is None else Scope(pages=sizes[0], page_size=sizes[1], requests=sizes[2])
        )

    @property
    def place(self) -> str:
        """Where `impl` is edited; empty where it isn't."""
        return self.edit.place if self.edit else ""

    @property
    def host(self) -> str:
        """The subject that can have the bug."""
        if self.system.endswith("_deferred"):
            return "impl"
        return "impl:triton" if self.place.startswith(ON_KERNELS) else "impl:torch"

    def narrowed(self) -> System:
        """The system, with the commands that show the bug about equally often, if it names some."""
        system = SYSTEMS[self.system]
        if not self.commands:
            return system
        chosen = [system.by_name[name] for name in self.commands]
        most = max(command.weight for command in chosen)
        alike = [command for command in chosen for _ in range(max(1, most // command.weight))]
        return replace(system, commands=tuple(alike))

    @contextmanager
    def planted(self) -> Iterator[None]:
        """`impl` has the bug inside, and is itself again afterwards."""
        with self.edit.planted() if self.edit else nullcontext():
            yield
