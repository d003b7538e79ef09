"""What stories of a customer cost and tell: `bills.toml` has each with what was expected on paper."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.bills import Story
from support.histories import fresh_sandbox

SCENARIOS = tomllib.loads(Path(__file__).with_name("bills.toml").read_text())["scenario"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each["about"] for each in SCENARIOS])
def test_a_story_is_billed_and_told_as_on_paper(scenario: dict[str, Any]) -> None:
    expected = {name: texts for name, texts in scenario.items() if name not in ("about", "steps")}
    with fresh_sandbox() as sandbox:
        story = Story(sandbox)
        for step in scenario["steps"].strip().splitlines():
            story.take(step)

        assert {name: story.recorded(name) for name in expected} == expected


def test_every_story_expects_something_and_is_told_once() -> None:
    names = [each["about"] for each in SCENARIOS]

    assert len(set(names)) == len(names)
    assert all(len(each) > 2 for each in SCENARIOS)
