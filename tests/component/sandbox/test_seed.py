"""SandboxOptions.seed: the demo's customers, as `--seed demo` has them, or a number for the dice."""

from __future__ import annotations

from typing import Any

import pytest

from billhook.errors import ConfigError
from billhook.sandbox import SandboxOptions
from support.sandbox import Running, running


def test_the_demo_seed_is_added_once(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'sandbox.db'}"
    for _ in range(2):
        with running(seed="demo", database_url=url) as sandbox:
            names = [each["name"] for each in sandbox.ok("GET", "/_sandbox/customers")["customers"]]
            events = sandbox.ok("GET", "/events?startTime=2026-01-01&endTime=2027-01-01")["total"]

            assert names == ["Acme Ltd", "Bounce GmbH", "Idle Inc", "stranger"]
            assert events == 24


def test_control_without_it_there_is_nothing(sandbox: Running) -> None:
    assert sandbox.ok("GET", "/_sandbox/customers")["total"] == 0


def test_a_seed_that_there_is_not_is_a_mistake() -> None:
    for seed in ("dmeo", "", True, 1.5, object()):
        with pytest.raises(ConfigError, match="seed must be 'demo' or a whole number, not "):
            SandboxOptions(seed=seed)


def test_random_seed_sets_the_effective_seed() -> None:
    given: list[dict[str, Any]] = [
        {}, {"seed": 7}, {"seed": 0}, {"random_seed": 8}, {"seed": 7, "random_seed": 8}, {"seed": "demo"},
        {"seed": "demo", "random_seed": 8},
    ]  # fmt: skip

    found = [SandboxOptions(**options).effective_random_seed for options in given]

    assert found == [None, 7, 0, 8, 8, None, 8]
