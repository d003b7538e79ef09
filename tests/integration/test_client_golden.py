"""One recorded exchange for each operation: what the client sends is compared, what it reads is too.

The files in tests/golden hold the request line, the headers without the secrets, the body, and an answer of
the specification's shape. To write the requests anew after a change that is meant, run this file with
BILLHOOK_TEST_RECORD=1, and read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from billhook.client import OPERATIONS, BillingClient
from billhook.events import CommitmentUsageCrossed
from billhook.resources import Resource
from support.billing_service import (
    CLIENT_ID,
    REFRESH_TOKEN,
    Moving,
    Service,
    Taken,
    a_server,
    a_token,
    answered,
    service_on,
)

GOLDEN = Path(__file__).parents[1] / "golden"
START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
EVENT = {
    "name": "api_call",
    "timestamp": datetime(2026, 1, 15, 9, 29, tzinfo=UTC),
    "customerAlias": "acme",
    "ref": "call-881",
    "data": {"region": "eu", "units": 3},
}
GRANT = {
    "name": "Starter pack",
    "creditProductId": "crp_2",
    "balanceKind": "Monetary",
    "grantAmount": 500,
    "price": 450,
    "schedule": "Upfront",
}
AGGREGATION = {
    "customerId": "cus_1042",
    "period": {"startTime": START, "endTime": END},
    "meters": [{"key": "calls", "eventName": "api_call"}],
    "groupBy": "day",
    "fillDates": True,
}
MEASUREMENT = {
    "customerId": "cus_1042",
    "meterId": "mtr_5",
    "usageDate": {"year": 2026, "month": 1, "day": 15},
    "value": 812.5,
}
CONTRACT = {
    "startDate": END,
    "customerId": "cus_1042",
    "name": "Acme annual 2026",
    "products": [{"catalogProductId": "prd_55", "pricing": {"type": "Flat", "price": 99}}],
    "externalId": "2026/77",
}
SUBMISSION = {"results": [{"status": "Accepted", "quantitySubmitted": 8125}], "productCode": "API-1"}
CALLBACK = "https://shop.example/webhooks/billing"

Call = Callable[[BillingClient], Any]

CALLS: dict[str, tuple[Call, str | None]] = {
    "auth.login": (lambda c: c.auth.login(), "expiresAt"),
    "events.query": (lambda c: c.events.query(START, END, event_name="api_call", limit=100), "events"),
    "events.submit_v1": (lambda c: c.events.submit_v1([EVENT]), ""),
    "events.submit": (lambda c: c.events.submit([EVENT]), ""),
    "events.dry_run": (lambda c: c.events.dry_run([EVENT]), ""),
    "events.aggregate": (lambda c: c.events.aggregate(AGGREGATION), ""),
    "measurements.create": (lambda c: c.measurements.create(MEASUREMENT), "measurement"),
    "customers.update": (lambda c: c.customers.update("cus_1042", {"dueDays": "30"}), "customer"),
    "customers.get_by_integration": (
        lambda c: c.customers.get_by_integration("Salesforce", "0015g/00000 XyZ"),
        "customer",
    ),
    "customers.products_consumptions": (
        lambda c: c.customers.products_consumptions("cus_1042"),
        "productsConsumptions",
    ),
    "customers.products_consumptions_by_alias": (
        lambda c: c.customers.products_consumptions_by_alias("acme eu"),
        "productsConsumptions",
    ),
    "contracts.create": (lambda c: c.contracts.create(CONTRACT), "contract"),
    "contracts.list": (lambda c: c.contracts.list(customer_external_id="crm-7731"), "contracts"),
    "contracts.delete": (lambda c: c.contracts.delete("2026/77"), "contract"),
    "plans.get": (lambda c: c.plans.get("plan_3"), "plan"),
    "catalog_products.create": (
        lambda c: c.catalog_products.create({"name": "API calls", "externalId": "sku-100"}),
        "catalogProduct",
    ),
    "catalog_products.list": (lambda c: c.catalog_products.list(limit=50), "catalogProducts"),
    "catalog_products.get": (lambda c: c.catalog_products.get("prd_55"), "catalogProduct"),
    "catalog_products.update": (
        lambda c: c.catalog_products.update("prd_55", {"disableDescription": True}),
        "catalogProduct",
    ),
    "invoices.list": (
        lambda c: c.invoices.list(customer_id="cus_1042", billing_status="Overdue", issued_after=START),
        "invoices",
    ),
    "invoices.get": (lambda c: c.invoices.get("inv_3007"), "invoice"),
    "credits.list": (lambda c: c.credits.list("cus_1042"), "entries"),
    "credits.deduct": (lambda c: c.credits.deduct("cus_1042", 25), ""),
    "credits.top_up": (lambda c: c.credits.top_up("cus_1042", GRANT), ""),
    "custom_fields.list": (lambda c: c.custom_fields.list(), "customFields"),
    "custom_fields.get": (lambda c: c.custom_fields.get("cfd_4"), "customField"),
    "cloud_usage.submit": (lambda c: c.cloud_usage.submit(SUBMISSION), None),
    "webhooks.subscribe": (
        lambda c: c.webhooks.subscribe(CALLBACK, CommitmentUsageCrossed, threshold=80),
        "",
    ),
}
"""Each operation: a call, and the field of the answer that it returns ("" for all of it, None for none)."""


@pytest.fixture(scope="module")
def http() -> Iterator[Any]:
    with a_server() as running:
        yield running


@pytest.fixture
def service(http) -> Service:
    return service_on(http, Moving().clock)


@pytest.fixture
def client(service) -> Iterator[BillingClient]:
    with BillingClient(service.url, CLIENT_ID, REFRESH_TOKEN, clock=service.clock) as made:
        yield made


def read(name: str) -> dict[str, Any]:
    exchange: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return exchange


def without_secrets(taken: Taken, service: Service) -> dict[str, Any]:
    """A request as a golden file has it: what is secret is named; the server's address is left out."""
    text = json.dumps({
        "line": f"{taken.line} HTTP/1.1",
        "headers": {name: value for name, value in sorted(taken.headers.items()) if name != "Host"},
        "body": taken.json,
    })  # fmt: skip
    for token in service.tokens:
        text = text.replace(token, "<access token>")
    request: dict[str, Any] = json.loads(
        text.replace(CLIENT_ID, "<client id>").replace(REFRESH_TOKEN, "<refresh token>")
    )
    return request


def plain(result: Any) -> Any:
    """What a call returned, as the answer's JSON has it."""
    if isinstance(result, Resource):
        return json.loads(result.to_json())
    if isinstance(result, datetime):
        return result.strftime("%Y-%m-%dT%H:%M:%SZ")
    return result if isinstance(result, dict) else [plain(each) for each in result]


def replay(name: str, service: Service, client: BillingClient) -> tuple[Taken, Any, Any]:
    """The request that was sent, what the call returned, and what it should return of the golden answer."""
    call, field = CALLS[name]
    response = read(name)["response"]
    body = response["body"]
    if name == "auth.login":
        token = a_token(None)
        service.answer("POST /login", answered(response["status"], {**body, "accessToken": token}))
    service.instead = answered(response["status"], body)
    result = call(client)
    returned = None if field is None else plain(result)  # a list is fetched only here
    return service.taken[-1], returned, body[field] if field else None if field is None else body


def test_each_operation_sends_and_reads_what_was_recorded(service, client):
    requests, returned, answers = {}, {}, {}
    for name in OPERATIONS:
        taken, returned[name], answers[name] = replay(name, service, client)
        requests[name] = without_secrets(taken, service)
        if os.environ.get("BILLHOOK_TEST_RECORD"):
            written = {"operation": name, "request": requests[name], "response": read(name)["response"]}
            (GOLDEN / f"{name}.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")

    assert requests == {name: read(name)["request"] for name in OPERATIONS}
    assert returned == answers


def test_there_is_one_file_for_each_operation_and_no_secret_in_any():
    files = {path.stem: path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.json")}

    assert set(files) == set(OPERATIONS) == set(CALLS)
    assert [name for name, text in files.items() if CLIENT_ID in text or REFRESH_TOKEN in text] == []


def test_a_recorded_request_is_one_of_its_operation():
    """Source: spec, "Authentication", rule 1."""
    for name, operation in OPERATIONS.items():
        request = read(name)["request"]
        method, target, _ = request["line"].split(" ")
        parts = zip(target.partition("?")[0].split("/"), operation.path.split("/"), strict=True)

        assert method == operation.method, name
        assert all(part == shape or shape.startswith("{") for part, shape in parts), name
        assert request["headers"]["X-Api-Key"] == "<client id>", name
        bearer = None if name == "auth.login" else "Bearer <access token>"
        assert request["headers"].get("Authorization") == bearer, name
        assert (request["body"] is None) == ("Content-Type" not in request["headers"]), name


def test_control_a_different_request_is_noticed(service, client):
    service.instead = answered(200, read("plans.get")["response"]["body"])
    client.plans.get("plan_4")

    assert without_secrets(service.taken[-1], service) != read("plans.get")["request"]
