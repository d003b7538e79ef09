"""What differs between the databases is in their packages: no other module asks which it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from support.source import modules

OF_DATABASES = ("inbox/sqlite", "inbox/postgres", "inbox/migrations", "sandbox/storage")
MAY_ASK = {
    "effects.py",  # of the user's own database, not of the inbox
}
NAMES = {"sqlite", "postgresql", "postgres"}
OF_ONE = ("database.schema", "database.path")


def questions(nodes: list[ast.AST]) -> Iterator[str]:
    """The places of a module that ask for a dialect's name, or for the class of a database."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == "name":
            owner = node.value
            if getattr(owner, "attr", getattr(owner, "id", None)) == "dialect":
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
            is_url = any("get_backend_name" in ast.unparse(each) for each in compared)  # chooses the class
            names = [each for each in compared if isinstance(each, ast.Constant) and each.value in NAMES]
            # What only one of them has tells which it is.
            names += [each for each in compared if ast.unparse(each).endswith(OF_ONE)]
            if names and not is_url:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "compiles"):
            its_class = ast.unparse(node.args[-1])
            if "Sqlite" in its_class or "Postgres" in its_class or its_class.strip("'") in NAMES:
                yield ast.unparse(node)


def test_no_module_above_the_two_packages_asks_which_database_it_is():
    found = {
        name: asked
        for name, module in modules().items()
        if not name.startswith(OF_DATABASES) and (asked := [*questions(module.nodes)])
    }
    assert found.keys() == MAY_ASK, found


@pytest.mark.parametrize(
    "source",
    [
        "connection.dialect.name",
        "PLANS[dialect.name]",
        "'sqlite' == kind",
        "isinstance(self.database, SqliteDatabase)",
        "compiles(Among, 'postgresql')",
        "inbox.database.schema is None",
    ],
)
def test_a_question_is_noticed(source):
    assert len([*questions(list(ast.walk(ast.parse(source))))]) == 1
