"""Where mutants are made: every function of `impl`, kernels included, and a sample of all of them.

A mutant is an `Edit` like a planted bug's, so it is made in a running process, in the code of one
function, and nothing on disk changes. Its name says where it is and what it does; the file of those
that change nothing (`equivalent.json`) goes by these names.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import json
import pkgutil
import random
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import impl
import properties.interpreter  # noqa: F401 (before triton is imported)
from properties.mutation.operators import Change, changes
from properties.planted.edit import Edit

# Streams are watched, records mailed and modules of kernels loaded otherwise where there is a GPU.
# Compiled division truncates, the interpreter's doesn't. Decorators have run when a mutant is made.
# What orders the threads of a program is nothing to the interpreter, which has one.
OUT_OF_REACH = (
    "allocators.stream:",
    "allocators.paged:PagedTokenToKVPoolAllocator._warm_up",
    "allocators.deferral:CudaMailbox",
    "kernels.device:",
    "kernels.device.common:floor_divide",
    "kernels.device.common:kernel",
    "kernels.device.common:helper",
)


@dataclass(frozen=True)
class Mutant(Edit):
    """One change of one function: the text from `low` to `high`, `old`, becomes `new`."""

    operator: str
    low: int
    high: int
    old: str
    new: str
    line: int  # of the file

    def source(self) -> tuple[str, str]:
        raw = inspect.getsource(self.function())
        margin = raw[: len(raw) - len(raw.lstrip())]
        text = textwrap.dedent(raw)
        return raw, textwrap.indent(text[: self.low] + self.new + text[self.high :], margin)

    @property
    def name(self) -> str:
        """Where it is and what it does, in one line; the same as long as the function is."""
        old, new = " ".join(self.old.split()), " ".join(self.new.split())
        return f"{self.place}: {self.operator}: {old} -> {new} (at {self.low})"

    @property
    def file(self) -> str:
        """The module that it is in, as a path."""
        return self.place.partition(":")[0].replace(".", "/") + ".py"

    def diff(self) -> str:
        """The change as a diff of the function."""
        before, after = (text.splitlines() for text in self.source())
        lines = difflib.unified_diff(before, after, self.place, self.place, lineterm="", n=1)
        return "\n".join(lines)


def every() -> list[Mutant]:
    """All mutants of `impl`, in the order of modules and lines."""
    return [mutant for module in _modules() for mutant in _of_module(module)]


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them, drawn in turn from each (module, operator): no part is left out."""
    strata: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        strata.setdefault((mutant.file, mutant.operator), []).append(mutant)
    dice = random.Random(seed)
    lists = [dice.sample(found, len(found)) for found in strata.values()]
    dice.shuffle(lists)
    drawn: list[Mutant] = []
    while lists and len(drawn) < count:
        for found in lists:
            drawn.append(found.pop())
        lists = [found for found in lists if found]
    return drawn[:count]


def equivalent() -> dict[str, str]:
    """The mutants that are said to change nothing, by name, each with its reason."""
    path = Path(__file__).parent / "equivalent.json"
    return {entry["mutant"]: entry["reason"] for entry in json.loads(path.read_text())}


def is_out_of_reach(mutant: Mutant) -> bool:
    """Whether what the function does runs on a GPU only, or has run: no test here notices it."""
    return mutant.place.startswith(OUT_OF_REACH) or "tl.debug_barrier()" in mutant.name


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(impl.__path__, "impl."):
        yield importlib.import_module(info.name)


def _of_module(module: ModuleType) -> Iterator[Mutant]:
    if not inspect.getsourcefile(module):
        return
    tree = ast.parse(inspect.getsource(module))
    for path, function in _functions(tree, ()):
        place = f"{module.__name__.removeprefix('impl.')}:{'.'.join(path)}"
        edit = Edit(place, ())
        try:
            found = edit.function()
        except (LookupError, AttributeError, TypeError):
            continue  # made by a decorator, or only there on a GPU
        if found.__module__ == module.__name__ and _is_swappable(edit.found()):
            yield from _of_function(place, found, function.lineno)


def _is_swappable(found: Any) -> bool:
    """A function whose code can be exchanged, or a kernel that is interpreted."""
    return isinstance(found, FunctionType) or hasattr(found, "rewrite")


def _functions(
    node: ast.AST, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    """Functions of a module and its classes; those inside of functions belong to these."""
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.FunctionDef):
            yield (*path, child.name), child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, (*path, child.name))


@cache
def _starts(text: str) -> list[int]:
    """Where each line begins."""
    found = [0]
    for line in text.splitlines(keepends=True):
        found.append(found[-1] + len(line))
    return found


def _of_function(place: str, function: FunctionType, line: int) -> Iterator[Mutant]:
    text = textwrap.dedent(inspect.getsource(function))
    (tree,) = ast.parse(text).body
    if not isinstance(tree, ast.FunctionDef):
        return
    seen = set()
    for change in changes(tree, text):
        low, high = _span(text, change)
        key = (low, high, change.text)
        if key not in seen and _compiles(text, *key):
            seen.add(key)
            at = line + text.count("\n", 0, low) - (tree.lineno - 1)
            yield Mutant(place, (), change.operator, low, high, text[low:high], change.text, at)


def _span(text: str, change: Change) -> tuple[int, int]:
    """Offsets of the node; those of the tree count bytes."""
    node: Any = change.node
    starts, lines = _starts(text), text.splitlines()

    def offset(number: int, column: int) -> int:
        return starts[number - 1] + len(lines[number - 1].encode()[:column].decode())

    return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)


def _compiles(text: str, low: int, high: int, new: str) -> bool:
    try:
        changed = text[:low] + new + text[high:]
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False
