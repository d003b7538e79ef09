"""Each refusal of the sandbox is in its OpenAPI document, or in refusals.toml with why it cannot be."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from openapi_schema_validator import OAS31Validator

from support.refusals import refusals, refusals_in
from support.sandbox import Answer, Running, running
from support.scenarios import approve, contract, customer, fee, invoices

TABLE = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))
REASONS = TABLE.pop("reasons")
SHOWN = [
    (module, text, line)
    for module, texts in TABLE.items()
    for text, how in texts.items()
    for line in ([] if isinstance(how, str) else how)
]

BATCH = {"events": [{"name": "call", "timestamp": "2026-01-10", "customerAlias": "acme", "ref": "r"}]}
GRANT = {"creditProductId": "c", "grantAmount": 1, "balanceKind": "Monetary"}
PERIOD = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-02-01T00:00:00Z"}
GOOD: dict[str, dict[str, Any]] = {
    "POST /webhook": {"callbackUrl": "http://127.0.0.1:9/", "eventType": "PingTest"},
    "PUT /events": BATCH,
    "POST /v2/events": BATCH,
    "POST /events/dry-run": BATCH,
    "GET /events": {**PERIOD, "limit": 1000},
    "POST /v2/events/aggregation": {
        "customerId": "$customer",
        "period": PERIOD,
        "meters": [{"key": "k", "eventName": "e"}],
        "groupBy": "data.region",
    },
    "POST /measurements": {
        "customerId": "$customer",
        "meterId": "$meter",
        "usageDate": {"year": 2026, "month": 1, "day": 10},
        "value": 0,
    },
    "POST /cloudUsageSubmission": {"results": [{"idempotencyKey": "k"}], "productCode": "p"},
    "PUT /customers/{customerId}": {"name": "Acme", "dueDays": "30", "aliases": None, "externalId": None},
    "POST /_sandbox/customers": {"name": "Other", "externalIntegration": [{"type": "CRM", "id": "a/b"}]},
    "POST /contracts": {
        "customerId": "$customer",
        "name": "Deal",
        "startDate": "2026-01-10T12:00:00Z",
        "creditGrants": [GRANT],
        "products": [
            {
                "pricing": {"type": "Flat", "price": -1},
                "scheduling": {"duration": {"unit": "Years", "value": 99}},
            },
            {"pricing": {"type": "Tiered", "tiers": [{"upTo": 5, "price": 2}, {"upTo": None, "price": 1}]}},
        ],
    },
    "GET /contracts": {"limit": 1},
    "POST /_sandbox/plans": {
        "name": "Growth",
        "billingData": {"duration": 12, "billingDate": {"dayOfMonth": 31}},
    },
    "POST /catalogProducts": {"name": "API calls", "externalId": None},
    "PUT /catalogProducts/{catalogProductId}": {"externalId": None},
    "GET /invoices": {"billingStatus": "None", "limit": 1000},
    "POST /_sandbox/invoices/{invoiceId}/payments": {
        "outcome": "failed",
        "failureReason": "declined",
        "amount": 0.01,
    },
    "GET /credits": {"customerId": "$customer"},
    "POST /credits/deduct": {"customerId": "$customer", "creditAmount": 1},
    "POST /credits/top-up": {
        "customerId": "$customer",
        "creditGrant": {"name": "n", "schedule": "Once", "price": 0, **GRANT},
    },
    "POST /_sandbox/credits/grant": {"customerId": "$customer", "creditAmount": 1, "balanceKind": None},
    "POST /_sandbox/creditProducts": {"name": "Credits", "balanceKind": "Unit"},
    "POST /_sandbox/meters": {
        "name": "Calls",
        "eventName": "call-2",
        "aggregationMethod": "count",
        "filters": [
            {"property": "a b", "operator": "exists"},
            {"property": "p", "operator": "in", "value": [1, "1", True]},
            {"property": "p", "operator": "lessThan", "value": 1.5},
        ],
    },
    "GET /_sandbox/customers": {},
    "PUT /_sandbox/exchangeRates": {"rates": {"USD": 1, "EUR": 1.1}},
    "GET /_sandbox/deliveries": {"state": "failed"},
    "GET /_sandbox/raised": {"eventType": "PingTest"},
    "POST /_sandbox/flush": {"timeoutSeconds": 0},
    "POST /_sandbox/clock": {"advance": "PT1S"},
    "POST /_sandbox/faults": {"fault": "delay", "seconds": 1, "probability": 1, "eventType": None},
    "DELETE /_sandbox/faults": {"fault": "delay"},
}  # fmt: skip
"""A request of each operation that is accepted."""
LONG = {
    "$long": "k" * 256,
    "$url": "http://a.example/" + "a" * 2048,
    "$many": [str(number) for number in range(101)],
    "$filters": [{"property": "p", "operator": "exists"}] * 101,
    "$products": [{}] * 1001,
}


@pytest.fixture(scope="module")
def standing() -> Iterator[Running]:
    """A sandbox with one customer, product, meter and approved invoice."""
    with running(rate_limit="100000/second", retry_seconds=(1,)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def ids(standing: Running) -> dict[str, str]:
    owner = customer(standing)
    contract(standing, owner, startDate="2025-12-10T00:00:00Z", products=[fee(100)])
    (invoice,) = invoices(standing)
    approve(standing, invoice)
    meter = {"name": "Calls", "eventName": "call", "aggregationMethod": "count"}
    product = standing.ok("POST", "/catalogProducts", {"name": "API"})["catalogProduct"]["id"]
    standing.ok("POST", "/_sandbox/credits/grant", {"customerId": owner, "creditAmount": 10})
    return {
        "customerId": owner, "invoiceId": invoice["id"], "catalogProductId": product, "$customer": owner,
        "$meter": standing.ok("POST", "/_sandbox/meters", meter)["meter"]["id"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def document(standing: Running) -> Any:
    return standing.send("GET", "/openapi/openapi.json", None, {}).json


def changed(good: Any, changes: dict[str, Any]) -> Any:
    """`good` with values at paths such as `creditGrant.name` replaced, or taken out."""
    body = copy.deepcopy(good)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place = body
        for name in parents:
            place = place[name]
        if value == "$absent":
            place.pop(last, None)
        else:
            place[last] = filled(value, LONG)
    return body


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A value with its words such as `$long` replaced."""
    if isinstance(value, dict):
        return {name: filled(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, values) for each in value]
    return values.get(value, value) if isinstance(value, str) else value


def said(document: Any, operation: str, request: Any) -> list[str]:
    """What the document has against a request."""
    method, path = operation.split(" ")
    described = document["paths"][path][method.lower()]
    if "requestBody" in described:
        parts = [(described["requestBody"]["content"]["application/json"]["schema"], request)]
    else:
        parameters = {each["name"]: each["schema"] for each in described["parameters"]}
        parts = [(parameters[name], value) for name, value in request.items()]
    return [
        error.message
        for schema, value in parts
        for error in OAS31Validator({**schema, "components": document["components"]}).iter_errors(value)
    ]


def sent(sandbox: Running, operation: str, request: Any, ids: dict[str, str]) -> Answer:
    method, path = operation.split(" ")
    path = re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], path)
    if method in ("GET", "DELETE"):
        return sandbox.call(method, f"{path}?{urlencode(request)}")
    return sandbox.call(method, path, request)


def test_every_refusal_is_in_the_document_or_has_a_reason_and_no_other_is_listed() -> None:
    assert {module: set(texts) for module, texts in TABLE.items()} == refusals()
    reasons = {how for texts in TABLE.values() for how in texts.values() if isinstance(how, str)}
    assert reasons == set(REASONS)


def test_control_a_new_refusal_is_found() -> None:
    source = """
def check(request):
    if request.number < 0:
        text = f"number is {request.number}: it must not be negative"
        raise invalid_request(text, "number")
    check_choice(request.kind, KINDS, f"{where}.kind")
    check_key(request.alias, "alias")
"""

    assert set(refusals_in(source)) == {
        "number is {}: it must not be negative",
        "must be one of: {}.kind",
        "is no key: alias",
    }


@pytest.mark.parametrize("operation", GOOD)
def test_control_a_good_request_fits_the_document_and_is_accepted(
    operation: str, standing: Running, document: Any, ids: dict[str, str]
) -> None:
    request = filled(GOOD[operation], ids)

    assert said(document, operation, request) == []
    answer = sent(standing, operation, request, ids)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(("module", "text", "line"), SHOWN, ids=[line for *_, line in SHOWN])
def test_what_the_sandbox_refuses_does_not_fit_the_document(
    module: str, text: str, line: str, standing: Running, document: Any, ids: dict[str, str]
) -> None:
    operation, changes = re.fullmatch(r"(\S+ \S+) (.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    request = changed(filled(GOOD[operation], ids), json.loads(changes, strict=False))

    answer = sent(standing, operation, request, ids)

    assert said(document, operation, request), "the document has nothing against it"
    assert answer.status == 400, answer.body
    messages = [answer.json["message"], *(each["message"] for each in answer.json.get("params", ()))]
    wanted = wording(text)
    assert any(re.search(wanted, message) for message in messages), messages


def wording(text: str) -> str:
    """A pattern for the message of a refusal."""
    if text.startswith("must be one of: "):
        return r"must be one of"
    if text.startswith("is no key: "):
        return r"(is empty|has more than 255 characters): choose another"
    return re.escape(text).replace(r"\{\}", ".*")
