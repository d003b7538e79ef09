"""Finds in the sandbox's source what it refuses with 400: by `invalid_request`, `check_key` and the like.

Each refusal is named by its module and its text, with `{}` for what is put into it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import billhook

ROOT = Path(billhook.__file__).parent
FACTORIES = frozenset(
    [
        "invalid_request",
        "already_exists",
        "RuleBroken",
        "FieldMissing",
        "FieldConflict",
        "LimitBroken",
        "InvalidResource",
        "ValueError",
    ]
)
"""`ValueError` is what readers of a URL or a duration raise, and an operation passes on."""
CHECKS = {"check_choice": "must be one of: ", "check_key": "is no key: "}
"""Checks whose last argument is the field."""


def refusals() -> dict[str, set[str]]:
    """Return the texts of all refusals by module, such as `billing/meters`."""
    # errors.py has the factories; the pages have no refusals of their own.
    files = [*(ROOT / "sandbox").rglob("*.py"), *(ROOT / "resources").glob("*.py")]
    wanted = [file for file in files if "pages" not in file.parts and file.name != "errors.py"]
    found = {name_of(file): set(refusals_in(file.read_text(encoding="utf-8"))) for file in sorted(wanted)}
    return {name: texts for name, texts in found.items() if texts}


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT).with_suffix("")).removeprefix("sandbox/")


def refusals_in(source: str) -> Iterator[str]:
    """Yield the texts of the refusals in a module's source."""
    tree = ast.parse(source)
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    for function in functions:
        assigned = {
            target.id: each.value
            for each in ast.walk(function)
            if isinstance(each, ast.Assign)
            for target in each.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name in FACTORIES:
                yield text_of(call.args[0], assigned)
            elif name in CHECKS:
                yield CHECKS[name] + text_of(call.args[-1], assigned)


def text_of(part: ast.expr, assigned: dict[str, ast.expr]) -> str:
    if isinstance(part, ast.Name) and part.id in assigned:
        return text_of(assigned[part.id], {})
    if isinstance(part, ast.Constant):
        return str(part.value)
    if isinstance(part, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in part.values)
    return "{}"
