"""Anonymous customers, and whoever claims their name. Source: spec, "States and transitions"."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import TAKEN, Running
from support.scenarios import Customer

METHODS = ("count", "sum", "max", "last", "unique")


def meters(sandbox: Running) -> None:
    for method in METHODS:
        given = {"name": method, "key": method, "eventName": "call", "aggregationMethod": method}
        sandbox.ok("POST", "/_sandbox/meters", {**given, "property": "units"})


def figures(sandbox: Running, customer_id: str) -> Any:
    keys = [{"key": method, "eventName": "call"} for method in METHODS]
    period = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-02-01T00:00:00Z"}
    asked = {"customerId": customer_id, "period": period, "meters": keys, "groupBy": "month"}
    found = sandbox.ok("POST", "/v2/events/aggregation", asked)["dataPoints"]
    return found[0]["values"] if found else None


def named(sandbox: Running, alias: str) -> str:
    """The id of the customer whose usage comes under this name."""
    event = {"name": "x", "timestamp": "2026-01-09T00:00:00Z", "customerAlias": alias, "ref": "r", "data": {}}
    return sandbox.ok("POST", "/events/dry-run", {"events": [event]})["events"][0]["matchedCustomer"]


@pytest.mark.parametrize("field", ["aliases", "externalId"])
def test_a_new_customer_may_have_a_name_that_usage_came_under_before(sandbox: Running, field: str) -> None:
    meters(sandbox)
    Customer(sandbox, "", "late").use(3, 5, 5)
    body = {"name": "Late Ltd", field: ["late"] if field == "aliases" else "late"}
    made = sandbox.ok("POST", "/_sandbox/customers", body)["customer"]["id"]
    listed = sandbox.ok("GET", "/_sandbox/customers")["customers"]

    assert [each["id"] for each in listed] == [made]
    assert named(sandbox, "late") == made
    assert figures(sandbox, made) == {"count": 3, "sum": 13, "max": 5, "last": 5, "unique": 2}
    kinds = [kind for kind, _ in sandbox.raised()]
    assert kinds.count("AnonymousCustomer") == kinds.count("CustomerCreated") == 1


def test_an_existing_customer_takes_over_events_of_a_claimed_alias(sandbox: Running) -> None:
    meters(sandbox)
    late, acme = Customer(sandbox, "", "late"), Customer.of(sandbox)
    late.use(3, 9)
    acme.use(4)
    sandbox.ok("PUT", f"/customers/{acme.id}", {"aliases": ["acme", "late"]})
    late.use(2, at="2026-01-10T10:00:00Z")

    assert figures(sandbox, acme.id) == {"count": 4, "sum": 18, "max": 9, "last": 2, "unique": 4}
    assert sandbox.ok("GET", "/_sandbox/customers")["total"] == 1


def test_control_an_alias_of_a_real_customer_cannot_be_claimed(sandbox: Running) -> None:
    """Control: of a real customer, and of an anonymous one that has credits, nobody takes the name."""
    acme = Customer.of(sandbox)
    Customer(sandbox, "", "late").use(3)
    late = named(sandbox, "late")
    listed = [each["id"] for each in sandbox.ok("GET", "/_sandbox/customers")["customers"]]
    sandbox.ok("POST", "/_sandbox/credits/grant", {"customerId": late, "creditAmount": 5})
    of_a_real_one = sandbox.call("POST", "/_sandbox/customers", {"name": "B", "aliases": ["acme"]})
    of_one_with_credits = sandbox.call("POST", "/_sandbox/customers", {"name": "B", "aliases": ["late"]})

    assert of_a_real_one.error() == of_one_with_credits.error() == TAKEN
    assert named(sandbox, "late") == late
    assert listed == [acme.id, late]
