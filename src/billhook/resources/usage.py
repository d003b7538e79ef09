"""Usage: events in batches, queries, dry runs and aggregations; measurements; submissions to marketplaces.

Source: spec, "Resources and their fields"; "Endpoints", Events.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, model_validator

from billhook.errors import LimitBroken
from billhook.fields.model import optional
from billhook.fields.types import (
    CustomerId,
    ExactDecimal,
    Integer,
    JsonObject,
    JsonValue,
    ListOf,
    PositiveInt,
    UtcDatetime,
)
from billhook.resources.base import CountedPage, PageQuery, Resource, StoredResource

MAX_BATCH_EVENTS = 1000
MAX_BATCH_BYTES = 256 * 1024
MAX_PAGE_EVENTS = 1000


class UsageEvent(Resource):
    """Something that a customer used.

    Source: spec, "Resources and their fields", Event (ingested).
    """

    name: StrictStr = Field(
        description="Name of what happened; metered if it equals a meter's eventName.", examples=["api_call"]
    )
    timestamp: UtcDatetime = Field(description="Time of the event.", examples=["2026-01-15T09:29:00Z"])
    customer_alias: StrictStr = Field(
        description="External id or alias of the customer who used it.", examples=["acme"]
    )
    ref: StrictStr = Field(
        description="Unique reference; an event with a known ref is stored once.", examples=["call-881"]
    )
    data: JsonObject | None = optional(
        "Properties that meters filter by and aggregate.", {"region": "eu", "units": 3}
    )


def check_count(count: int) -> None:
    """Raise LimitBroken for a batch of `count` events, unless they are 1 to 1000."""
    if not 1 <= count <= MAX_BATCH_EVENTS:
        remedy = f"{count}: split it" if count else "none: give at least one"
        raise LimitBroken(f"a batch has 1 to {MAX_BATCH_EVENTS} events, and this one has {remedy}", "events")


def check_size(body: bytes) -> None:
    """Raise LimitBroken for the body of a batch that is over 256 KB (262,144 bytes)."""
    if len(body) > MAX_BATCH_BYTES:
        text = f"a batch has at most 256 KB ({MAX_BATCH_BYTES} bytes), and this one {len(body)}: split it"
        raise LimitBroken(text, "events")


def _counted(value: object) -> object:
    """Count before validation: a list of millions is rejected at once."""
    if isinstance(value, list | tuple):
        check_count(len(value))
    return value


class EventBatch(Resource):
    """The request of PUT /events, POST /v2/events and POST /events/dry-run: 1 to 1000 events, 256 KB at most.

    Source: spec, "Endpoints", PUT /events; "Limits".
    """

    events: Annotated[ListOf[UsageEvent], BeforeValidator(_counted)] = Field(
        description="Usage events.", json_schema_extra={"minItems": 1, "maxItems": MAX_BATCH_EVENTS}
    )

    def to_request(self) -> bytes:
        """Return the body of the request. Raises LimitBroken if it is over 256 KB (262,144 bytes)."""
        body = super().to_request()
        check_size(body)
        return body


class InvalidEvent(Resource):
    """An event that was not taken, and why.

    Source: spec, "Resources and their fields", Event (ingested), invalid-event entry.
    """

    event: UsageEvent | JsonValue = Field(
        description="The event as sent; plain values if it does not have the form of an event.",
        union_mode="left_to_right",
    )
    error: StrictStr = Field(
        description="Reason why the event was not stored.", examples=["an event with this ref exists"]
    )


class IngestionResult(Resource):
    """The response of PUT /events and POST /v2/events. Valid events are stored even if others are invalid.

    Source: spec, "Endpoints", PUT /events.
    """

    valid_events: ListOf[UsageEvent] = Field(description="Events that were stored.")
    invalid_events: ListOf[InvalidEvent] = Field(
        description="Events that were not stored, each with the reason."
    )


class EventQuery(PageQuery):
    """The query of GET /events.

    Source: spec, "Endpoints", GET /events; "Limits".
    """

    start_time: UtcDatetime = Field(description="Start of the time range.", examples=["2026-01-01T00:00:00Z"])
    end_time: UtcDatetime = Field(description="End of the time range.", examples=["2026-02-01T00:00:00Z"])
    event_name: StrictStr | None = optional("Only events of this name.", "api_call")
    customer_alias: StrictStr | None = optional("Only events under this alias.", "acme")

    @model_validator(mode="after")
    def _limited(self) -> EventQuery:
        if self.limit is not None and self.limit > MAX_PAGE_EVENTS:
            raise LimitBroken(
                f"limit is {self.limit}, and the maximum is {MAX_PAGE_EVENTS}: ask for more pages", "limit"
            )
        return self


class EventPage(CountedPage):
    """The response of GET /events.

    Source: spec, "Endpoints", GET /events.
    """

    events: ListOf[UsageEvent] = Field(description="Events of this page.")


class MeterValue(Resource):
    """What an event would add to a meter.

    Source: spec, "Endpoints", POST /events/dry-run, meterWithValues.
    """

    name: StrictStr = Field(description="Name of the meter.", examples=["API calls"])
    event_name: StrictStr = Field(
        description="Name of the events that the meter counts.", examples=["api_call"]
    )
    aggregation_method: StrictStr = Field(
        description="Aggregation method of the meter, such as sum.", examples=["sum"]
    )
    value: ExactDecimal | None = optional("Value that the event contributes, if any.", Decimal(3))
    instance_value: JsonValue = optional("Id of the instance, for a meter that counts instances.", "vm-7")


class DryRunEvent(Resource):
    """What would become of one event.

    Source: spec, "Endpoints", POST /events/dry-run and its rules.
    """

    event: UsageEvent = Field(description="The usage event.")
    matched_customer: StrictStr | None = optional(
        "Id of the customer; absent if an anonymous customer would be created.", "cus_1042"
    )
    meter_with_values: ListOf[MeterValue] = Field(
        description="Meters that would count the event; may be empty."
    )


class DryRunResult(Resource):
    """The response of POST /events/dry-run; nothing was stored.

    Source: spec, "Endpoints", POST /events/dry-run.
    """

    events: ListOf[DryRunEvent] = Field(description="Result of each event.")
    invalid_events: ListOf[JsonValue] = Field(
        description="Events that would not be stored; the form of an entry is not stated.",
        examples=[[{"event": {"name": "api_call"}, "error": "ref is missing"}]],
    )


_GroupBy = Annotated[
    StrictStr, Field(description="Grouping, such as day; the values are not stated.", examples=["day"])
]


class Period(Resource):
    """From when to when.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    start_time: UtcDatetime = Field(description="Start of the period.", examples=["2026-01-01T00:00:00Z"])
    end_time: UtcDatetime = Field(description="End of the period.", examples=["2026-02-01T00:00:00Z"])


class MeterKey(Resource):
    """A meter, and the name its figures get in the response.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    key: StrictStr = Field(description="Key of the meter's values in the response.", examples=["calls"])
    event_name: StrictStr = Field(
        description="Name of the events that the meter counts.", examples=["api_call"]
    )


class AggregationRequest(Resource):
    """The request of POST /v2/events/aggregation.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    customer_id: CustomerId
    customer_id_pattern: StrictStr | None = optional("Pattern of customer ids.")
    period: Period = Field(description="Period of the events to aggregate.")
    meters: ListOf[MeterKey] = Field(description="Meters to aggregate.")
    group_by: _GroupBy
    fill_dates: StrictBool | None = optional("Whether dates without events are included.")


class DataPoint(Resource):
    """The figures of one group.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    group: StrictStr = Field(description="Name of the group, such as a date.", examples=["2026-01-15"])
    values: dict[str, ExactDecimal] = Field(
        description="Values of the group, by meter key.", examples=[{"calls": Decimal(8125)}]
    )


class Aggregation(Resource):
    """The response of POST /v2/events/aggregation.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    data_points: ListOf[DataPoint] = Field(description="Values, one entry per group.")
    period: Period = Field(description="Period of the aggregated events.")
    group_by: _GroupBy


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

    start: UtcDatetime | None = optional("Start of the time window.", "2026-01-15T08:00:00Z")
    end: UtcDatetime | None = optional("End of the time window.", "2026-01-15T09:00:00Z")


class PartnerSubmission(Resource):
    """What a partner made of it.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    received_at: StrictStr | None = optional(
        "Time at which the partner received it, in the partner's format.", "2026-01-15T09:00:02Z"
    )
    status: StrictStr | None = optional("Result at the partner.", "Accepted")


class CloudUsageResult(Resource):
    """What became of the usage of one window.

    Source: spec, "Resources and their fields", Cloud usage submission result.
    """

    status: StrictStr | None = optional("Status of the submission.", "Accepted")
    usage_window: UsageWindow | None = optional("Time of the usage.")
    correlation_id: StrictStr | None = optional("Id of the correlated submission.")
    idempotency_key: StrictStr | None = optional("Idempotency key: a repeated submission counts once.")
    meter_dimension: StrictStr | None = optional("Dimension by which the usage is metered.", "calls")
    accepted_quantity: ExactDecimal | None = optional("Quantity accepted, in units.", Decimal(8125))
    partner_submission: dict[str, PartnerSubmission] | None = optional(
        "Result at each partner.", {"AWS": {"receivedAt": "2026-01-15T09:00:02Z", "status": "Accepted"}}
    )
    quantity_submitted: ExactDecimal | None = optional("Quantity submitted, in units.", Decimal(8125))
    timestamp_submitted: UtcDatetime | None = optional("Time of submission.", "2026-01-15T09:00:01Z")
    cloud_customer_identifier: StrictStr | None = optional(
        "Customer identifier in the cloud marketplace.", "aws-cust-9"
    )


class CloudUsageSubmission(Resource):
    """The request of POST /cloudUsageSubmission; its response is an empty object.

    Source: spec, "Endpoints", Cloud usage submission.
    """

    results: ListOf[CloudUsageResult] = Field(description="Result of each usage record.")
    product_code: StrictStr = Field(description="Product code.", examples=["API-1"])
