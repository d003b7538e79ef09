"""Usage as figures: measurements of a day, and submissions to the clouds' marketplaces.

Source: spec, "Resources and their fields"; "Endpoints".
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictStr

from billhook.fields.types import CustomerId, ExactDecimal, Integer, ListOf, PositiveInt, UtcDatetime
from billhook.resources.base import Resource, StoredResource


class UsageDate(Resource):
    """A day.

    Source: spec, "Resources and their fields", Measurement.
    """

    year: Annotated[Integer, Field(description="Year.", examples=[2026])]
    month: Annotated[Integer, Field(description="Month, from 1.", examples=[1])]
    day: Annotated[PositiveInt, Field(description="Day, from 1.", examples=[15])]


class NewMeasurement(Resource):
    """The request of POST /measurements.

    Source: spec, "Resources and their fields", Measurement.
    """

    customer_id: CustomerId
    meter_id: Annotated[StrictStr, Field(description="Id of the meter or product.", examples=["mtr_5"])]
    usage_date: Annotated[UsageDate, Field(description="Day of the usage.")]
    value: Annotated[
        ExactDecimal,
        Field(description="Units used on that day: the current total.", examples=[Decimal("812.5")]),
    ]


class Measurement(StoredResource, NewMeasurement):
    """A measurement as the service keeps it.

    Source: spec, "Resources and their fields", Measurement.
    """


class MeasurementResponse(Resource):
    """The response of POST /measurements.

    Source: spec, "Endpoints", POST /measurements.
    """

    measurement: Annotated[Measurement, Field(description="The measurement.")]


class UsageWindow(Resource):
    """From when to when.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    start: Annotated[
        UtcDatetime | None, Field(description="Start of the time window.", examples=["2026-01-15T08:00:00Z"])
    ] = None
    end: Annotated[
        UtcDatetime | None, Field(description="End of the time window.", examples=["2026-01-15T09:00:00Z"])
    ] = None


class PartnerSubmission(Resource):
    """What a partner made of it.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    received_at: Annotated[
        StrictStr | None,
        Field(
            description="Time at which the partner received it, in the partner's format.",
            examples=["2026-01-15T09:00:02Z"],
        ),
    ] = None
    status: Annotated[
        StrictStr | None, Field(description="Result at the partner.", examples=["Accepted"])
    ] = None


class CloudUsageResult(Resource):
    """What became of the usage of one window.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    status: Annotated[
        StrictStr | None, Field(description="Status of the submission.", examples=["Accepted"])
    ] = None
    usage_window: Annotated[UsageWindow | None, Field(description="Time of the usage.")] = None
    correlation_id: Annotated[StrictStr | None, Field(description="Id of the correlated submission.")] = None
    idempotency_key: Annotated[
        StrictStr | None, Field(description="Idempotency key: a repeated submission counts once.")
    ] = None
    meter_dimension: Annotated[
        StrictStr | None, Field(description="Dimension by which the usage is metered.", examples=["calls"])
    ] = None
    accepted_quantity: Annotated[
        ExactDecimal | None, Field(description="Quantity accepted, in units.", examples=[Decimal(8125)])
    ] = None
    partner_submission: Annotated[
        dict[str, PartnerSubmission] | None,
        Field(
            description="Result at each partner.",
            examples=[{"AWS": {"receivedAt": "2026-01-15T09:00:02Z", "status": "Accepted"}}],
        ),
    ] = None
    quantity_submitted: Annotated[
        ExactDecimal | None, Field(description="Quantity submitted, in units.", examples=[Decimal(8125)])
    ] = None
    timestamp_submitted: Annotated[
        UtcDatetime | None, Field(description="Time of submission.", examples=["2026-01-15T09:00:01Z"])
    ] = None
    cloud_customer_identifier: Annotated[
        StrictStr | None,
        Field(description="Customer identifier in the cloud marketplace.", examples=["aws-cust-9"]),
    ] = None


class CloudUsageSubmission(Resource):
    """The request of POST /cloudUsageSubmission; its response is an empty object.

    Source: spec, "Endpoints", Cloud usage submission.
    """

    results: Annotated[ListOf[CloudUsageResult], Field(description="Result of each usage record.")]
    product_code: Annotated[StrictStr, Field(description="Product code.", examples=["API-1"])]
