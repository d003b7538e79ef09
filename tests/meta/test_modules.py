"""What every module keeps to: its size, its exports, its errors, and what importing it costs."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

import pytest

import billhook
from billhook import errors
from support.processes import run_command
from support.source import SOURCE, Module, modules

MODULE_LINES = 500
FUNCTION_LINES = 80
USUAL_FUNCTION_LINES = 45
"""What 95 of 100 functions keep to."""


def own(package: Path) -> Iterator[tuple[str, Module]]:
    """The modules that are written by hand and may change: no migrations."""
    return (each for each in modules(package).items() if "/versions/" not in each[0])


def functions(package: Path) -> list[tuple[str, int]]:
    """Each function as `path:name`, with its length."""
    return [
        (f"{name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for name, module in own(package)
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def too_long(package: Path) -> list[str]:
    """What is longer than it may be, as `path: lines` and `path:function: lines`."""
    lengths = {name: module.text.count("\n") for name, module in own(package)}
    wide = [f"{name}: {lines}" for name, lines in lengths.items() if lines > MODULE_LINES]
    return wide + [f"{name}: {lines}" for name, lines in functions(package) if lines > FUNCTION_LINES]


def usual_length(package: Path) -> float:
    """Return how many lines 95 of 100 functions have at most."""
    return quantiles([lines for _, lines in functions(package)], n=20, method="inclusive")[-1]


def test_no_module_and_no_function_is_longer_than_can_be_read():
    assert too_long(SOURCE) == []
    assert usual_length(SOURCE) <= USUAL_FUNCTION_LINES


def test_something_too_long_would_be_noticed(tmp_path):
    (tmp_path / "long.py").write_text("x = 1\n" * 501)
    (tmp_path / "wide.py").write_text("def f():\n" + "    x = 1\n" * 80)
    (tmp_path / "right.py").write_text("def f():\n" + "    x = 1\n" * 79)

    assert too_long(tmp_path) == ["long.py: 501", "wide.py:f: 81"]
    assert usual_length(tmp_path) > USUAL_FUNCTION_LINES


def shared_class_names(package: Path) -> dict[str, list[str]]:
    """The names of classes that several modules define, each with those modules."""
    found: dict[str, list[str]] = {}
    for name, module in own(package):
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def test_no_two_classes_share_a_name():
    assert shared_class_names(SOURCE) == {}


def test_a_class_name_that_occurs_twice_would_be_noticed(tmp_path):
    (tmp_path / "a.py").write_text("class Plan: ...\nclass Run: ...\n")
    (tmp_path / "b.py").write_text("def f():\n    class Plan: ...\n")

    assert shared_class_names(tmp_path) == {"Plan": ["a.py", "b.py"]}


def test_every_module_says_what_it_is_for():
    assert [name for name, module in own(SOURCE) if not ast.get_docstring(module.nodes[0])] == []


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
        f"{name}: {node.name}"
        for name, module in own(SOURCE)
        if not name.startswith(("errors/", "cli/"))
        for node in module.nodes
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
from dataclasses import dataclass
import flask, pydantic

def declare():
    class Model(pydantic.BaseModel):
        name: "str"
        number: "int | None" = None
        words: "list[str]" = pydantic.Field(default=[], description="some")

    @dataclass(frozen=True, slots=True)
    class Facts:
        name: "str"
        number: "int | None" = None
        words: "list[str]" = ()

declare()  # with the first model pydantic imports what builds models: of that billhook has no part
called = 0
def count(frame, event, argument):
    global called
    called += event in ("call", "c_call")
sys.setprofile(count)
declare()
before, unit = set(sys.modules), called
import {imported}
sys.setprofile(None)
units = (called - unit) / unit
print(json.dumps([units, sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})]))
"""
SQLITE = {"pysqlite3", "sqlite3"}
HEAVY = {"alembic", "cryptography", "gunicorn", "rich", "sqlalchemy", *SQLITE}


def cost(imported: str) -> tuple[float, set[str]]:
    """Return the calls that an import makes, in those that declare one model and one dataclass, and the
    top-level modules that it adds to those of flask and pydantic. Calls, not seconds: no machine has a part
    in them; and of one Python: each builds classes in its own way, of which an import mostly consists.
    """
    environ = {key: text for key, text in os.environ.items() if not key.startswith("COV")}
    command = [sys.executable, "-c", COST.format(imported=imported)]
    subprocess.run(command, env=environ, capture_output=True, check=True)  # it writes the byte code
    ran = run_command(command, env=environ, check=True)
    units, brought = json.loads(ran.stdout)
    return units, set(brought)


def test_importing_billhook_is_cheap_and_brings_nothing_heavy():
    units, brought = cost("billhook")

    assert brought & HEAVY == set()
    assert units < 100  # some 85


@pytest.mark.slow
def test_control_importing_the_inbox_is_not_cheap():
    units, brought = cost("billhook.inbox")

    assert units > 150  # some 250
    assert brought & HEAVY - SQLITE == {"sqlalchemy"}
    assert len(brought & SQLITE) == 1


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
