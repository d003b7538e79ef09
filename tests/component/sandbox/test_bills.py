"""What stories of a customer cost and tell, and what is refused: two tables, computed on paper."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.bills import Story
from support.sandbox import fresh_sandbox

SCENARIOS, REFUSALS = (
    tomllib.loads(Path(__file__).with_name(name).read_text())["scenario"]
    for name in ("bills.toml", "refusals.toml")
)


def check(scenario: dict[str, Any]) -> None:
    expected = {name: texts for name, texts in scenario.items() if name not in ("about", "steps")}
    with fresh_sandbox() as sandbox:
        story = Story(sandbox)
        for step in scenario["steps"].strip().splitlines():
            story.take(step)

        assert {name: story.recorded(name) for name in expected} == expected
        balances = defaultdict[str, Decimal](Decimal)
        for entry in story.call("GET", "/credits?customerId=$acme&limit=1000")["entries"]:
            balances[entry["creditPoolId"]] += entry["amount"]
            assert entry["balanceAfterEntry"] == balances[entry["creditPoolId"]] >= 0


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each["about"] for each in SCENARIOS])
def test_a_story_is_billed_and_told_as_on_paper(scenario: dict[str, Any]) -> None:
    check(scenario)


@pytest.mark.parametrize("scenario", REFUSALS, ids=[each["about"] for each in REFUSALS])
def test_what_cannot_be_is_refused_by_the_name_of_its_field(scenario: dict[str, Any]) -> None:
    check(scenario)


def test_every_story_expects_something_and_is_told_once() -> None:
    names = [each["about"] for each in [*SCENARIOS, *REFUSALS]]

    assert len(set(names)) == len(names)
    assert all(len(each) > 2 for each in SCENARIOS)
    assert all(" ! " in each["steps"] for each in REFUSALS)
