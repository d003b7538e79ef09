"""What is sent of a resource is stored and read. Source: spec, "Resources and their fields"."""

from __future__ import annotations

import json
from typing import Any

import pytest

from billhook.resources import sample
from billhook.sandbox.sandbox import GROUPS
from support.sandbox import TAKEN, Answer, Running, check_refused
from support.scenarios import STARTED, customer, fee

TAKES = {operation.key: operation.takes for group in GROUPS for operation in group.operations}
CONTRACT = {
    "products": [fee(10, description="Every month", paymentTerm="Net30")],
    "productGroups": [{"displayName": "Support", "products": [fee(5)], "baseAmount": 3}],
    "creditGrants": [{"name": "Start", "creditProductId": "crp_1", "grantAmount": 5}],
    "status": "InReview",
    "notInTheSpecification": {"kept": True},
}
AMOUNTS = {f"{name}Amount" for name in ("totalOutstanding", "open", "overdue", "pendingPayment", "paid")}
SOLD = [{"pricing": {"type": "PerUnit", "price": 0.0125}}]


@pytest.mark.parametrize(
    ("path", "noun", "changes", "returned"),
    [
        ("/catalogProducts", "catalogProduct", {}, set()),
        ("/_sandbox/customers", "customer", {"status": "Suspended"}, {"customFieldValues", *AMOUNTS}),
        ("/contracts", "contract", CONTRACT, {"customFieldValues"}),
        ("/_sandbox/plans", "plan", {"status": "Active", "products": SOLD}, set()),
        ("/_sandbox/meters", "meter", {"catalogProductId": None, "team": "billing"}, set()),
    ],
)
def test_every_field_is_stored_and_returned(
    sandbox: Running, path: str, noun: str, changes: dict[str, Any], returned: set[str]
) -> None:
    takes = TAKES[f"POST {path}"]
    assert takes is not None
    body = {**json.loads(sample(takes).to_request()), **changes}
    body |= {"customerId": customer(sandbox)} if noun == "contract" else {}
    made = sandbox.ok("POST", path, body)[noun]
    wanted = {name: value for name, value in body.items() if name != "customFields" and value is not None}

    assert {name: made[name] for name in wanted} == wanted
    assert set(made) - set(wanted) == {"id", "createdAt", "updatedAt", *returned}
    assert made["createdAt"] == made["updatedAt"] == STARTED
    if noun == "meter":
        assert sandbox.ok("GET", path)["meters"] == [made]
    else:
        read = sandbox.ok("GET", f"{path.replace('_sandbox/plans', 'plans')}/{made['id']}")[noun]
        assert read == {name: value for name, value in made.items() if noun != "plan" or name != "products"}


def test_an_external_id_of_a_product_is_unique_until_it_is_removed(sandbox: Running) -> None:
    """A choice of ours."""
    first, second = (
        sandbox.ok("POST", "/catalogProducts", {"name": "API calls", **more})["catalogProduct"]["id"]
        for more in ({"externalId": "sku-1"}, {})
    )
    created = sandbox.call("POST", "/catalogProducts", {"name": "Other", "externalId": "sku-1"})
    updated = sandbox.call("PUT", f"/catalogProducts/{second}", {"externalId": "sku-1"})
    sandbox.ok("PUT", f"/catalogProducts/{first}", {"externalId": "sku-1"})
    sandbox.ok("PUT", f"/catalogProducts/{first}", {"externalId": None})
    sandbox.ok("PUT", f"/catalogProducts/{second}", {"externalId": "sku-1"})

    check_refused([created, updated], ["externalId"] * 2, TAKEN)


def test_meters_of_an_event_have_unique_keys(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /v2/events/aggregation, meters of key and eventName."""

    def made(**changes: Any) -> Answer:
        meter = {"name": "API calls", "eventName": "api_call", "aggregationMethod": "count"}
        return sandbox.call("POST", "/_sandbox/meters", {**meter, **changes})

    elsewhere = {"eventName": "other", "key": "api_call"}
    keys = [made(**each).json["meter"]["key"] for each in ({}, {}, {}, elsewhere)]

    assert keys == ["api_call", "api_call-2", "api_call-3", "api_call"]
    check_refused([made(key="api_call-2")], ["key"], TAKEN)
