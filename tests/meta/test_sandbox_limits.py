"""The sandbox's limits stand in its README as they are in the code."""

from __future__ import annotations

import re
from pathlib import Path

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


DECIDED = (
    "timestamp of an event",
    "over 1000 events in a batch",
    "thresholds of other types than the three",
)


def test_limits_that_the_specification_does_not_state_are_in_the_table() -> None:
    words = {row: ROWS[row].replace(",", " ").replace(";", " ").split() for row in TOLD}

    missing = [
        (row, number) for row, told in TOLD.items() for number in told if str(number) not in words[row]
    ]
    assert missing == []
    assert [row for row in DECIDED if row not in ROWS] == []
