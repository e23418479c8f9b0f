"""How a bug is planted: a change of the text of one function of `impl`, as a person would make it.

In this process the function's code is exchanged, so that every name it is imported under has the
bug, and put back afterwards; on a copy of `impl` on disk the same text is rewritten. Kernels can be
edited where they are interpreted: what they call is plain Python there, and of a kernel itself the
interpreter runs a form that it derives from the source once and keeps.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from properties.systems.system import Limits


@dataclass(frozen=True)
class Edit:
    """Texts that become others in the function at `place`, e.g. "allocators.paged:Paged….free".

    Texts are as the function reads when its `def` stands at the left margin; each stands there
    once.
    """

    place: str
    changes: tuple[tuple[str, str], ...]

    def found(self) -> Any:
        """What is at the place: a function or a kernel."""
        module, _, path = self.place.partition(":")
        found: Any = importlib.import_module(f"impl.{module}")
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
        return inspect.unwrap(getattr(found, "fget", found))  # a property has one

    def function(self) -> FunctionType:
        """The function of `impl` that the edit is about."""
        found = self.found()
        found = getattr(found, "fn", found)  # a kernel has one
        if not isinstance(found, FunctionType):
            raise LookupError(f"{self.place} is no function but {found!r}")
        return found

    def source(self) -> tuple[str, str]:
        """The function's source as it stands in its file, and the same with the edit."""
        raw = inspect.getsource(self.function())
        margin = raw[: len(raw) - len(raw.lstrip())]
        text = textwrap.dedent(raw)
        for old, new in self.changes:
            if text.count(old) != 1:
                raise LookupError(f"{self.place} has {text.count(old)} times {old!r}, not 1")
            text = text.replace(old, new)
        return raw, textwrap.indent(text, margin)

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Makes the edit, until the patch is undone."""
        found = self.found()
        if found is self.function():
            patch.setattr(found, "__code__", self.code())
        elif hasattr(found, "rewrite"):
            patch.setitem(found.rewritten_fn, found.fn, self._interpreted(found))
        else:
            raise LookupError(f"{self.place} is compiled: only interpreted kernels can be edited")

    def code(self) -> CodeType:
        """The function's code with the edit."""
        # In a class, where `super()` without arguments finds its own, and where a function that has
        # the name of a module that it uses still means the module.
        text = "class around:\n" + textwrap.indent(self._text(), "    ")
        return self._compiled(text, "around", self.function().__name__)

    def _text(self) -> str:
        """The edited function; decorators have done their work."""
        text = textwrap.dedent(self.source()[1])
        return text[text.index("def ") :]

    def _compiled(self, text: str, *path: str) -> CodeType:
        flags = __future__.annotations.compiler_flag
        code: CodeType = compile(text, self._file, "exec", flags, dont_inherit=True)
        for wanted in path:
            code = next(
                part
                for part in code.co_consts
                if isinstance(part, CodeType) and part.co_name == wanted
            )
        return code

    @property
    def _file(self) -> str:
        return f"<planted in {self.place}>"

    def _interpreted(self, kernel: Any) -> Any:
        """What the interpreter makes of the edited kernel; it asks Python for the source."""
        function, text = kernel.fn, self._text()
        linecache.cache[self._file] = (len(text), None, text.splitlines(True), self._file)
        code = self._compiled(text, function.__name__)
        edited = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
        edited.__module__ = function.__module__
        return type(kernel)(edited).rewrite()


def edit(place: str, *texts: str) -> Edit:
    """An edit from old, new, old, new, …"""
    return Edit(place, tuple(zip(texts[::2], texts[1::2], strict=True)))


@dataclass(frozen=True)
class Bug:
    """A bug of our own making, and the invariant that a run must name when it meets it."""

    title: str
    system: str
    invariant: str
    edit: Edit
    #: whether it can show where slots are compared up to a renaming of pages
    renamed: bool = True
    #: what else it breaks, which a run may meet first
    also: tuple[str, ...] = ()
    #: configs in which it shows, where others only take time
    limits: Limits = field(default_factory=dict)
    #: commands that show it, where others only take time; all of its system's if empty
    commands: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.title

    @contextmanager
    def planted(self) -> Iterator[None]:
        """`impl` has the bug inside, and is itself again afterwards."""
        with pytest.MonkeyPatch.context() as patch:
            self.edit.plant(patch)
            yield

    def write(self, root: Path) -> None:
        """Plants the bug in the copy of `impl` in `root`."""
        module = self.edit.function().__module__
        path = root.joinpath(*module.split(".")).with_suffix(".py")
        sound, buggy = self.edit.source()
        text = path.read_text()
        if text.count(sound) != 1:
            raise LookupError(f"{path} doesn't have the text of {self.edit.place}")
        path.write_text(text.replace(sound, buggy))
