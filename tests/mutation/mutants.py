"""Mutants of a source file: copies of it that differ in one expression or statement."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"is_": "is_not", "in_": "not_in", "asc": "desc", "min": "max", "any": "all", "and_": "or_"}
NAMES |= {new: old for old, new in NAMES.items()}
CONDITIONS = {"where", "and_", "or_", "filter", "having"}
"""Functions of SQLAlchemy whose arguments are conditions, of which one is left out."""


@dataclass(frozen=True)
class Mutant:
    """One changed place: the name says in which definition, and how.

    `text` is the whole file with it, `lines` are those of the statement in which it is.
    """

    path: str
    name: str
    text: str
    lines: range


def sample_mutants(folder: Path, path: str, number: int, seed: str) -> list[Mutant]:
    """Return up to `number` mutants of a file in the order of their places.

    Chosen by their names, so that the same seed gives the same mutants after other lines have changed.
    """
    found = list(_mutants(path, (folder / path).read_text()))
    by_chance = sorted(found, key=lambda one: crc32(f"{seed} {one.name}".encode()))
    return sorted(by_chance[:number], key=found.index)


def _mutants(path: str, source: str) -> Iterator[Mutant]:
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw, tree = source.encode(), ast.parse(source)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    named: Counter[str] = Counter()
    for node in _places(tree):
        changes = [(node, new) for new in _changes(node)]
        if isinstance(node, ast.If | ast.IfExp) and isinstance(
            node.test, ast.Name | ast.Attribute | ast.Call
        ):
            changes.append((node.test, ast.UnaryOp(ast.Not(), node.test)))
        for place, new in changes:
            begin = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            text = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
            label = f"{_short(raw[begin:end].decode())}  ->  {_short(text)}"
            if isinstance(place, ast.Call) and isinstance(new, ast.Call) and len(new.args) < len(place.args):
                (left_out,) = [argument for argument in place.args if argument not in new.args]
                label = f"without {_short(ast.unparse(left_out))}"
            name = f"{path} {_definition(statements, place)}: {label}"
            named[name] += 1
            name += f" ({named[name]})" if named[name] > 1 else ""
            text = (raw[:begin] + text.encode() + raw[end:]).decode()
            yield Mutant(path, name, text, _statement_lines(statements, place))


def _definition(statements: list[ast.stmt], place: Any) -> str:
    """Return the functions and classes around a place, or the name that a statement of the module sets."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    around = [one for one in statements if isinstance(one, kinds)]
    around = [one for one in around if one.lineno <= place.lineno <= (one.end_lineno or one.lineno)]
    names = [getattr(one, "name", None) for one in sorted(around, key=lambda one: one.lineno)]
    if any(names) or not around:
        return ".".join(filter(None, names)) or "module"
    (outer, *_) = around
    return ast.unparse(outer.targets[0] if isinstance(outer, ast.Assign) else outer.target)


def _statement_lines(statements: list[ast.stmt], place: Any) -> range:
    """Return the lines of the innermost statement with a place; of one with a body those before the body."""
    around = [one for one in statements if one.lineno <= place.lineno <= (one.end_lineno or one.lineno)]
    inner = max(around, key=lambda one: (one.lineno, -(one.end_lineno or 0)))
    body = getattr(inner, "body", None)
    return range(inner.lineno, (body[0].lineno if body else (inner.end_lineno or inner.lineno) + 1))


def _short(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 100 else f"{line[:99]}…"


def _places(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed, in the order of the source."""
    for node in ast.iter_child_nodes(tree):
        if _is_left_alone(node):
            continue
        if isinstance(node, ast.stmt | ast.expr):
            yield node
        if isinstance(node, ast.AnnAssign):
            yield from _places(ast.Tuple([node.value] if node.value else [], ast.Load()))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _places(ast.Module(node.body, []))  # without decorators, bases and annotations
        elif not isinstance(node, ast.Raise):
            yield from _places(node)


def _is_left_alone(node: ast.AST) -> bool:
    """Return True for imports, types, asserts, and the texts of errors and log records."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.arguments():
            return True
        case ast.Call(func=function):
            return ast.unparse(function).startswith(("logger.", "fields", "TypeVar"))
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test)
        case ast.Subscript():
            return _is_type(node)
    return False


def _is_type(node: ast.Subscript) -> bool:
    return isinstance(node.value, ast.Name) and (
        node.value.id[0].isupper() or node.value.id in ("tuple", "dict")
    )


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node may become."""
    match node:
        case ast.Compare(ops=[operator]):
            yield _with(node, ops=[OPERATORS[type(operator)]()])
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) if type(operator) in OPERATORS:
            yield _with(node, op=OPERATORS[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call():
            yield from _changed_calls(node)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Expr(value=ast.Call()):
            yield ast.Pass()


def _changed_calls(node: ast.Call) -> Iterator[ast.Call]:
    """Yield the call of an opposite function, and the call without one of its conditions."""
    match node.func:
        case ast.Attribute(attr=name) if name in NAMES:
            yield _with(node, func=_with(node.func, attr=NAMES[name]))
        case ast.Name(id=name) if name in NAMES:
            yield _with(node, func=ast.Name(NAMES[name]))
    function = ast.unparse(node.func).rpartition(".")[2]
    least = 2 if function.endswith("_") else 1  # and_() alone is an error of its own
    if function in CONDITIONS and len(node.args) >= least:
        for place in range(len(node.args)):
            yield _with(node, args=[*node.args[:place], *node.args[place + 1 :]])


def _with(node: Any, **fields: object) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
