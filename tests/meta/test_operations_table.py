"""The client's chapter has a row for each of its operations, as the code has it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from billhook.client import OPERATIONS
from billhook.client.operations import IMPLIED

_SPEC = importlib.util.spec_from_file_location("table", Path(__file__).with_name("operations_table.py"))
TABLE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(TABLE)
WRITTEN = TABLE.CHAPTER.read_text(encoding="utf-8")
with_table = TABLE.with_table


def listed(text: str) -> set[str]:
    return {
        f"{group}.{method}" for group, method in re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, re.MULTILINE)
    }


def test_the_table_in_the_chapter_is_the_one_that_the_code_makes() -> None:
    assert with_table(WRITTEN) == WRITTEN, "python tests/meta/operations_table.py --write"


def test_every_operation_has_a_row_and_no_other_but_those_of_several() -> None:
    assert listed(WRITTEN) == {*OPERATIONS, *IMPLIED, "events.ingest"}


def test_control_a_row_that_is_missing_or_otherwise_would_be_noticed() -> None:
    row = next(line for line in WRITTEN.splitlines() if line.startswith("| `invoices` | `list` |"))

    for altered in (
        WRITTEN.replace(f"{row}\n", ""),
        WRITTEN.replace(row, row.replace("issued_after", "issued")),
    ):
        assert altered != with_table(altered)
