"""Mechanical mutants of a Python module: one comparison, condition, number or statement is another."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

OPERATORS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
SAYS = frozenset({"debug", "info", "warning", "error", "exception", "log"})
"""Methods that only tell a person something. What they say is not mutated, and that they say it neither."""


@dataclass(frozen=True, slots=True)
class PythonMutant:
    """One module with one change."""

    name: str  # The module, the line's text, the rule; without the line's number, which other changes move.
    module: str
    line: int
    rule: str
    source: str


def mutants(module: str, source: str) -> Iterator[PythonMutant]:
    """Return every mutant of the module, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw, seen = source.encode(), Counter[str]()
    for node, first, last, rule, new in sorted(_changes(ast.parse(source), raw, starts), key=lambda each: each[1:4]):
        changed = (raw[:first] + new.encode() + raw[last:]).decode()
        name = f"{module}: {lines[node.lineno - 1].strip()} [{rule}]"
        seen[name] += 1
        again = f" ({seen[name]})" if seen[name] > 1 else ""
        yield PythonMutant(name + again, module, node.lineno, rule, changed)


Change = tuple["ast.expr | ast.stmt", int, int, str, str]


def _changes(tree: ast.Module, raw: bytes, starts: list[int]) -> Iterator[Change]:
    """Return each node that can be changed, with the bytes that are replaced, the rule, and what replaces them."""

    def at(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    for node in _decisions(tree):
        first, last = at(node)
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in OPERATORS:
                old, new = OPERATORS[type(operator)]
                between = (at(left)[1], at(right)[0])
                yield node, *between, f"{old} => {new}", raw[slice(*between)].decode().replace(old, new, 1)
            case ast.BoolOp(op=operator, values=[one, other, *_]):
                old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                between = (at(one)[1], at(other)[0])
                yield node, *between, f"{old} => {new}", raw[slice(*between)].decode().replace(old, new, 1)
            case ast.UnaryOp(op=ast.Not()):
                yield node, first, first + len("not "), "not =>", ""
            case ast.Constant(value=bool(value)):
                yield node, first, last, f"{value} => {not value}", str(not value)
            case ast.Constant(value=int(value)):
                yield node, first, last, f"{value} => {value + 1}", str(value + 1)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
                old, new = ("+", "-") if isinstance(operator, ast.Add) else ("-", "+")
                between = (at(left)[1], at(right)[0])
                yield node, *between, f"{old} => {new}", raw[slice(*between)].decode().replace(old, new, 1)
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Break() | ast.Continue():
                # Without `super()` the method would have another shape, and could not be swapped (swap.py).
                yield node, first, last, "dropped", "__class__" if b"super()" in raw[first:last] else "pass"
            case ast.Assign(targets=[ast.Attribute()]):
                yield node, first, last, "dropped", "pass"


def _decisions(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Return what is inside functions, but for annotations, defaults, what is said to people, and asserts."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in child.body:
                yield from _inside(each)
        elif isinstance(child, ast.ClassDef):
            yield from _decisions(child)


def _inside(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=method))) if method in SAYS:
            return
        case ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for each in node.body:
                yield from _inside(each)
            return
        case ast.AnnAssign(value=value):
            if value is not None:
                yield from _inside(value)
            return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _inside(child)
