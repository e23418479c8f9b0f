"""The library as a package: its kinds of refusal, its docstrings, what it imports."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import impl
import reference
from impl import PoolError
from impl import errors as kinds

CLASSES = (
    impl.ReqToTokenPool,
    impl.BaseTokenToKVPoolAllocator,
    impl.TokenToKVPoolAllocator,
    impl.PagedTokenToKVPoolAllocator,
    impl.MambaPool,
    impl.ShortConvPool,
    impl.NGramPool,
)


def test_kinds() -> None:
    """The kinds of refusal are the reference's, in its order, each a class under PoolError."""
    assert tuple(kind.__name__ for kind in kinds.KINDS) == reference.KINDS
    assert all(issubclass(kind, PoolError) and kind.__doc__ for kind in kinds.KINDS)
    assert issubclass(PoolError, Exception)
    found = {each for each in vars(kinds).values() if inspect.isclass(each)}
    assert {each for each in found if issubclass(each, PoolError)} == {PoolError, *kinds.KINDS}


@pytest.mark.parametrize("cls", CLASSES)
def test_public_methods_are_documented(cls: type[Any]) -> None:
    """Every public method, and the class, has a docstring whose first line is one sentence."""
    public = [name for name in dir(cls) if not name.startswith("_")]
    documented = [(name, inspect.getdoc(getattr(cls, name))) for name in public]
    assert len(documented) > 8
    for name, text in [*documented, (cls.__name__, cls.__doc__)]:
        first = (text or "").strip().split("\n\n")[0].split("\n")[0]
        assert first[:1].isalpha() or first[:1] in "`(", f"{name}: {first!r}"
        assert len(first) <= 100, name
        assert first.endswith((".", ";")), f"{name}: {first!r}"


def test_impl_imports_nothing_of_ours() -> None:
    """No module of the library imports the reference, the harness or its tools."""
    files = sorted(Path(impl.__file__).parent.rglob("*.py"))
    assert len(files) > 5
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            tops = {name.split(".")[0] for name in names}
            foreign = tops & {"reference", "properties", "fuzz", "hypothesis", "pytest"}
            assert not foreign, f"{path}: {foreign}"
