"""The tables that the code makes stand in their pages as it makes them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from billhook.client import OPERATIONS
from billhook.client.operations import IMPLIED

_SPEC = importlib.util.spec_from_file_location("tables", Path(__file__).with_name("tables.py"))
TABLES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(TABLES)
with_table = TABLES.with_table


def written(name: str) -> str:
    return TABLES.TABLES[name][0].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES.TABLES)
def test_a_table_is_the_one_that_the_code_makes(name: str) -> None:
    assert with_table(name, written(name)) == written(name), "python tests/meta/tables.py --write"


def test_the_files_of_deploy_are_made_from_the_templates_of_billhook_deploy() -> None:
    made = TABLES.repository_files()

    assert {name: (TABLES.DEPLOY / name).read_text(encoding="utf-8") for name in made} == made
    assert {path.name for path in TABLES.DEPLOY.glob("*.service")} <= made.keys()


def test_every_operation_has_a_row_and_no_other_but_those_of_several() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", written("operations"), re.MULTILINE)

    assert {f"{group}.{method}" for group, method in rows} == {*OPERATIONS, *IMPLIED, "events.ingest"}


@pytest.mark.parametrize("name", TABLES.TABLES)
def test_control_a_row_that_is_missing_or_otherwise_would_be_noticed(name: str) -> None:
    page, row = written(name), list(TABLES.TABLES[name][1]())[-1]

    for altered in (page.replace(f"{row}\n", ""), page.replace(row, f"{row} |")):
        assert altered != with_table(name, altered) == page
