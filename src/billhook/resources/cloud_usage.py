"""Usage told to the clouds' marketplaces. Source: spec, "Resources and their fields"; "Endpoints"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource
from billhook.wire.fields import ListOf, Moment, Number, Text

__all__ = ["CloudUsageResult", "CloudUsageSubmission", "PartnerSubmission", "UsageWindow"]


class UsageWindow(Resource):
    """From when to when.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    start: Annotated[
        Moment | None, Field(description="When it begins.", examples=["2026-01-15T08:00:00Z"])
    ] = None
    end: Annotated[Moment | None, Field(description="When it ends.", examples=["2026-01-15T09:00:00Z"])] = (
        None
    )


class PartnerSubmission(Resource):
    """What a partner made of it.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    received_at: Annotated[
        Text | None,
        Field(description="When the partner got it, as it wrote it.", examples=["2026-01-15T09:00:02Z"]),
    ] = None
    status: Annotated[Text | None, Field(description="What became of it.", examples=["Accepted"])] = None


class CloudUsageResult(Resource):
    """What became of the usage of one window.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    status: Annotated[Text | None, Field(description="What became of it.", examples=["Accepted"])] = None
    usage_window: Annotated[UsageWindow | None, Field(description="The time of the usage.")] = None
    correlation_id: Annotated[Text | None, Field(description="Id that goes with it.")] = None
    idempotency_key: Annotated[Text | None, Field(description="Sent twice, it is taken once.")] = None
    meter_dimension: Annotated[
        Text | None, Field(description="The dimension it is metered by.", examples=["calls"])
    ] = None
    accepted_quantity: Annotated[
        Number | None, Field(description="Units accepted.", examples=[Decimal(8125)])
    ] = None
    partner_submission: Annotated[
        dict[str, PartnerSubmission] | None,
        Field(
            description="What each partner made of it.",
            examples=[{"AWS": {"receivedAt": "2026-01-15T09:00:02Z", "status": "Accepted"}}],
        ),
    ] = None
    quantity_submitted: Annotated[
        Number | None, Field(description="Units submitted.", examples=[Decimal(8125)])
    ] = None
    timestamp_submitted: Annotated[
        Moment | None, Field(description="When it was submitted.", examples=["2026-01-15T09:00:01Z"])
    ] = None
    cloud_customer_identifier: Annotated[
        Text | None, Field(description="Who the customer is in the cloud.", examples=["aws-cust-9"])
    ] = None


class CloudUsageSubmission(Resource):
    """The request of POST /cloudUsageSubmission; its response is an empty object.

    Source: spec, "Endpoints", Cloud usage submission.
    """

    results: Annotated[ListOf[CloudUsageResult], Field(description="What became of the usage.")]
    product_code: Annotated[Text, Field(description="Code of the product.", examples=["API-1"])]
