"""Which changes are made: the slips of this domain, each at one place of the syntax tree.

Off by one in page arithmetic, ceil for floor, `<` for `<=`, swapped operands and swapped order of
what is joined, a dropped statement (a skipped merge, a missing clear among them), a wrong mask, and
prefix for seq. What only words an error message is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple


class Change(NamedTuple):
    """A node of a function, and the source that stands there instead."""

    operator: str
    node: ast.AST
    text: str


_COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_ORDERED = (ast.Sub, ast.FloorDiv, ast.Mod)
_MASKS = (ast.BitAnd, ast.BitOr)
#: calls whose tuple or list is joined in the order given
_JOINS = frozenset({"joined", "cat", "concatenate", "stack"})
_DROPPED = (ast.AugAssign, ast.Delete)


def changes(function: ast.FunctionDef, source: str) -> Iterator[Change]:
    """Every change of a function."""
    for node in _own(function):
        if isinstance(node, ast.expr):
            yield from _of_expression(node, source)
        elif isinstance(node, ast.stmt):
            yield from _of_statement(node)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without annotations, docstrings, assertions and the words of errors.

    What `zip` is told to be strict about is an assertion too.
    """
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.JoinedStr | ast.Raise | ast.Assert | ast.arguments):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.AST):
                yield child
                yield from _own(child)


def _of_expression(node: ast.expr, source: str) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            other = _COMPARED[type(op)]
            yield Change("comparison", node, f"{_src(left)} {other} {_src(right)}")
        case ast.BinOp():
            yield from _of_arithmetic(node)
        case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp(op=ast.FloorDiv()) as ceil) if isinstance(
            ceil.left, ast.UnaryOp
        ):
            yield Change(
                "ceil and floor", node, f"({_src(ceil.left.operand)} // {_src(ceil.right)})"
            )
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Change("condition", node, f"({_src(operand)})")
        case ast.BoolOp(op=op, values=[first, *rest]):
            other = "or" if isinstance(op, ast.And) else "and"
            parts = [f"({_src(value)})" for value in (first, *rest)]
            yield Change("condition", node, f" {other} ".join(parts))
        case ast.Constant(value=value) if type(value) is int:
            yield Change("off by one", node, str(value + 1))
        case ast.Constant(value=bool() as value):
            yield Change("condition", node, str(not value))
        case ast.Call():
            yield from _of_call(node)
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            for one, two in (("prefix", "seq"), ("seq", "prefix")):
                other = name.replace(one, two)
                if one in name and other in source:
                    head = f"{_src(node.value)}." if isinstance(node, ast.Attribute) else ""
                    yield Change("prefix and seq", node, head + other)


def _of_arithmetic(node: ast.BinOp) -> Iterator[Change]:
    left, right = _src(node.left), _src(node.right)
    if isinstance(node.op, ast.Add | ast.Sub):
        other = "-" if isinstance(node.op, ast.Add) else "+"
        yield Change("arithmetic", node, f"({left} {other} {right})")
    if isinstance(node.op, ast.FloorDiv):
        # Not with two minus signs: a kernel's quotient of a negative number isn't the floor.
        yield Change("ceil and floor", node, f"(({left} + {right} - 1) // {right})")
    if isinstance(node.op, ast.FloorDiv | ast.Mult):
        yield Change("off by one", node, f"({_src(node)} + 1)")
    if isinstance(node.op, _ORDERED):
        sign = {ast.Sub: "-", ast.FloorDiv: "//", ast.Mod: "%"}[type(node.op)]
        yield Change("swapped operands", node, f"({right} {sign} {left})")
    if isinstance(node.op, _MASKS):
        yield Change("mask", node, f"({left})")
        yield Change("mask", node, f"({right})")


def _of_call(node: ast.Call) -> Iterator[Change]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name not in _JOINS or not node.args:
        return
    parts = node.args[0]
    if isinstance(parts, ast.Tuple | ast.List) and len(parts.elts) == 2:
        first, second = map(_src, parts.elts)
        yield Change("swapped order", parts, f"({second}, {first})")


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call()):
            yield Change("dropped statement", node, "pass")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield Change("dropped statement", node, "pass")
        case ast.If(test=test):
            yield Change("condition", test, f"(not ({_src(test)}))")
        case _ if isinstance(node, _DROPPED):
            yield Change("dropped statement", node, "pass")


def _src(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Constant | ast.Attribute) else f"({text})"
