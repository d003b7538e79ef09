"""Meters. Source: spec, "Endpoints", Meters (their endpoints are not shown: these are the sandbox's own)."""

from __future__ import annotations

from typing import Any

from support.sandbox import INVALID, TAKEN, Running, check_refused


def meter(**changes: Any) -> dict[str, Any]:
    """What is asked for to make a meter that counts."""
    return {"name": "API calls", "eventName": "api_call", "aggregationMethod": "count", **changes}


def made(sandbox: Running, **changes: Any) -> dict[str, Any]:
    """A new meter."""
    found: dict[str, Any] = sandbox.ok("POST", "/_sandbox/meters", meter(**changes))["meter"]
    return found


def test_meters_one_that_was_made_is_listed(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Meters."""
    stored = made(sandbox, aggregationMethod="sum", property="units", team="billing")

    listed = sandbox.ok("GET", "/_sandbox/meters")

    assert stored["id"].startswith("mtr_")
    assert (stored["key"], stored["filters"], stored["team"]) == ("api_call", [], "billing")
    assert listed == {"meters": [stored], "total": 1, "hasMore": False, "nextCursor": None}


def test_meters_of_an_event_have_unique_keys(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /v2/events/aggregation, meters of key and eventName."""
    keys = [made(sandbox)["key"] for _ in range(3)]
    elsewhere = made(sandbox, eventName="other", key="api_call")["key"]

    taken = sandbox.call("POST", "/_sandbox/meters", meter(key="api_call-2"))

    assert keys == ["api_call", "api_call-2", "api_call-3"]
    assert elsewhere == "api_call"
    check_refused([taken], ["key"], TAKEN)


def test_meters_a_product_has_one_meter(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Measurement, meterId: a meter or a product."""
    product = sandbox.ok("POST", "/catalogProducts", {"name": "Calls"})["catalogProduct"]["id"]
    first = made(sandbox, catalogProductId=product)

    second = sandbox.call("POST", "/_sandbox/meters", meter(catalogProductId=product))
    unknown = sandbox.call("POST", "/_sandbox/meters", meter(catalogProductId="cat_none"))

    assert first["catalogProductId"] == product
    assert second.error() == TAKEN
    assert unknown.error() == INVALID
    assert {second.json["param"], unknown.json["param"]} == {"catalogProductId"}


WRONG = [
    ({"aggregationMethod": "median"}, "aggregationMethod"),
    ({"aggregationMethod": "sum"}, "property"),
    ({"aggregationMethod": "unique", "property": 'a"b'}, "property"),
    ({"eventName": ""}, "eventName"),
    ({"eventName": "e" * 256}, "eventName"),
    ({"filters": [{"property": "a\\b", "operator": "exists"}]}, "filters.0.property"),
    ({"filters": [{"property": "a", "operator": "like", "value": "b"}]}, "filters.0.operator"),
    ({"filters": [{"property": "a", "operator": "equals"}]}, "filters.0.value"),
    ({"filters": [{"property": "a", "operator": "in", "value": "b"}]}, "filters.0.value"),
    ({"filters": [{"property": "a", "operator": "greaterThan", "value": "1"}]}, "filters.0.value"),
    ({"filters": [{"property": "a", "operator": "lessThan", "value": True}]}, "filters.0.value"),
    ({"filters": [{"property": "a", "operator": "exists", "value": 1}]}, "filters.0.value"),
    (
        {"filters": [*[{"property": "a", "operator": "exists"}] * 2, {"property": "a", "operator": "in"}]},
        "filters.2.value",
    ),
    ({"filters": [{"property": "a", "operator": "exists"}] * 101}, "filters"),
    ({"filters": [{"property": "a", "operator": "in", "value": list(range(101))}]}, "filters.0.value"),
]


def test_meters_what_makes_no_sense_is_refused_by_its_name(sandbox: Running) -> None:
    """Source: spec, "Errors", param."""
    answers = [sandbox.call("POST", "/_sandbox/meters", meter(**changes)) for changes, _ in WRONG]

    assert [answer.json.get("param") for answer in answers] == [param for _, param in WRONG]
    assert {answer.status for answer in answers} == {400}
    assert sandbox.ok("GET", "/_sandbox/meters")["total"] == 0
