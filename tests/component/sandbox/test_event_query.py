"""Asking for stored events. Source: spec, "Endpoints", GET /events."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from support.sandbox import Running

JANUARY = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-02-01T00:00:00Z"}


def send(sandbox: Running, *refs_and_times: tuple[str, str], **changes: Any) -> None:
    """Take events with these refs and timestamps."""
    plain = {"name": "api_call", "customerAlias": "acme", **changes}
    events = [{**plain, "ref": ref, "timestamp": timestamp} for ref, timestamp in refs_and_times]
    assert sandbox.ok("PUT", "/events", {"events": events})["invalidEvents"] == []


def page(sandbox: Running, **query: Any) -> dict[str, Any]:
    """One page of January."""
    found: dict[str, Any] = sandbox.ok("GET", f"/events?{urlencode({**JANUARY, **query})}")
    return found


def refs(found: dict[str, Any]) -> list[str]:
    return [event["ref"] for event in found["events"]]


def test_query_the_range_begins_at_start_time_and_ends_before_end_time(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /events, startTime and endTime."""
    send(
        sandbox,
        ("before", "2025-12-31T23:59:59.999999Z"), ("first", "2026-01-01T00:00:00Z"),
        ("last", "2026-01-31T23:59:59.999999Z"), ("after", "2026-02-01T00:00:00Z"),
    )  # fmt: skip

    found = page(sandbox)

    assert refs(found) == ["first", "last"]
    assert (found["total"], found["hasMore"]) == (2, False)
    assert found["nextCursor"] is None


def test_query_filters_by_event_name_and_by_alias(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /events, eventName and customerAlias."""
    send(sandbox, ("a", "2026-01-02"))
    send(sandbox, ("b", "2026-01-02"), name="other")
    send(sandbox, ("c", "2026-01-02"), customerAlias="else")

    assert refs(page(sandbox, eventName="api_call")) == ["a", "c"]
    assert refs(page(sandbox, customerAlias="acme")) == ["a", "b"]
    both = page(sandbox, customerAlias="acme", eventName="other")
    assert (refs(both), both["total"]) == (["b"], 1)
    assert refs(page(sandbox, customerAlias="nobody")) == []


def test_query_pages_stay_right_while_events_come_in(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /events, cursor. Events come late, and many at one time."""
    send(sandbox, *((f"r-{n}", "2026-01-10T00:00:00Z") for n in range(6)))
    send(sandbox, ("r-last", "2026-01-20T00:00:00Z"))
    seen: list[str] = []
    cursor: dict[str, str] = {}

    for number in range(4):
        found = page(sandbox, limit=2, **cursor)
        seen += refs(found)
        cursor = {"cursor": found["nextCursor"] or ""}
        # One before all that was shown, and one that comes last of its moment.
        send(sandbox, (f"early-{number}", "2026-01-01"), (f"late-{number}", "2026-01-31"))

    first_of_all = [f"r-{n}" for n in range(6)]
    assert seen == [*first_of_all, "r-last", "late-0"]


def test_query_both_times_are_needed_and_in_their_order(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /events, required parameters."""
    without = sandbox.call("GET", "/events?startTime=2026-01-01")
    turned = sandbox.call("GET", "/events?startTime=2026-01-02&endTime=2026-01-01")
    empty = sandbox.ok("GET", "/events?startTime=2026-01-02&endTime=2026-01-02")

    assert (without.status, without.json["param"]) == (400, "endTime")
    assert (turned.status, turned.json["message"]) == (400, "endTime is before startTime")
    assert [each["param"] for each in turned.json["params"]] == ["startTime", "endTime"]
    assert empty == {"events": [], "total": 0, "hasMore": False, "nextCursor": None}
