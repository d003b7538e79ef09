"""The sandbox's two tables: no event is left out, and every address that they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import billhook
from billhook.events import EVENT_TYPES
from billhook.sandbox.sandbox import GROUPS

README = (Path(billhook.__file__).parent / "sandbox" / "README.md").read_text(encoding="utf-8")
OPERATIONS = {(operation.method, operation.path) for group in GROUPS for operation in group.operations}


def own_operations() -> set[tuple[str, str]]:
    return {(method, path) for method, path in OPERATIONS if path.startswith("/_sandbox")}


def test_every_event_has_a_row_with_its_cause() -> None:
    section = README.split("## What the specification leaves open")[0]

    rows = re.findall(r"^\| ([A-Z][A-Za-z]+) \| (.+) \|$", section, re.MULTILINE)

    assert [name for name, _ in rows] == list(dict.fromkeys(name for name, _ in rows))
    assert {name for name, _ in rows} == set(EVENT_TYPES)


def test_every_operation_in_the_readme_exists_and_every_control_operation_is_listed() -> None:
    text = re.sub(
        r"/_sandbox/trigger/[A-Z]\w+", "/_sandbox/trigger/{eventType}", README
    )  # its example names one
    found = re.findall(r"`(GET|POST|PUT|DELETE)(?:`, `(GET))? (/[^` ]+)", text)

    named = {(method, path) for first, second, path in found for method in (first, second) if method}

    assert named - OPERATIONS == set()
    assert own_operations() - named == set()
