"""What the specification says in passing: read-only fields, borders, dates that are texts, tags, sizes."""

from __future__ import annotations

import json
from typing import Any

import jwt

from support.sandbox import Running
from support.scenarios import STARTED

# --- what is read, and what is left alone ---------------------------------------------------------


def test_read_only_fields_are_ignored_with_any_content(sandbox: Running) -> None:
    """Source: spec, Customer, customFieldValues: "ignored on create and update"."""
    for name in ("customFieldValues", "totalOutstandingAmount", "openAmount", "paidAmount"):
        made = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme", name: "x"})["customer"]
        changed = sandbox.ok("PUT", f"/customers/{made['id']}", {"name": "Acme Ltd", name: {"x": 1}})
        wrong = sandbox.call("PUT", f"/customers/{made['id']}", {"name": 5, name: "x"})

        assert changed["customer"]["name"] == "Acme Ltd"
        assert changed["customer"][name] == made[name], name
        assert (wrong.status, wrong.json["param"]) == (400, "name")


# --- sizes, and what else is too much -------------------------------------------------------------


def padded(body: dict[str, Any], size: int) -> bytes:
    """`body` as JSON, with so much space that it has `size` bytes."""
    text = json.dumps(body).encode()
    return text + b" " * (size - len(text))


def test_a_body_beyond_what_an_operation_needs_is_refused_unread(sandbox: Running) -> None:
    for path, body, most in (
        ("/login", {"refreshToken": "wrong-token"}, 16 * 1024),
        ("/catalogProducts", {"name": "API calls"}, 1024 * 1024),
        ("/_sandbox/customers", {"name": "Acme"}, 1024 * 1024),
    ):
        fits = sandbox.call("POST", path, padded(body, most))
        beyond = sandbox.call("POST", path, padded(body, most + 1))

        assert fits.status in (200, 401), path
        assert beyond.error() == (413, "invalid_request_error", "request_too_large"), path
        assert beyond.json["message"] == f"the body is longer than the limit of {most} bytes"


def test_control_a_batch_of_events_over_its_own_limit_is_refused(sandbox: Running) -> None:
    answer = sandbox.call("PUT", "/events", padded({"events": []}, 2 * 1024 * 1024))

    assert answer.status == 400
    assert "256 KB" in answer.json["message"]


def test_a_token_that_ends_beyond_all_numbers_is_refused(sandbox: Running) -> None:
    control = _token(sandbox, str(int(sandbox.real.now().timestamp()) + 60))
    refused = {_with(sandbox, _token(sandbox, "9" * digits)) for digits in (400, 4_000, 5_000)}
    taken = _with(sandbox, control)

    assert refused == {(401, "authentication_error", "authentication_failed")}
    assert taken == 200


def _token(sandbox: Running, ends_at: str) -> str:
    """A JWT that is well signed: of a number of so many digits PyJWT itself would make none."""
    claims = f'{{"sub":"sandbox","exp":{ends_at}}}'.encode()
    return jwt.PyJWS().encode(claims, sandbox.sandbox.jwt_key, algorithm="HS256")


def _with(sandbox: Running, token: str) -> Any:
    answer = sandbox.send("GET", "/plans/none", None, {"Authorization": f"Bearer {token}"})
    return answer.error() if answer.status == 401 else 200


def test_the_times_of_a_fault_are_limited_to_31_bits(sandbox: Running) -> None:
    wrong = [
        sandbox.call("POST", "/_sandbox/faults", {"fault": "duplicate", "times": times})
        for times in (2**31, 2**63, 10**40)
    ]
    control = sandbox.ok("POST", "/_sandbox/faults", {"fault": "duplicate", "times": 2**31 - 1})

    assert {(answer.status, answer.json["param"]) for answer in wrong} == {(400, "times")}
    assert control["times"] == 2**31 - 1


# --- the words of a refusal -----------------------------------------------------------------------


def test_errors_use_the_names_of_json_types(sandbox: Running) -> None:
    contract_of_numbers = {"customerId": "c", "startDate": STARTED, "products": [5]}
    for path, body, told in (
        ("/v2/events", {"events": []}, "and this one has none: give at least one"),
        ("/contracts", contract_of_numbers, "Input should be an object"),
        ("/_sandbox/customers", {"aliases": 5}, "Input should be an array"),
    ):
        answer = sandbox.call("POST", path, body)

        assert answer.status == 400, path
        assert told in answer.json["message"]
