"""What the specification says in passing: read-only fields, borders, dates that are texts, tags, sizes."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from support.sandbox import Running, running
from support.scenarios import STARTED, contract, fee, invoices

TAGS = {"auth", "events", "customers", "meters", "contracts", "invoices", "credits", "webhooks"}


# --- what is read, and what is left alone ---------------------------------------------------------


@pytest.mark.parametrize("name", ["customFieldValues", "totalOutstandingAmount", "openAmount", "paidAmount"])
def test_read_only_fields_are_ignored_with_any_content(name: str) -> None:
    """Source: spec, Customer, customFieldValues: "ignored on create and update"."""
    with running() as sandbox:
        made = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme", name: "x"})["customer"]
        changed = sandbox.ok("PUT", f"/customers/{made['id']}", {"name": "Acme Ltd", name: {"x": 1}})
        wrong = sandbox.call("PUT", f"/customers/{made['id']}", {"name": 5, name: "x"})

    assert changed["customer"]["name"] == "Acme Ltd"
    assert changed["customer"][name] == made[name]
    assert (wrong.status, wrong.json["param"]) == (400, "name")


def test_the_custom_field_values_of_a_new_contract_are_ignored() -> None:
    with running() as sandbox:
        made = contract(sandbox, customFieldValues="x")

    assert "customFieldValues" not in made


@pytest.mark.parametrize(
    ("window", "count"),
    [
        ("issuedAfter=2026-02-10T12:00:00Z&issuedBefore=2026-03-10T12:00:00Z", 1),
        ("issuedAfter=2026-01-10T12:00:00Z&issuedBefore=2026-02-10T12:00:00Z", 0),
        ("issuedBefore=2026-02-10T12:00:01Z", 1),
        ("issuedAfter=2026-02-10T12:00:01Z", 1),
    ],
)
def test_an_invoice_is_in_the_window_that_begins_when_it_is_issued(window: str, count: int) -> None:
    """As GET /events has it: so each is in one month, and in no other."""
    with running() as sandbox:
        contract(sandbox, products=[fee(1)])
        sandbox.advance("P2M")
        found = sandbox.ok("GET", f"/invoices?{window}")["invoices"]

    assert len(found) == count


@pytest.mark.parametrize("status", ["paid", "Nope", "None,Paid"])
def test_a_billing_status_that_there_is_not_is_refused(status: str) -> None:
    with running() as sandbox:
        contract(sandbox, products=[fee(1)])
        sandbox.advance("P1M")
        wrong = sandbox.call("GET", f"/invoices?billingStatus={status}")
        control = sandbox.ok("GET", "/invoices?billingStatus=None")

    assert (wrong.status, wrong.json["param"]) == (400, "billingStatus")
    assert wrong.json["message"] == "billingStatus is one of None, Paid, Rejected, PendingPayment, Overdue"
    assert control["total"] == 1


@pytest.mark.parametrize("received_at", ["2026-01-01 at noon", "", "2026-01-10T09:00:02+02:00"])
def test_when_a_partner_received_usage_is_a_text(received_at: str) -> None:
    """Source: spec, Cloud usage submission result: partnerSubmission {receivedAt: string, ...}."""
    told = {"AWS": {"receivedAt": received_at, "status": "Accepted"}}
    with running() as sandbox:
        body = {"productCode": "API-1", "results": [{"partnerSubmission": told}]}
        sandbox.ok("POST", "/cloudUsageSubmission", body)
        [kept] = sandbox.ok("GET", "/_sandbox/cloudUsageSubmissions")["results"]

    assert kept["partnerSubmission"] == told


@pytest.mark.parametrize("day", [32, 45, 1000])
def test_a_billing_day_beyond_all_months_is_each_months_last(day: int) -> None:
    """Source: spec, ContractProduct, scheduling: billingDay is an integer, 1 or greater."""
    with running() as sandbox:
        made = contract(sandbox, products=[fee(1, scheduling={"billingDay": day})])
        sandbox.advance("P3M")
        ends = [each["billingCycle"]["endTime"] for each in invoices(sandbox)]

    assert made["products"][0]["scheduling"]["billingDay"] == day
    assert ends == ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]


# --- one contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agr/7", "agr-7", "/agr"])
def test_a_contract_is_fetched_by_its_id_and_by_its_external_id(name: str) -> None:
    """Source: spec, Contract, externalId; "Endpoints", Contracts: "Fetching one contract (implied ...)"."""
    with running() as sandbox:
        made = contract(sandbox, externalId=name)
        by_id = sandbox.ok("GET", f"/contracts/{made['id']}")
        by_name = sandbox.ok("GET", f"/contracts/{name.replace('/', '%2F')}")
        sandbox.ok("DELETE", f"/contracts/{made['id']}")
        gone = sandbox.call("GET", f"/contracts/{made['id']}")

    assert by_id == by_name == {"contract": made}
    assert gone.error() == (404, "invalid_request_error", "resource_not_found")


# --- the description ------------------------------------------------------------------------------


def test_the_tags_are_those_of_the_specification_and_the_sandboxs_own() -> None:
    """Source: spec, "What the service does", the last sentence."""
    with running() as sandbox:
        described = sandbox.send("GET", "/openapi/openapi.json", None, {}).json

    used = {
        tag: path
        for path, methods in described["paths"].items()
        for operation in methods.values()
        for tag in operation["tags"]
    }
    of_the_specification = {tag for tag, path in used.items() if not path.startswith("/_sandbox")}
    assert of_the_specification == TAGS
    assert all(tag.startswith("_sandbox/") for tag in set(used) - TAGS)
    assert {tag["name"] for tag in described["tags"]} == set(used)


# --- sizes, and what else is too much -------------------------------------------------------------


def padded(body: dict[str, Any], size: int) -> bytes:
    """`body` as JSON, with so much space that it has `size` bytes."""
    text = json.dumps(body).encode()
    return text + b" " * (size - len(text))


@pytest.mark.parametrize(
    ("method", "path", "body", "most"),
    [
        ("POST", "/login", {"refreshToken": "wrong-token"}, 16 * 1024),
        ("POST", "/catalogProducts", {"name": "API calls"}, 1024 * 1024),
        ("POST", "/_sandbox/customers", {"name": "Acme"}, 1024 * 1024),
    ],
)
def test_a_body_beyond_what_an_operation_needs_is_refused_unread(
    method: str, path: str, body: dict[str, Any], most: int
) -> None:
    with running() as sandbox:
        fits = sandbox.call(method, path, padded(body, most))
        beyond = sandbox.call(method, path, padded(body, most + 1))

    assert fits.status in (200, 401)
    assert beyond.error() == (413, "invalid_request_error", "request_too_large")
    assert beyond.json["message"] == f"the body is longer than the limit of {most} bytes"


def test_control_a_batch_of_events_over_its_own_limit_is_refused() -> None:
    with running() as sandbox:
        answer = sandbox.call("PUT", "/events", padded({"events": []}, 2 * 1024 * 1024))

    assert answer.status == 400
    assert "256 KB" in answer.json["message"]


@pytest.mark.parametrize("digits", [400, 4_000, 5_000])
def test_a_token_that_ends_beyond_all_numbers_is_refused(digits: int) -> None:
    with running() as sandbox:
        ended = _token(sandbox, "9" * digits)
        control = _token(sandbox, str(int(sandbox.real.now().timestamp()) + 60))
        refused = _with(sandbox, ended)
        taken = _with(sandbox, control)

    assert refused == (401, "authentication_error", "authentication_failed")
    assert taken == 200


def _token(sandbox: Running, ends_at: str) -> str:
    """A JWT that is well signed: of a number of so many digits PyJWT itself would make none."""
    claims = f'{{"sub":"sandbox","exp":{ends_at}}}'.encode()
    return jwt.PyJWS().encode(claims, sandbox.sandbox.jwt_key, algorithm="HS256")


def _with(sandbox: Running, token: str) -> Any:
    answer = sandbox.send("GET", "/plans/none", None, {"Authorization": f"Bearer {token}"})
    return answer.error() if answer.status == 401 else 200


@pytest.mark.parametrize("times", [2**31, 2**63, 10**40])
def test_the_times_of_a_fault_are_limited_to_31_bits(times: int, sandbox_url: str) -> None:
    with running(database_url=sandbox_url) as sandbox:
        wrong = sandbox.call("POST", "/_sandbox/faults", {"fault": "duplicate", "times": times})
        control = sandbox.ok("POST", "/_sandbox/faults", {"fault": "duplicate", "times": 2**31 - 1})

    assert (wrong.status, wrong.json["param"]) == (400, "times")
    assert control["times"] == 2**31 - 1


# --- the words of a refusal -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v2/events", {"events": []}, "and this one has none: give at least one"),
        (
            "/contracts",
            {"customerId": "c", "startDate": STARTED, "products": [5]},
            "Input should be an object",
        ),
        ("/_sandbox/customers", {"aliases": 5}, "Input should be an array"),
    ],
)
def test_errors_use_the_names_of_json_types(path: str, body: dict[str, Any], told: str) -> None:
    with running() as sandbox:
        answer = sandbox.call("POST", path, body)

    assert answer.status == 400
    assert told in answer.json["message"]
