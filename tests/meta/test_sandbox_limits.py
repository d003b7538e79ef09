"""The sandbox's limits stand in its README as they are in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import billhook
from billhook.sandbox import options

README = (Path(billhook.__file__).parent / "sandbox" / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", README, re.MULTILINE))

TOLD = {
    "limits of texts and lists": (options.MAX_KEY, options.MAX_ALIASES, options.MAX_PRODUCTS),
    "limits of a meter": (options.MAX_CONDITIONS,),
    "limits of an aggregation": (options.MAX_AGGREGATED_METERS, options.MAX_GROUPS),
    "size of a body": (options.DEFAULT_BODY_BYTES, options.MAX_LOGIN_BYTES),
}


@pytest.mark.parametrize("row", TOLD)
def test_a_limit_that_the_specification_does_not_state_is_in_the_table(row: str) -> None:
    words = ROWS[row].replace(",", " ").replace(";", " ").split()

    assert [number for number in TOLD[row] if str(number) not in words] == []


@pytest.mark.parametrize(
    "row",
    ["timestamp of an event", "over 1000 events in a batch", "thresholds of other types than the three"],
)
def test_every_decided_limit_has_a_row(row: str) -> None:
    assert ROWS[row]
