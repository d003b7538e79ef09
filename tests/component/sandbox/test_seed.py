"""SandboxOptions.seed: the demo's customers, as `--seed demo` has them, or a number for the dice."""

from __future__ import annotations

from typing import Any

from support.sandbox import running


def test_the_demo_seed_is_added_once(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'sandbox.db'}"
    for _ in range(2):
        with running(seed="demo", database_url=url) as sandbox:
            names = [each["name"] for each in sandbox.ok("GET", "/_sandbox/customers")["customers"]]
            events = sandbox.ok("GET", "/events?startTime=2026-01-01&endTime=2027-01-01")["total"]

            assert names == ["Acme Ltd", "Bounce GmbH", "Idle Inc", "stranger"]
            assert events == 24
