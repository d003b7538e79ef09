"""Usage: events, measurements and cloud usage.

Source: spec, "Endpoints", Events; Measurements; Cloud usage submission.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from billhook.fields import strict_json
from billhook.resources import (
    MAX_BATCH_BYTES,
    Aggregation,
    AggregationRequest,
    CloudUsageSubmission,
    DryRunResult,
    EventPage,
    EventQuery,
    IngestionResult,
    MeasurementResponse,
    NewMeasurement,
)
from billhook.sandbox.billing import customers, ingestion
from billhook.sandbox.billing.ingestion import (
    compiled_meters,
    ingest,
    set_measurement,
    validate_batch,
)
from billhook.sandbox.billing.usage.event_batch import RawEventBatch, ValidEvent
from billhook.sandbox.billing.usage.event_query import aggregate, list_events
from billhook.sandbox.billing.usage.meters import NOTHING, CompiledMeter
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.repository import page_limit

EVENTS_GROUP = OperationGroup("events")


@EVENTS_GROUP.operation("GET", "/events", takes=EventQuery, gives=EventPage)
def query(call: Call[EventQuery]) -> bytes:
    """List stored events from startTime to before endTime, by timestamp."""
    page = list_events(call.tx, call.request, page_limit(call.request))
    # Joined as text: the stored JSON of the events is neither parsed nor formatted again.
    more = {"total": page.total, "hasMore": page.next_cursor is not None, "nextCursor": page.next_cursor}
    return b'{"events":[%b],%b' % (",".join(page.items).encode(), strict_json.dumps(more)[1:])


# reads_bytes=None: RawEventBatch refuses a longer body, with the specification's error.
@EVENTS_GROUP.operation("PUT", "/events", takes=RawEventBatch, gives=IngestionResult, reads_bytes=None)
def submit(call: Call[RawEventBatch]) -> bytes:
    """Ingest a batch of events. Invalid events are returned and do not affect the others."""
    return _ingested(call)


@EVENTS_GROUP.operation(
    "POST",
    "/v2/events",
    takes=RawEventBatch,
    gives=IngestionResult,
    reads_bytes=None,
    max_bytes=MAX_BATCH_BYTES,
    errors=(413,),
)
def submit_v2(call: Call[RawEventBatch]) -> bytes:
    """Ingest a batch of events; a batch that is too large gets 413."""
    return _ingested(call)


@EVENTS_GROUP.operation(
    "POST", "/events/dry-run", takes=RawEventBatch, gives=DryRunResult, writes=False, reads_bytes=None
)
def dry_run(call: Call[RawEventBatch]) -> bytes:
    """Return how the service would ingest a batch, without storing anything."""
    result = validate_batch(call.tx, call.request)
    owners = customers.ids_by_alias(call.tx, {used.alias for used in result.accepted})
    inactive = customers.inactive_customers(call.tx, set(owners.values()))
    # Compiled once for the batch: the events of one name share their meters.
    metered = compiled_meters(call.tx, result.accepted)
    events = (_dry_run_entry(used, owners.get(used.alias), inactive, metered) for used in result.accepted)
    return _batch_response("events", events, result.rejected)


# A POST that changes nothing: it needs no write lock, which would delay ingestion.
@EVENTS_GROUP.operation(
    "POST", "/v2/events/aggregation", takes=AggregationRequest, gives=Aggregation, writes=False
)
def add_up(call: Call[AggregationRequest]) -> Aggregation:
    """Aggregate stored events by meter and group."""
    request = call.request
    points = aggregate(call.tx, request)
    return Aggregation(data_points=points, period=request.period, group_by=request.group_by)


def _ingested(call: Call[RawEventBatch]) -> bytes:
    result = ingest(call.tx, call.request)
    return _batch_response("validEvents", (used.text for used in result.accepted), result.rejected)


def _dry_run_entry(
    used: ValidEvent,
    customer_id: str | None,
    inactive: Collection[str],
    metered: dict[str, list[CompiledMeter]],
) -> str:
    # The events of an Inactive customer are counted by no meter.
    is_counted = customer_id not in inactive
    counted = [
        (metering, metering.contribution(used.data) if is_counted else NOTHING)
        for metering in metered.get(used.name, ())
    ]
    entry = {
        "matchedCustomer": customer_id,
        "meterWithValues": [
            {
                "name": metering.meter.name,
                "eventName": metering.meter.event_name,
                "aggregationMethod": metering.method,
                "value": contribution.value,
                "instanceValue": contribution.instance,
            }
            for metering, contribution in counted
        ],
    }
    return f'{{"event":{used.text},{strict_json.dumps(entry).decode()[1:]}'


def _batch_response(name: str, events: Iterable[str], refused: Iterable[tuple[object, str]]) -> bytes:
    """Return the response, with the JSON of each event."""
    invalid = strict_json.dumps([{"event": sent, "error": why} for sent, why in refused])
    return b'{"%b":[%b],"invalidEvents":%b}' % (name.encode(), ",".join(events).encode(), invalid)


MEASUREMENTS_GROUP = OperationGroup("meters", name="measurements")
CLOUD_USAGE_GROUP = OperationGroup("meters", prefix="/cloudUsageSubmission", name="cloudUsage")


@MEASUREMENTS_GROUP.operation(
    "POST", "/measurements", name="create", takes=NewMeasurement, gives=MeasurementResponse
)
def set_measurement_of_day(call: Call[NewMeasurement]) -> MeasurementResponse:
    """Set a customer's usage of one day; it replaces the usage of that day's events."""
    return MeasurementResponse(measurement=set_measurement(call.tx, call.request))


@CLOUD_USAGE_GROUP.operation("POST", "", name="submit", takes=CloudUsageSubmission)
def submit_cloud_usage(call: Call[CloudUsageSubmission]) -> None:
    """Store results of usage submitted to a marketplace; a repeated idempotencyKey is dropped."""
    ingestion.store_cloud_usage(call.tx, call.request)
