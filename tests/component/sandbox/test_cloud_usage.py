"""Cloud usage. Source: spec, "Resources and their fields", Cloud usage submission result; "Endpoints"."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running

RESULT = {
    "status": "Accepted",
    "usageWindow": {"start": "2026-01-10T08:00:00Z", "end": "2026-01-10T09:00:00Z"},
    "correlationId": "cor-1",
    "idempotencyKey": "key-1",
    "meterDimension": "calls",
    "acceptedQuantity": 8125,
    "partnerSubmission": {"AWS": {"receivedAt": "2026-01-10T09:00:02Z", "status": "Accepted"}},
    "quantitySubmitted": 8125.5,
    "timestampSubmitted": "2026-01-10T09:00:01Z",
    "cloudCustomerIdentifier": "aws-cust-9",
}


def submitted(sandbox: Running, *results: Any, code: str = "API-1") -> Any:
    """The answer to a submission."""
    body = {"results": list(results), "productCode": code}
    return sandbox.ok("POST", "/cloudUsageSubmission", body)


def kept(sandbox: Running) -> list[Any]:
    results: list[Any] = sandbox.ok("GET", "/_sandbox/cloudUsageSubmissions?limit=100")["results"]
    return results


def test_a_cloud_usage_submission_is_stored_and_answered_with_an_empty_object(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /cloudUsageSubmission."""
    answer = submitted(sandbox, RESULT)
    [result] = kept(sandbox)

    assert answer == {}
    assert {**RESULT, "productCode": "API-1"}.items() <= result.items()
    assert result["createdAt"] == "2026-01-10T12:00:00Z"


def test_an_idempotency_key_is_taken_once_in_one_submission_and_over_several(sandbox: Running) -> None:
    """A choice of ours: the specification gives the field its name, and no more."""
    first = {"idempotencyKey": "a", "acceptedQuantity": 1}
    submitted(sandbox, first, {**first, "acceptedQuantity": 2}, {"idempotencyKey": "b"})
    submitted(sandbox, {**first, "acceptedQuantity": 3}, {"idempotencyKey": "c"}, code="API-2")
    results = kept(sandbox)

    assert [(each["idempotencyKey"], each.get("acceptedQuantity")) for each in results] == [
        ("a", 1),
        ("b", None),
        ("c", None),
    ]
