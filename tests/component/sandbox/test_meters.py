"""Meters. Source: spec, "Endpoints", Meters (their endpoints are not shown: these are the sandbox's own)."""

from __future__ import annotations

from typing import Any

from support.sandbox import TAKEN, Running, check_refused


def meter(**changes: Any) -> dict[str, Any]:
    """What is asked for to make a meter that counts."""
    return {"name": "API calls", "eventName": "api_call", "aggregationMethod": "count", **changes}


def made(sandbox: Running, **changes: Any) -> dict[str, Any]:
    """A new meter."""
    found: dict[str, Any] = sandbox.ok("POST", "/_sandbox/meters", meter(**changes))["meter"]
    return found


def test_meters_of_an_event_have_unique_keys(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /v2/events/aggregation, meters of key and eventName."""
    keys = [made(sandbox)["key"] for _ in range(3)]
    elsewhere = made(sandbox, eventName="other", key="api_call")["key"]

    taken = sandbox.call("POST", "/_sandbox/meters", meter(key="api_call-2"))

    assert keys == ["api_call", "api_call-2", "api_call-3"]
    assert elsewhere == "api_call"
    check_refused([taken], ["key"], TAKEN)
