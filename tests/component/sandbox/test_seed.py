"""SandboxOptions.seed: the demo's customers, as `--seed demo` has them, or a number for the dice."""

from __future__ import annotations

from typing import Any

import pytest

from billhook.errors import ConfigError
from billhook.sandbox import SandboxOptions
from support.sandbox import running


def test_the_demo_seed_is_added_once(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'sandbox.db'}"
    for _ in range(2):
        with running(seed="demo", database_url=url) as sandbox:
            names = [each["name"] for each in sandbox.ok("GET", "/_sandbox/customers")["customers"]]
            events = sandbox.ok("GET", "/events?startTime=2026-01-01&endTime=2027-01-01")["total"]

            assert names == ["Acme Ltd", "Bounce GmbH", "Idle Inc", "stranger"]
            assert events == 24


def test_control_without_it_there_is_nothing() -> None:
    with running() as sandbox:
        assert sandbox.ok("GET", "/_sandbox/customers")["total"] == 0


@pytest.mark.parametrize("seed", ["dmeo", "", True, 1.5, object()])
def test_a_seed_that_there_is_not_is_a_mistake(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed must be 'demo' or a whole number, not "):
        SandboxOptions(seed=seed)


@pytest.mark.parametrize(
    ("options", "dice"),
    [
        ({}, None),
        ({"seed": 7}, 7),
        ({"seed": 0}, 0),
        ({"random_seed": 8}, 8),
        ({"seed": 7, "random_seed": 8}, 8),
        ({"seed": "demo"}, None),
        ({"seed": "demo", "random_seed": 8}, 8),
    ],
)
def test_random_seed_sets_the_effective_seed(options: dict[str, Any], dice: int | None) -> None:
    assert SandboxOptions(**options).effective_random_seed == dice
