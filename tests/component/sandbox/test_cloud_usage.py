"""Cloud usage. Source: spec, "Resources and their fields", Cloud usage submission result; "Endpoints"."""

from __future__ import annotations

from typing import Any

from support.sandbox import Answer, Running

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


def submitted(sandbox: Running, *results: Any, code: str = "API-1") -> Answer:
    """The answer to a submission."""
    return sandbox.call("POST", "/cloudUsageSubmission", {"results": list(results), "productCode": code})


def test_a_cloud_usage_submission_is_answered_with_an_empty_object(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /cloudUsageSubmission."""
    answer = submitted(sandbox, RESULT, {"idempotencyKey": "key-2"})

    assert (answer.status, answer.json) == (200, {})
