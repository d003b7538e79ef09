"""The form of refusals. Source: spec, "Errors"."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import API_TOKEN, INVALID, NOT_FOUND, NOT_JSON, TAKEN, Answer, Running

UNAUTHORISED = (401, "authentication_error", "authentication_failed")
NO_METHOD = (405, "invalid_request_error", "invalid_request")
AGGREGATION = {
    "customerId": "cus_1",
    "period": {"startTime": "2026-01-01", "endTime": "2026-02-01"},
    "meters": [{"key": "k", "eventName": "e"}],
    "groupBy": "day",
}
CONTRACT = {"customerId": "cus_1", "name": "Deal", "startDate": "2026-01-01"}


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


def test_every_refusal_has_the_form_status_type_and_code_of_the_specification(sandbox: Running) -> None:
    """Source: spec, "Errors", the tables of fields and of codes; the statuses are the usual ones."""
    products = "/catalogProducts"
    sandbox.ok("POST", products, {"name": "API calls", "externalId": "sku"})
    form = {"Authorization": f"Bearer {sandbox.token}", "Content-Type": "application/x-www-form-urlencoded"}
    found = {
        UNAUTHORISED: [
            sandbox.send("GET", products, None, {"x-api-key": ""}),
            sandbox.send("GET", products, None, {}),
            sandbox.send("POST", "/login", {"refreshToken": "wrong"}, {}),
        ],
        INVALID: [
            sandbox.send("POST", "/login", {}, {}),
            sandbox.call("POST", products, {"name": 1}),
            sandbox.call("POST", products, {"name": 1, "productCode": 2}),
            sandbox.call("POST", products, {"name": ""}),
            sandbox.call("POST", products, b"{"),
            sandbox.call("POST", products, [1]),
            sandbox.call("POST", products, b'{"name":"\xff"}'),
            sandbox.call("POST", products, b'{"name":"a","name":"b"}'),
            sandbox.call("POST", products, b'{"name":' + b"[" * 5000),
            sandbox.call("GET", f"{products}?limit=0"),
        ],
        NOT_JSON: [sandbox.call("POST", products, None), sandbox.send("POST", products, b"name=a", form)],
        TAKEN: [sandbox.call("POST", products, {"name": "B", "externalId": "sku"})],
        NOT_FOUND: [sandbox.call("GET", f"{products}/cat_none"), sandbox.call("GET", "/nowhere")],
        NO_METHOD: [sandbox.call("PATCH", products, {})],
    }
    control = sandbox.call("GET", products)

    for expected, answers in found.items():
        assert [answer.error() for answer in answers] == [expected] * len(answers)
        assert all(is_an_error_of_the_specification(answer) for answer in answers)
    assert not is_an_error_of_the_specification(control)


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


NUL_BODIES: list[tuple[str, str, Any]] = [
    ("POST", "/login", {"refreshToken": "\0"}),
    ("POST", "/v2/events/aggregation", {**AGGREGATION, "customerIdPattern": "a\0"}),
    ("POST", "/contracts", {**CONTRACT, "products": [{}, {"catalogProductId": "a\0"}]}),
    ("POST", "/contracts", {**CONTRACT, "ours": {"deep": [{"\0": 1}]}}),
    ("POST", "/contracts", {**CONTRACT, "\0": 1}),
    ("POST", "/_sandbox/trigger/InvoiceApproved", {"invoiceId": "\0"}),
]


def test_a_nul_anywhere_in_a_body_is_refused_and_never_reaches_the_database(sandbox: Running) -> None:
    """SQLite's functions take a text to end at a NUL."""
    answers = [sandbox.call(method, path, body) for method, path, body in NUL_BODIES]
    escaped = sandbox.call("POST", "/catalogProducts", {"name": r"a \u0000 that is none"})
    raised = sandbox.raised()

    assert [answer.error() for answer in answers] == [INVALID] * len(NUL_BODIES)
    assert {answer.json["message"] for answer in answers} == {
        "a text in the body holds a NUL character: it cannot be stored"
    }
    assert all(is_an_error_of_the_specification(answer) for answer in answers)
    assert escaped.json["catalogProduct"]["name"] == r"a \u0000 that is none"
    assert raised == []


def test_one_invalid_field_is_in_the_message_and_several_in_params(sandbox: Running) -> None:
    """Source: spec, "Errors", message, param and params."""
    none = sandbox.send("POST", "/login", {}, {})
    one = sandbox.send("POST", "/login", {"refreshToken": API_TOKEN.split("-")}, {})
    two = sandbox.call("POST", "/catalogProducts", {"name": 1, "productCode": 2})
    contract = sandbox.call("POST", "/contracts", {})

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
    assert contract.json["message"].startswith("the body is not a valid NewContract, because of")


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
