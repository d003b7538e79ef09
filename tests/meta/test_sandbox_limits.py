"""The sandbox's limits stand in its README as they are in the code."""

from __future__ import annotations

import re
from pathlib import Path

import billhook
from billhook.sandbox import options

README = (Path(billhook.__file__).parent / "sandbox" / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", README, re.MULTILINE))

TOLD = (
    options.MAX_KEY,
    options.MAX_ALIASES,
    options.MAX_PRODUCTS,
    options.MAX_CONDITIONS,
    options.MAX_AGGREGATED_METERS,
    options.MAX_GROUPS,
    options.DEFAULT_BODY_BYTES,
    options.MAX_LOGIN_BYTES,
)
DECIDED = ("timestamp of an event", "a batch that is too large", "thresholds")
MOST_ROWS = 45


def test_limits_that_the_specification_does_not_state_are_in_the_table() -> None:
    words = ROWS["limits"].replace(",", " ").replace(";", " ").replace("(", " ").split()

    assert [number for number in TOLD if str(number) not in words] == []
    assert [row for row in DECIDED if row not in ROWS] == []


def test_the_table_of_decisions_stays_short() -> None:
    section = README.split("## What the specification leaves open")[1]
    rows = re.findall(r"^\| [^*|][^|]* \| .+ \|$", section, re.MULTILINE)

    assert len(rows) - 1 <= MOST_ROWS
