"""What every module keeps to: its size, its exports, its errors, and what importing it costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import billhook
from billhook import errors

SOURCE = Path(billhook.__file__).parent
MODULE_LINES = 400
FUNCTION_LINES = 45
LONGER: dict[str, str] = {}
"""Modules that may be longer, each with its reason."""


def modules(package: Path = SOURCE) -> list[Path]:
    return sorted(path for path in package.rglob("*.py") if "versions" not in path.parts)


def too_long(package: Path, excepted: dict[str, str]) -> list[str]:
    """What is longer than it may be, as `path: lines` and `path:function: lines`."""
    found = []
    for path in modules(package):
        text = path.read_text()
        name = str(path.relative_to(package))
        lines = text.count("\n")
        if lines > MODULE_LINES and name not in excepted:
            found.append(f"{name}: {lines}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > FUNCTION_LINES:
                    found.append(f"{name}:{node.name}: {length}")
    return found


def test_no_module_and_no_function_is_longer_than_can_be_read():
    assert too_long(SOURCE, LONGER) == []


def test_an_exception_that_is_no_longer_needed_is_taken_off_the_list():
    still = {text.split(":")[0] for text in too_long(SOURCE, {})}

    assert set(LONGER) <= still


def test_something_too_long_would_be_noticed(tmp_path):
    (tmp_path / "long.py").write_text("x = 1\n" * 401)
    (tmp_path / "wide.py").write_text("def f():\n" + "    x = 1\n" * 45)
    (tmp_path / "right.py").write_text("def f():\n" + "    x = 1\n" * 44)

    assert too_long(tmp_path, {}) == ["long.py: 401", "wide.py:f: 46"]


def shared_class_names(package: Path) -> dict[str, list[str]]:
    """The names of classes that several modules define, each with those modules."""
    found: dict[str, list[str]] = {}
    for path in modules(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(package)))
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def test_no_two_classes_share_a_name():
    assert shared_class_names(SOURCE) == {}


def test_a_class_name_that_occurs_twice_would_be_noticed(tmp_path):
    (tmp_path / "a.py").write_text("class Plan: ...\nclass Run: ...\n")
    (tmp_path / "b.py").write_text("def f():\n    class Plan: ...\n")

    assert shared_class_names(tmp_path) == {"Plan": ["a.py", "b.py"]}


# --- exports --------------------------------------------------------------------------------------


def names() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages([str(SOURCE)], "billhook.")]
    return ["billhook", *(name for name in found if not re.search(r"migrations|__main__", name))]


@pytest.mark.parametrize("name", names())
def test_module_exports_are_sorted_and_exist(name):
    module = importlib.import_module(name)

    exported = getattr(module, "__all__", None)

    if exported is None:
        assert name in WITHOUT_EXPORTS
    else:
        assert list(exported) == sorted(set(exported), key=_as_ruff_sorts)
        assert [one for one in exported if not hasattr(module, one)] == []
    assert module.__doc__


WITHOUT_EXPORTS = {
    "billhook.gunicorn_conf": "read by gunicorn as a table of settings, imported by nobody",
}


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


# --- errors ---------------------------------------------------------------------------------------


def drawn() -> dict[str, str]:
    """The tree in the docstring of billhook.errors: class -> its parent."""
    parents, stack = {}, []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([ │]*)(?:[├└]── )?([A-Z]\w+)(?:\s{2,}.*)?$", line)
        if found is None or (not stack and found[2] != "BillhookError"):
            continue
        depth = 0 if "──" not in line else len(found[1]) // 4 + 1
        del stack[depth:]
        parents[found[2]] = stack[-1] if stack else "Exception"
        stack.append(found[2])
    return parents


def test_every_error_is_exported_and_drawn_under_its_parent():
    classes = {
        name: kind.__base__.__name__
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, BaseException)
    }

    assert drawn() == classes
    assert sorted(classes) == errors.__all__


def test_every_error_explains_itself_and_no_other_module_defines_one():
    elsewhere = [
        f"{path.name}: {node.name}"
        for path in modules()
        if path.parent != SOURCE / "errors" and "cli" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(getattr(base, "id", "").endswith(("Error", "Exception")) for base in node.bases)
    ]

    assert elsewhere == []
    assert all(getattr(errors, name).__doc__ for name in errors.__all__)


def test_a_mistake_in_setting_up_is_no_mistake_of_a_delivery():
    assert not issubclass(errors.ConfigError, errors.DeliveryError)
    assert not issubclass(errors.InboxError, errors.DeliveryError)


# --- what importing costs -------------------------------------------------------------------------

COST = """
import json, sys
called = 0
def count(frame, event, argument):
    global called
    called += event in ("call", "c_call")
sys.setprofile(count)
import flask, pydantic
before, theirs = set(sys.modules), called
import {imported}
sys.setprofile(None)
ratio = (called - theirs) / theirs
print(json.dumps([ratio, sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})]))
"""
HEAVY = {"alembic", "cryptography", "gunicorn", "rich", "sqlalchemy", "sqlite3"}


def cost(imported: str) -> tuple[float, set[str]]:
    """Return the calls that an import makes, as a part of those that flask and pydantic made before it, and
    the top-level modules that it adds to theirs. Calls, not seconds: no machine has a part in them.
    """
    environ = {key: text for key, text in os.environ.items() if not key.startswith("COV")}
    command = [sys.executable, "-c", COST.format(imported=imported)]
    subprocess.run(command, env=environ, capture_output=True, check=True)  # it writes the byte code
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    ratio, brought = json.loads(ran.stdout)
    return ratio, set(brought)


def test_importing_billhook_is_cheap_and_brings_nothing_heavy():
    ratio, brought = cost("billhook")

    assert brought & HEAVY == set()
    assert ratio < 0.9  # some 0.7


def test_importing_the_inbox_would_not_be_cheap():
    ratio, brought = cost("billhook.inbox")

    assert ratio > 1.2  # some 1.6
    assert brought & HEAVY == {"sqlalchemy", "sqlite3"}


def test_the_facade_is_what_the_contract_names():
    assert billhook.__all__ == [
        "Billhook",
        "Delivery",
        "Discard",
        "Handlers",
        "Retry",
        "Source",
        "errors",
        "signals",
    ]
