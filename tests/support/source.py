"""The source as text and as trees, each module parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import billhook

SOURCE = Path(billhook.__file__).parent


class Module(NamedTuple):
    """A module's text, and all nodes of its tree, the module first."""

    text: str
    nodes: list[ast.AST]


@cache
def modules(package: Path = SOURCE) -> dict[str, Module]:
    """The modules of a package by their paths in it."""
    texts = {path.relative_to(package).as_posix(): path.read_text() for path in sorted(package.rglob("*.py"))}
    return {name: Module(text, list(ast.walk(ast.parse(text)))) for name, text in texts.items()}
