"""The form of refusals. Source: spec, "Errors"."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import API_TOKEN, Answer, Running

NOT_FOUND = (404, "invalid_request_error", "resource_not_found")
INVALID = (400, "invalid_request_error", "invalid_request")
MEASUREMENT = {
    "customerId": "cus_1", "meterId": "mtr_1", "value": 1, "usageDate": {"year": 2026, "month": 1, "day": 1}
}  # fmt: skip
AGGREGATION = {
    "customerId": "cus_1",
    "period": {"startTime": "2026-01-01", "endTime": "2026-02-01"},
    "meters": [{"key": "k", "eventName": "e"}],
    "groupBy": "day",
}
CONTRACT = {"customerId": "cus_1", "name": "Deal", "startDate": "2026-01-01"}
READ_BY_ID = ("/customers/integration/Salesforce/{}", "/plans/{}", "/catalogProducts/{}", "/customFields/{}")


def is_an_error_of_the_specification(answer: Answer) -> bool:
    """Has the body the five fields of the table, no other, and param or params with invalid requests only?"""
    body = answer.json
    fields = set(body)
    wrong = fields & {"param", "params"}
    return (
        answer.headers["Content-Type"] == "application/json"
        and {"type", "code", "message"} <= fields <= {"type", "code", "message", "param", "params"}
        and all(isinstance(body[name], str) and body[name] for name in ("type", "code", "message"))
        and (not wrong or (len(wrong) == 1 and body["type"] == "invalid_request_error"))
        and isinstance(body.get("param", ""), str)
        and all(set(each) == {"param", "message"} for each in body.get("params", []))
    )


def refusals(sandbox: Running) -> dict[str, Answer]:
    """One refusal of each kind, by what is wrong."""
    sandbox.ok("POST", "/catalogProducts", {"name": "API calls", "externalId": "sku"})
    good = {"Authorization": f"Bearer {sandbox.token}"}
    return {
        "no client": sandbox.send("GET", "/catalogProducts", None, {"x-api-key": ""}),
        "no bearer": sandbox.send("GET", "/catalogProducts", None, {}),
        "wrong API token": sandbox.send("POST", "/login", {"refreshToken": "wrong"}, {}),
        "no field": sandbox.send("POST", "/login", {}, {}),
        "one field": sandbox.call("POST", "/catalogProducts", {"name": 1}),
        "two fields": sandbox.call("POST", "/catalogProducts", {"name": 1, "productCode": 2}),
        "a rule": sandbox.call("POST", "/catalogProducts", {"name": ""}),
        "taken": sandbox.call("POST", "/catalogProducts", {"name": "B", "externalId": "sku"}),
        "no such id": sandbox.call("GET", "/catalogProducts/cat_none"),
        "no such path": sandbox.call("GET", "/nowhere"),
        "no such method": sandbox.call("PATCH", "/catalogProducts", {}),
        "no JSON": sandbox.call("POST", "/catalogProducts", b"{"),
        "no object": sandbox.call("POST", "/catalogProducts", [1]),
        "no body": sandbox.call("POST", "/catalogProducts", None),
        "not UTF-8": sandbox.call("POST", "/catalogProducts", b'{"name":"\xff"}'),
        "a key twice": sandbox.call("POST", "/catalogProducts", b'{"name":"a","name":"b"}'),
        "too deep": sandbox.call("POST", "/catalogProducts", b'{"name":' + b"[" * 5000),
        "other type": sandbox.send(
            "POST",
            "/catalogProducts",
            b"name=a",
            {**good, "Content-Type": "application/x-www-form-urlencoded"},
        ),
        "limit": sandbox.call("GET", "/catalogProducts?limit=0"),
    }


def test_every_refusal_has_the_form_status_type_and_code_of_the_specification(sandbox: Running) -> None:
    """Source: spec, "Errors", the tables of fields and of codes; the statuses are the usual ones."""
    answers = refusals(sandbox)
    control = sandbox.call("GET", "/catalogProducts")

    assert [what for what, one in answers.items() if not is_an_error_of_the_specification(one)] == []
    assert not is_an_error_of_the_specification(control)
    found = {what: answer.error() for what, answer in answers.items()}
    unauthorised = (401, "authentication_error", "authentication_failed")
    not_json = (400, "invalid_request_error", "not_json")
    assert found == {
        "no client": unauthorised,
        "no bearer": unauthorised,
        "wrong API token": unauthorised,
        "no field": INVALID,
        "one field": INVALID,
        "two fields": INVALID,
        "a rule": INVALID,
        "taken": (400, "invalid_request_error", "already_exists"),
        "no such id": NOT_FOUND,
        "no such path": NOT_FOUND,
        "no such method": (405, "invalid_request_error", "invalid_request"),
        "no JSON": INVALID,
        "no object": INVALID,
        "no body": not_json,
        "not UTF-8": INVALID,
        "a key twice": INVALID,
        "too deep": INVALID,
        "other type": not_json,
        "limit": INVALID,
    }


def test_an_unexpected_exception_is_an_internal_error_without_details(
    sandbox: Running,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Source: spec, "Errors", internal_error."""
    with sandbox.sandbox.service.transaction(writes=True) as tx:
        tx.connection.exec_driver_sql("DROP TABLE catalog_product")
    answer = sandbox.call("GET", "/catalogProducts/an-id-of-a-user")

    assert answer.error() == (500, "api_error", "internal_error")
    assert is_an_error_of_the_specification(answer)
    assert b"catalog_product" not in answer.body
    assert "no such table" in caplog.text
    assert "an-id-of-a-user" not in caplog.text
    assert API_TOKEN not in caplog.text


def test_impossible_ids_are_404_without_an_internal_error(sandbox: Running) -> None:
    """Source: spec, "Errors", resource_not_found."""
    hostile = ("none", "a/b", "%FF", "%F0%9F%90%99", "'", "%25", "..%2f", "x" * 5000, "%20")
    answers = {
        path.format(name): sandbox.call("GET", path.format(name)).error()
        for path in READ_BY_ID
        for name in hostile
    }
    nul = [sandbox.call("GET", path.format("%00")) for path in READ_BY_ID]

    assert answers == dict.fromkeys(answers, NOT_FOUND)
    assert {(answer.error(), answer.json["message"]) for answer in nul} == {
        (INVALID, "the address holds a NUL character: no id has one")
    }


NUL_BODIES: list[tuple[str, str, Any, str | None]] = [
    ("POST", "/login", {"refreshToken": "\0"}, "refreshToken"),
    ("POST", "/measurements", {**MEASUREMENT, "customerId": "a\0"}, "customerId"),
    ("POST", "/measurements", {**MEASUREMENT, "meterId": "a\0"}, "meterId"),
    ("POST", "/v2/events/aggregation", {**AGGREGATION, "customerId": "a\0"}, "customerId"),
    ("POST", "/v2/events/aggregation", {**AGGREGATION, "customerIdPattern": "a\0"}, "customerIdPattern"),
    (
        "POST",
        "/v2/events/aggregation",
        {**AGGREGATION, "meters": [{"key": "k", "eventName": "\0"}]},
        "meters.0",
    ),
    ("POST", "/contracts", {**CONTRACT, "customerId": "a\0"}, "customerId"),
    ("POST", "/contracts", {**CONTRACT, "planId": "a\0"}, "planId"),
    ("POST", "/contracts", {**CONTRACT, "products": [{}, {"catalogProductId": "a\0"}]}, "products.1"),
    ("POST", "/contracts", {**CONTRACT, "products": [{"consumesCreditProductIds": ["\0"]}]}, "products.0"),
    ("POST", "/contracts", {**CONTRACT, "creditGrants": [{"name": "\0", "price": 1}]}, "creditGrants.0"),
    ("POST", "/contracts", {**CONTRACT, "ours": {"deep": [{"\0": 1}]}}, None),
    ("POST", "/contracts", {**CONTRACT, "\0": 1}, None),
    ("POST", "/catalogProducts", {"name": "\0"}, "name"),
    ("POST", "/credits/deduct", {"customerId": "\0", "creditAmount": 1}, "customerId"),
    ("POST", "/_sandbox/credits/grant", {"customerId": "\0", "creditAmount": 1}, "customerId"),
    ("POST", "/_sandbox/plans", {"name": "x", "products": [{"catalogProductId": "\0"}]}, "products.0"),
    ("POST", "/_sandbox/trigger/InvoiceApproved", {"invoiceId": "\0"}, None),
]


def test_a_nul_anywhere_in_a_body_is_refused_and_never_reaches_the_database(sandbox: Running) -> None:
    """PostgreSQL keeps no NUL in its texts; so that both databases take the same, SQLite gets none either."""
    answers = [sandbox.call(method, path, body) for method, path, body, _ in NUL_BODIES]
    escaped = sandbox.call("POST", "/catalogProducts", {"name": r"a \u0000 that is none"})
    raised = sandbox.raised()

    assert [answer.error() for answer in answers] == [INVALID] * len(NUL_BODIES)
    assert [answer.json.get("param") for answer in answers] == [param for *_, param in NUL_BODIES]
    assert {answer.json["message"] for answer in answers} == {
        "a text in the body holds a NUL character: it cannot be stored"
    }
    assert all(is_an_error_of_the_specification(answer) for answer in answers)
    assert escaped.json["catalogProduct"]["name"] == r"a \u0000 that is none"
    assert raised == []


def test_invalid_query_parameters_are_named(sandbox: Running) -> None:
    """Source: spec, "Errors", param and params."""
    missing = sandbox.call("GET", "/credits")
    wrong = sandbox.call("GET", "/invoices?issuedAfter=x&issuedBefore=y")

    assert missing.json["message"] == (
        "the parameters of the URL are not valid, because of customerId: Field required"
    )
    assert missing.json["param"] == "customerId"
    assert [each["param"] for each in wrong.json["params"]] == ["issuedAfter", "issuedBefore"]


def test_one_invalid_field_is_in_the_message_and_several_in_params(sandbox: Running) -> None:
    """Source: spec, "Errors", message, param and params."""
    none = sandbox.send("POST", "/login", {}, {})
    one = sandbox.send("POST", "/login", {"refreshToken": API_TOKEN.split("-")}, {})
    two = sandbox.call("POST", "/catalogProducts", {"name": 1, "productCode": 2})

    assert none.json["message"] == (
        "the body is not a valid LoginRequest, because of refreshToken: Field required"
    )
    assert one.json["message"] == (
        "the body is not a valid LoginRequest, because of refreshToken: Input should be a valid string"
    )
    assert (none.json["param"], one.json["param"]) == ("refreshToken", "refreshToken")
    text = "Input should be a valid string"
    assert two.json["params"] == [
        {"param": "name", "message": text},
        {"param": "productCode", "message": text},
    ]
    assert two.json["message"].endswith("because of name, productCode")


def test_a_refused_value_is_not_repeated_in_the_response(sandbox: Running) -> None:
    """Texts of users are not for the logs of others."""
    secret = "a-secret-of-the-users"
    bodies: list[Any] = [
        {"name": [secret]},
        {"name": {secret: 1}},
        {"name": "A", "externalId": secret * 20},
        {"name": "A", "externalId": {secret: secret}},
        f'{{"name": "{secret}'.encode(),
    ]
    answers = [sandbox.call("POST", "/catalogProducts", body) for body in bodies]
    answers += [
        sandbox.call("GET", f"/catalogProducts/{secret}"),
        sandbox.call("GET", f"/catalogProducts?cursor={secret}"),
        sandbox.call("GET", f"/catalogProducts?limit={secret}"),
    ]

    assert {answer.status for answer in answers} == {400, 404}
    assert [answer.body for answer in answers if secret.encode() in answer.body] == []
