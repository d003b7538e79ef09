"""The log of raised events, and raising one on request."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.errors import InvalidResource
from billhook.events import EVENT_TYPES, sample
from billhook.events.samples import in_agreement
from billhook.resources import PageQuery, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.errors import invalid_request, invalid_resource, not_found
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.paging import page_limit
from billhook.sandbox.storage.tables.webhooks import raised_event
from billhook.sandbox.webhooks import delivery_log
from billhook.sandbox.webhooks.outbox import raise_event
from billhook.wire import strict_json
from billhook.wire.fields import JsonObject, ListOf, UtcDatetime
from billhook.wire.parsing import read, require_object

__all__ = ["EVENT_LOG_GROUP", "TRIGGER_GROUP"]

EVENT_LOG_GROUP = OperationGroup("_sandbox/raised", prefix="/_sandbox/raised")
TRIGGER_GROUP = OperationGroup("_sandbox/trigger", prefix="/_sandbox/trigger")


class RaisedQuery(PageQuery, register=False):
    """A filter of events."""

    event_type: Annotated[StrictStr | None, Field(description="Only those of this type.")] = None


class RaisedEvent(Resource, register=False):
    """A raised event."""

    id: Annotated[StrictStr, Field(description="Id of the event.")]
    event_type: Annotated[StrictStr, Field(description="Type of the event, as in X-Webhook-Type.")]
    raised_at: Annotated[UtcDatetime, Field(description="When it was raised, in the service's time.")]
    body: Annotated[JsonObject, Field(description="The body that is sent.", examples=[{}])]


class RaisedPage(CountedPage, register=False):
    """A page of events."""

    raised: Annotated[ListOf[RaisedEvent], Field(description="The events of this page.")]


@EVENT_LOG_GROUP.operation("GET", "", name="list_all", takes=RaisedQuery, gives=RaisedPage)
def list_events(call: Call[RaisedQuery]) -> RaisedPage:
    """List the raised events, oldest first."""
    request = call.request
    # A misspelled type would look like an event that was never raised.
    if request.event_type is not None and request.event_type not in EVENT_TYPES:
        raise invalid_request(f"eventType is not one of the {len(EVENT_TYPES)} types", "eventType")
    where = () if request.event_type is None else (raised_event.c.event_type == request.event_type,)
    page = delivery_log.raised_events(call.tx, page_limit(request), request.cursor, *where)
    events = [
        RaisedEvent(
            id=row.id,
            event_type=row.event_type,
            raised_at=row.raised_at,
            body=require_object(strict_json.loads(row.body), InvalidResource),
        )
        for row in page.items
    ]
    return RaisedPage(raised=events, **page.fields())


class Overrides(Resource, register=False):
    """Fields of the event that replace the sample's."""

    # Without fields of its own: each event type has others, and extra fields are allowed.


class Triggered(Resource, register=False):
    """The event that was raised."""

    raised_id: Annotated[StrictStr, Field(description="Id of the event in the sandbox's log.")]


@TRIGGER_GROUP.operation("POST", "/{eventType}", name="trigger", takes=Overrides, gives=Triggered)
def trigger_event(call: Call[Overrides]) -> Triggered:
    """Raise an event of this type: a valid sample, dated now, with the fields of the request.

    Fields that depend on those are adjusted: without a failure there is no errorMessage.
    """
    model = EVENT_TYPES.get(call.path["eventType"])
    if model is None:
        raise not_found("event type")
    body, request = (
        require_object(strict_json.loads(text), InvalidResource)
        for text in (sample(model).to_json(), call.request.to_json())
    )
    # The sample's date is fixed, so it would contradict the sandbox's clock.
    if "date" in model.model_fields:
        body["date"] = call.tx.now
    # Read as receivers do: the sandbox must not send what a receiver is right to quarantine.
    try:
        event = read(model, in_agreement(model.type, {**body, **request}, request), InvalidResource)
    except InvalidResource as error:
        raise invalid_resource(error) from None
    return Triggered(raised_id=raise_event(call.tx, event))
