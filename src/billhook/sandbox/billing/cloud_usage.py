"""What became of usage that was told to the clouds' marketplaces.

Source: spec, "Resources and their fields", Cloud usage submission result.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import CloudUsageResult, CloudUsageSubmission, Stored
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_sent
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables import entities
from billhook.sandbox.transaction import Transaction
from billhook.wire.fields import Text

__all__ = ["SUBMITTED", "SubmittedUsage", "keep"]


class SubmittedUsage(Stored, CloudUsageResult, register=False):
    """A result as it is kept."""

    product_code: Annotated[Text, Field(description="Code of the product.", examples=["API-1"])]


SUBMITTED = Shelf(entities.cloud_usage, SubmittedUsage, "cld")


def keep(tx: Transaction, given: CloudUsageSubmission) -> None:
    """Keep each result, but those whose idempotencyKey is there already, in this submission or before it."""
    if not given.product_code.strip():
        raise invalid_request("productCode is empty: give one", "productCode")
    for n, result in enumerate(given.results):
        key = result.idempotency_key
        if key is not None:
            check_key(key, f"results.{n}.idempotencyKey")
            if SUBMITTED.first(tx, entities.cloud_usage.c.idempotency_key == key):
                continue
        data = as_sent(result)
        SUBMITTED.add(tx, {**data, "productCode": given.product_code}, idempotency_key=key)
