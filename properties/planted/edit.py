"""How a bug is planted: a change of the text of one function of `impl`, as a person would make it.

Or of the small engine in `properties`, which is a caller of `impl`: the reference, which has the
same engine, works while no bug is planted.

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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class Plain:
    """A Python function and the code that it runs while it has an edit."""

    function: FunctionType
    code: CodeType

    def make(self) -> CodeType:
        """The function runs the edited code; what it ran before."""
        before, self.function.__code__ = self.function.__code__, self.code
        return before

    def take_back(self, before: CodeType) -> None:
        self.function.__code__ = before


@dataclass(frozen=True)
class Interpreted:
    """A kernel in the interpreter and what that runs of it while it has an edit."""

    kernel: Any
    edited: Any

    def make(self) -> Any:
        """The interpreter runs the edited form; the one it ran before."""
        before = self.kernel.rewrite()
        self.kernel.rewritten_fn[self.kernel.fn] = self.edited
        return before

    def take_back(self, before: Any) -> None:
        self.kernel.rewritten_fn[self.kernel.fn] = before


@dataclass(frozen=True)
class Edit:
    """Texts that become others in the function at `place`, e.g. "allocators.paged:Paged….free".

    The module is one of `impl`, or "properties…" with its whole name.
    Texts are as the function reads when its `def` stands at the left margin; each stands there
    once.
    """

    place: str
    changes: tuple[tuple[str, str], ...]

    def found(self) -> Any:
        """What is at the place: a function or a kernel."""
        module, _, path = self.place.partition(":")
        whole = module if module.startswith("properties.") else f"impl.{module}"
        found: Any = importlib.import_module(whole)
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
        return inspect.unwrap(getattr(found, "fget", found))  # a property has one

    def function(self) -> FunctionType:
        """The function that the edit is about."""
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

    @cache  # noqa: B019 (edits are few, and live as long as the process)
    def prepared(self) -> Plain | Interpreted:
        """The edit, compiled: made and taken back in a fraction of a microsecond."""
        found, function = self.found(), self.function()
        if found is function:
            return Plain(function, self.code())
        if not hasattr(found, "rewrite"):
            raise LookupError(f"{self.place} is compiled: only interpreted kernels can be edited")
        return Interpreted(found, self._interpreted(found))

    @contextmanager
    def planted(self) -> Iterator[None]:
        """`impl` has the edit inside, and is itself again afterwards."""
        prepared = self.prepared()
        before = prepared.make()
        try:
            yield
        finally:
            prepared.take_back(before)

    def write(self, root: Path) -> None:
        """Makes the edit in the copy of `impl` in `root`."""
        module = self.function().__module__
        path = root.joinpath(*module.split(".")).with_suffix(".py")
        sound, buggy = self.source()
        text = path.read_text()
        if text.count(sound) != 1:
            raise LookupError(f"{path} doesn't have the text of {self.place}")
        path.write_text(text.replace(sound, buggy))

    def code(self) -> CodeType:
        """The function's code with the edit."""
        # In a class, where `super()` without arguments finds its own, and where a function that has
        # the name of a module that it uses still means the module.
        text, function = self._text(), self.function()
        code = self._in_class(text)
        lost = set(function.__code__.co_freevars) - set(code.co_freevars)
        if not lost:
            return code
        # The last `super()` went: a function takes no code that has fewer free variables.
        return self._in_class(text.rstrip() + "".join(f"\n    {name}" for name in sorted(lost)))

    def _in_class(self, text: str) -> CodeType:
        text = "class around:\n" + textwrap.indent(text, "    ")
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
