"""Usage as figures: measurements of a day, and submissions to the clouds' marketplaces.

Source: spec, "Resources and their fields"; "Endpoints".
"""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field, StrictStr

from billhook.fields.types import CustomerId, ExactDecimal, Integer, ListOf, PositiveInt, UtcDatetime
from billhook.resources.base import Resource, StoredResource


class UsageDate(Resource):
    """A day.

    Source: spec, "Resources and their fields", Measurement.
    """

    year: Integer = Field(description="Year.", examples=[2026])
    month: Integer = Field(description="Month, from 1.", examples=[1])
    day: PositiveInt = Field(description="Day, from 1.", examples=[15])


class NewMeasurement(Resource):
    """The request of POST /measurements.

    Source: spec, "Resources and their fields", Measurement.
    """

    customer_id: CustomerId
    meter_id: StrictStr = Field(description="Id of the meter or product.", examples=["mtr_5"])
    usage_date: UsageDate = Field(description="Day of the usage.")
    value: ExactDecimal = Field(
        description="Units used on that day: the current total.", examples=[Decimal("812.5")]
    )


class Measurement(StoredResource, NewMeasurement):
    """A measurement as the service keeps it.

    Source: spec, "Resources and their fields", Measurement.
    """


class MeasurementResponse(Resource):
    """The response of POST /measurements.

    Source: spec, "Endpoints", POST /measurements.
    """

    measurement: Measurement = Field(description="The measurement.")


class UsageWindow(Resource):
    """From when to when.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    start: UtcDatetime | None = Field(
        default=None, description="Start of the time window.", examples=["2026-01-15T08:00:00Z"]
    )
    end: UtcDatetime | None = Field(
        default=None, description="End of the time window.", examples=["2026-01-15T09:00:00Z"]
    )


class PartnerSubmission(Resource):
    """What a partner made of it.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    received_at: StrictStr | None = Field(
        default=None,
        description="Time at which the partner received it, in the partner's format.",
        examples=["2026-01-15T09:00:02Z"],
    )
    status: StrictStr | None = Field(
        default=None, description="Result at the partner.", examples=["Accepted"]
    )


class CloudUsageResult(Resource):
    """What became of the usage of one window.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    status: StrictStr | None = Field(
        default=None, description="Status of the submission.", examples=["Accepted"]
    )
    usage_window: UsageWindow | None = Field(default=None, description="Time of the usage.")
    correlation_id: StrictStr | None = Field(default=None, description="Id of the correlated submission.")
    idempotency_key: StrictStr | None = Field(
        default=None, description="Idempotency key: a repeated submission counts once."
    )
    meter_dimension: StrictStr | None = Field(
        default=None, description="Dimension by which the usage is metered.", examples=["calls"]
    )
    accepted_quantity: ExactDecimal | None = Field(
        default=None, description="Quantity accepted, in units.", examples=[Decimal(8125)]
    )
    partner_submission: dict[str, PartnerSubmission] | None = Field(
        default=None,
        description="Result at each partner.",
        examples=[{"AWS": {"receivedAt": "2026-01-15T09:00:02Z", "status": "Accepted"}}],
    )
    quantity_submitted: ExactDecimal | None = Field(
        default=None, description="Quantity submitted, in units.", examples=[Decimal(8125)]
    )
    timestamp_submitted: UtcDatetime | None = Field(
        default=None, description="Time of submission.", examples=["2026-01-15T09:00:01Z"]
    )
    cloud_customer_identifier: StrictStr | None = Field(
        default=None, description="Customer identifier in the cloud marketplace.", examples=["aws-cust-9"]
    )


class CloudUsageSubmission(Resource):
    """The request of POST /cloudUsageSubmission; its response is an empty object.

    Source: spec, "Endpoints", Cloud usage submission.
    """

    results: ListOf[CloudUsageResult] = Field(description="Result of each usage record.")
    product_code: StrictStr = Field(description="Product code.", examples=["API-1"])
