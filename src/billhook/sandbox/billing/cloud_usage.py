"""Results of usage that was submitted to cloud marketplaces.

Source: spec, "Resources and their fields", Cloud usage submission result.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.resources import CloudUsageResult, CloudUsageSubmission, StoredResource
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.limits import check_key
from billhook.sandbox.storage.repository import Repository, request_document
from billhook.sandbox.storage.tables import billing
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["SUBMISSIONS", "CloudUsageRecord", "store"]


class CloudUsageRecord(StoredResource, CloudUsageResult, register=False):
    """A result as it is stored."""

    product_code: Annotated[StrictStr, Field(description="Code of the product.", examples=["API-1"])]


SUBMISSIONS = Repository(billing.cloud_usage, CloudUsageRecord, "cld")


def store(tx: Transaction, request: CloudUsageSubmission) -> None:
    """Store each result; skip one whose idempotencyKey is stored already or occurs earlier in the request."""
    if not request.product_code.strip():
        raise invalid_request("productCode is empty: give one", "productCode")
    for n, result in enumerate(request.results):
        key = result.idempotency_key
        if key is not None:
            check_key(key, f"results.{n}.idempotencyKey")
            # The same idempotencyKey means the same result, submitted again.
            if SUBMISSIONS.first(tx, billing.cloud_usage.c.idempotency_key == key):
                continue
        data = request_document(result)
        SUBMISSIONS.add(tx, {**data, "productCode": request.product_code}, idempotency_key=key)
