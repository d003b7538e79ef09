"""Usage events. Source: spec, "Endpoints", Events."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from billhook.resources import (
    MAX_BATCH_BYTES,
    Aggregation,
    AggregationRequest,
    DryRunResult,
    EventPage,
    EventQuery,
    IngestionResult,
)
from billhook.sandbox.billing import customers
from billhook.sandbox.billing.aggregation import aggregate
from billhook.sandbox.billing.batch import SentBatch
from billhook.sandbox.billing.history import history
from billhook.sandbox.billing.ingestion import ingest, looked_at_by, meterings, sift
from billhook.sandbox.billing.judging import Used
from billhook.sandbox.billing.metering import Metering
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire import strict_json

__all__ = ["GROUP"]

GROUP = Group("events")


@GROUP.operation("GET", "/events", takes=EventQuery, gives=EventPage)
def query(call: Call[EventQuery]) -> bytes:
    """Stored events whose timestamp is from startTime to before endTime, by timestamp."""
    page = history(call.tx, call.given, limit_of(call.given))
    more = {"total": page.total, "hasMore": page.next_cursor is not None, "nextCursor": page.next_cursor}
    return b'{"events":[%b],%b' % (",".join(page.items).encode(), strict_json.dumps(more)[1:])


@GROUP.operation("PUT", "/events", takes=SentBatch, gives=IngestionResult, reads_bytes=None)
def submit(call: Call[SentBatch]) -> bytes:
    """Take a batch of events. Those that are invalid come back, and do not hinder the others."""
    return _ingested(call)


@GROUP.operation(
    "POST",
    "/v2/events",
    takes=SentBatch,
    gives=IngestionResult,
    reads_bytes=None,
    max_bytes=MAX_BATCH_BYTES,
    errors=(413,),
)
def submit_v2(call: Call[SentBatch]) -> bytes:
    """The same; a batch that is too large has an error of its own."""
    return _ingested(call)


@GROUP.operation(
    "POST", "/events/dry-run", takes=SentBatch, gives=DryRunResult, writes=False, reads_bytes=None
)
def dry_run(call: Call[SentBatch]) -> bytes:
    """Tell what would become of a batch. Nothing is stored."""
    sifted = sift(call.tx, call.given.sent)
    owners = customers.match(call.tx, {used.alias for used in sifted.taken})
    inactive = customers.inactive(call.tx, set(owners.values()))
    metered = meterings(call.tx, sifted.taken)
    events = (_foretold(used, owners.get(used.alias), inactive, metered) for used in sifted.taken)
    return _joined("events", events, sifted.refused)


@GROUP.operation("POST", "/v2/events/aggregation", takes=AggregationRequest, gives=Aggregation, writes=False)
def add_up(call: Call[AggregationRequest]) -> Aggregation:
    """Add stored events up, by meter and group."""
    given = call.given
    points = aggregate(call.tx, given)
    return Aggregation(data_points=points, period=given.period, group_by=given.group_by)


def _ingested(call: Call[SentBatch]) -> bytes:
    sifted = ingest(call.tx, call.given.sent)
    return _joined("validEvents", (used.text for used in sifted.taken), sifted.refused)


def _foretold(
    used: Used, customer_id: str | None, inactive: Collection[str], metered: dict[str, list[Metering]]
) -> str:
    is_counted = customer_id not in inactive
    told = {
        "matchedCustomer": customer_id,
        "meterWithValues": [
            {
                "name": metering.meter.name,
                "eventName": metering.meter.event_name,
                "aggregationMethod": metering.method,
                "value": contribution.value,
                "instanceValue": contribution.instance,
            }
            for metering, contribution in looked_at_by(metered, used, is_counted=is_counted)
        ],
    }
    return f'{{"event":{used.text},{strict_json.dumps(told).decode()[1:]}'


def _joined(name: str, events: Iterable[str], refused: Iterable[tuple[str, str]]) -> bytes:
    """The answer; events stand in it in the JSON that they came as."""
    entries = (f'{{"event":{text},"error":{strict_json.dumps(why).decode()}}}' for text, why in refused)
    return f'{{"{name}":[{",".join(events)}],"invalidEvents":[{",".join(entries)}]}}'.encode()
