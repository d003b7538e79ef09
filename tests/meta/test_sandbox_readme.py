"""The sandbox's README: no event is left out, every address is there, and limits are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import billhook
from billhook.events import EVENT_TYPES
from billhook.sandbox import options
from billhook.sandbox.sandbox import GROUPS
from billhook.sandbox.webhooks.faults import FaultKind

README = (Path(billhook.__file__).parent / "sandbox" / "README.md").read_text(encoding="utf-8")
EVENTS, DECISIONS = README.split("## What the specification leaves open")
OPERATIONS = {(operation.method, operation.path) for group in GROUPS for operation in group.operations}


LIMITS = (
    options.MAX_KEY, options.MAX_ALIASES, options.MAX_PRODUCTS, options.MAX_CONDITIONS, options.MAX_GROUPS,
    options.MAX_AGGREGATED_METERS, options.DEFAULT_BODY_BYTES, options.MAX_LOGIN_BYTES,
)  # fmt: skip
DECIDED = {"limits", "timestamp of an event", "a batch that is too large", "thresholds"}
MOST_ROWS = 45


def test_every_event_has_a_row_with_its_cause() -> None:
    rows = re.findall(r"^\| ([A-Z][A-Za-z]+) \| .+ \|$", EVENTS, re.MULTILINE)

    assert sorted(rows) == sorted(EVENT_TYPES), "the table of src/billhook/sandbox/README.md"


def test_every_operation_in_the_readme_exists_and_every_control_operation_is_listed() -> None:
    # Its example names one type.
    text = re.sub(r"/_sandbox/trigger/[A-Z]\w+", "/_sandbox/trigger/{eventType}", README)
    found = re.findall(r"`(GET|POST|PUT|DELETE)(?:`, `(GET))? (/[^` ]+)", text)

    named = {(method, path) for first, second, path in found for method in (first, second) if method}

    assert named - OPERATIONS == set()
    assert {each for each in OPERATIONS if each[1].startswith("/_sandbox")} - named == set()


def test_every_fault_is_named() -> None:
    (named,) = re.findall(r"^\| faults: (.+?);", README, re.MULTILINE)

    assert re.sub(r" \(.*?\)", "", named).split(", ") == list(FaultKind)


def test_decisions_are_few_and_among_them_are_the_limits() -> None:
    rows = dict(re.findall(r"^\| ([^*|][^|]*) \| (.+) \|$", DECISIONS, re.MULTILINE))

    assert rows.keys() >= DECIDED
    assert [number for number in LIMITS if str(number) not in re.split(r"[ ,;(]+", rows["limits"])] == []
    assert len(rows) - 1 <= MOST_ROWS
