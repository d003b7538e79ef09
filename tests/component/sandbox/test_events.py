"""Taking usage events in, and trying it. Source: spec, "Endpoints", Events; "Limits"; "Errors"."""

from __future__ import annotations

import json
from typing import Any

import pytest

from billhook.resources import MAX_BATCH_BYTES
from billhook.sandbox.storage.tables import metadata
from support.sandbox import INVALID, Running

FORMS = [("PUT", "/events"), ("POST", "/v2/events")]
RANGE = "startTime=2026-01-01T00:00:00Z&endTime=2026-02-01T00:00:00Z&limit=1000"


def event(ref: str, **changes: Any) -> dict[str, Any]:
    """A good event."""
    plain = {"name": "api_call", "timestamp": "2026-01-10T09:00:00Z", "customerAlias": "acme", "ref": ref}
    return {**plain, "data": {"units": 3}, **changes}


def stored(sandbox: Running) -> list[dict[str, Any]]:
    """The events of January, as the sandbox tells them."""
    events: list[dict[str, Any]] = sandbox.ok("GET", f"/events?{RANGE}")["events"]
    return events


@pytest.mark.parametrize(("method", "path"), FORMS)
def test_events_valid_ones_of_a_partly_invalid_batch_are_stored(
    sandbox: Running, method: str, path: str
) -> None:
    """Source: spec, "Endpoints", PUT /events, on partial success; POST /v2/events."""
    bad = {"name": "api_call", "customerAlias": "acme", "ref": "r-2", "timestamp": "yesterday"}
    answer = sandbox.ok(method, path, {"events": [event("r-1"), bad, event("r-3")]})

    assert answer == {
        "validEvents": [event("r-1"), event("r-3")],
        "invalidEvents": [{"event": bad, "error": "timestamp: Input should be an ISO 8601 date-time"}],
    }
    assert stored(sandbox) == [event("r-1"), event("r-3")]


WRONG: list[tuple[Any, str]] = [
    ({}, "name is missing; timestamp is missing; customerAlias is missing; ref is missing"),
    ("text", "an event must be an object"),
    (event("r-1", name=7), "name: Input should be a valid string"),
    (event("r-1", data=[1]), "data: Input should be an object"),
    (event("r-1", timestamp=1768035600), "timestamp: Input should be an ISO 8601 date-time"),
    (event("r-1", timestamp="2026-02-30T00:00:00Z"), "timestamp: Input should be an ISO 8601 date-time"),
    (event(" "), "ref is empty"),
    (event("r" * 256), "ref has more than 255 characters"),
    (event("r-1", customerAlias=""), "customerAlias is empty"),
    (event("r-1", name="a\0b"), "name holds a NUL character"),
    (event("r-1", data={"a": "\0"}), "a NUL character (\\u0000) cannot be stored"),
]


def test_events_invalid_ones_are_returned_with_their_error(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Event (ingested), the invalid-event entry."""
    answer = sandbox.ok("POST", "/v2/events", {"events": [wrong for wrong, _ in WRONG]})

    assert answer["validEvents"] == []
    assert answer["invalidEvents"] == [{"event": wrong, "error": error} for wrong, error in WRONG]
    assert stored(sandbox) == []
    assert sandbox.raised() == []


def test_events_a_batch_has_1_to_1000_events(sandbox: Running) -> None:
    """Source: spec, "Limits", events per batch."""
    for method, path in FORMS:
        none = sandbox.call(method, path, {"events": []})
        too_many = sandbox.call(method, path, {"events": [event(f"r-{n}") for n in range(1001)]})

        assert none.error() == too_many.error() == INVALID
        assert none.json["param"] == too_many.json["param"] == "events"
        assert none.json["message"].endswith("and this one has none: give at least one")
        assert too_many.json["message"] == "a batch has 1 to 1000 events, and this one has 1001: split it"
    assert stored(sandbox) == []


def sized(size: int) -> bytes:
    """A batch of one event, of so many bytes."""
    short = len(json.dumps({"events": [event("r-1", data={"fill": ""})]}))
    return json.dumps({"events": [event("r-1", data={"fill": "x" * (size - short)})]}).encode()


def test_events_a_batch_has_at_most_256_kb(sandbox: Running) -> None:
    """Source: spec, "Limits", batch payload size; "Endpoints", POST /v2/events, on request_too_large."""
    errors = {
        ("POST", "/v2/events"): (413, "invalid_request_error", "request_too_large"),
        ("PUT", "/events"): INVALID,
        ("POST", "/events/dry-run"): INVALID,
    }
    fits = [sandbox.call(*form, sized(MAX_BATCH_BYTES)).status for form in errors]
    too_large = {form: sandbox.call(*form, sized(MAX_BATCH_BYTES + 1)).error() for form in errors}

    assert fits == [200, 200, 200]
    assert too_large == errors


NO_BATCH = [
    (b"", "the body is not JSON (line 1, column 1)"),
    (b"[]", "the body is JSON, but not an object"),
    (b'{"events": {}}', "the body is not a batch: events must be a list of events"),
    (b'{"events": [{}', "the body is not JSON (line 1, column 15)"),
    (b'{"events": [{}]} x', "the body is not JSON (line 1, column 18)"),
    (b'{"events": [{}], "events": []}', "an object in the body has the same key twice"),
    (b'{"events": [NaN]}', "the body holds NaN or an infinity, which JSON does not have"),
    (b'{"events": ["\\ud800"]}', "a string in the body holds half a surrogate pair"),
    (b'{"events": ["\xff"]}', "the body is not UTF-8 (byte 13)"),
    (b'{"events": [' + b"[" * 5000, "the body is nested deeper than 64 levels, or has an unmatched bracket"),
]


def test_events_an_invalid_batch_is_refused_as_a_whole(sandbox: Running) -> None:
    """Source: spec, "Endpoints", PUT /events, the request; "Errors", a failed validation."""
    for method, path in FORMS:
        answers = [sandbox.call(method, path, body) for body, _ in NO_BATCH]

        assert {answer.error() for answer in answers} == {INVALID}
        assert [answer.json["message"] for answer in answers] == [message for _, message in NO_BATCH]


def test_events_numbers_are_exact_and_unknown_fields_stored(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Event (ingested), data."""
    text = (
        '{"name":"e","timestamp":"2026-01-10T09:00:00Z","customerAlias":"a","ref":"1","data":{"n":%s},"x":%s}'
    )
    exact = text % ("1.10", "12345678901234567890.123456789012345678901234567890")
    answer = sandbox.call("POST", "/v2/events", b'{ "events" : [ %b ] , "more": [1] }' % exact.encode())
    listed = sandbox.call("GET", f"/events?{RANGE}")

    assert exact in answer.body.decode()
    assert exact in listed.body.decode()


def test_events_of_an_unknown_alias_create_one_anonymous_customer(sandbox: Running) -> None:
    """Source: spec, "States and transitions", customer absent; "Events", rule 5."""
    batch = {"events": [event(f"r-{n}", customerAlias="new") for n in range(1000)]}
    sandbox.ok("POST", "/v2/events", batch)
    sandbox.ok("POST", "/v2/events", {"events": [event("later", customerAlias="new")]})

    raised = sandbox.raised()

    assert [(kind, body["name"], body["aliases"]) for kind, body in raised] == [
        ("AnonymousCustomer", "new", ["new"])
    ]


def test_events_aliases_external_id_and_id_name_the_same_customer(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Event (ingested), customerAlias; Customer, aliases."""
    made = {"name": "Acme", "aliases": ["acme-eu", "acme-us"], "externalId": "crm-1"}
    customer = sandbox.ok("POST", "/_sandbox/customers", made)["customer"]
    names = ["acme-eu", "acme-us", "crm-1", customer["id"]]

    sandbox.ok("PUT", "/events", {"events": [event(name, customerAlias=name) for name in names]})

    assert sandbox.raised("AnonymousCustomer") == []
    [used] = sandbox.ok("POST", "/events/dry-run", {"events": [event("r", customerAlias="crm-1")]})["events"]
    assert used["matchedCustomer"] == customer["id"]


# --- the dry run ----------------------------------------------------------------------------------

DRY_RUN = "/events/dry-run"
DATA = {"units": 3, "host": "vm-7", "region": "eu"}


def meter(sandbox: Running, method: str, **changes: Any) -> None:
    """A meter of api_call that is named by its method."""
    plain = {"name": method, "eventName": "api_call", "aggregationMethod": method}
    sandbox.ok("POST", "/_sandbox/meters", {**plain, **changes})


def rows(sandbox: Running) -> dict[str, list[Any]]:
    """All that is stored."""
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        return {table.name: list(tx.connection.execute(table.select())) for table in metadata.sorted_tables}


def test_dry_run_an_event_that_matches_a_customer_has_the_customers_id(sandbox: Running) -> None:
    """Source: spec, the dry-run rules, row 1."""
    customer = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme", "aliases": ["acme"]})
    answer = sandbox.ok("POST", DRY_RUN, {"events": [event("r-1", data=DATA)]})

    assert answer == {
        "events": [
            {
                "event": event("r-1", data=DATA),
                "matchedCustomer": customer["customer"]["id"],
                "meterWithValues": [],
            }
        ],
        "invalidEvents": [],
    }


def test_dry_run_has_the_value_of_a_matching_meter(sandbox: Running) -> None:
    """Source: spec, the dry-run rules, rows 3 and 4; meterWithValues."""
    for method in ("sum", "max", "last"):
        meter(sandbox, method, property="units")
    meter(sandbox, "count", filters=[{"property": "region", "operator": "equals", "value": "eu"}])
    meter(sandbox, "unique", property="host")

    answer = sandbox.ok(
        "POST", DRY_RUN, {"events": [event("r-1", data=DATA), event("r-2", name="other", data=DATA)]}
    )

    here, other = (each["meterWithValues"] for each in answer["events"])
    assert [(each["name"], each["value"], each["instanceValue"]) for each in here] == [
        ("sum", 3, None), ("max", 3, None), ("last", 3, None), ("count", 1, None), ("unique", 1, "vm-7"),
    ]  # fmt: skip
    assert all(each["eventName"] == "api_call" for each in here)
    assert [each["aggregationMethod"] for each in here] == ["sum", "max", "last", "count", "unique"]
    assert other == []


def test_dry_run_stores_nothing(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /events/dry-run: stores nothing."""
    batch = {"events": [event("r-1", data=DATA), event("r-2", customerAlias="new", data=DATA)]}
    meter(sandbox, "sum", property="units")
    meter(sandbox, "unique", property="host")
    before = rows(sandbox)

    answer = sandbox.ok("POST", DRY_RUN, batch)
    after_dry_run = rows(sandbox)
    sandbox.ok("PUT", "/events", batch)

    assert [each["matchedCustomer"] for each in answer["events"]] == [None, None]
    assert after_dry_run == before
    changed = {name for name, stored in rows(sandbox).items() if stored != before[name]}
    assert changed >= {"event", "customer", "alias", "raised", "usage_day", "usage_instance"}
