"""The log of raised events and of their deliveries: raising, resending, and waiting until nothing is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictStr
from sqlalchemy import Row, func, select

from billhook.errors import InvalidResource
from billhook.events import EVENT_TYPES, sample
from billhook.events.samples import in_agreement
from billhook.fields import strict_json
from billhook.fields.model import read, require_object
from billhook.fields.types import ExactDecimal, Integer, JsonObject, ListOf, UtcDatetime
from billhook.resources import CountedPage, PageQuery, Resource
from billhook.sandbox.errors import check_choice, invalid_request, invalid_resource, not_found
from billhook.sandbox.operations import Call, OperationGroup, SandboxResource, Services
from billhook.sandbox.options import MAX_FLUSH_SECONDS
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import matching, requested_page, shown
from billhook.sandbox.storage.tables import delivery, raised_event, subscription
from billhook.sandbox.webhooks import outbox
from billhook.sandbox.webhooks.outbox import raise_event

DELIVERIES_GROUP = OperationGroup(
    "_sandbox/deliveries",
    prefix="/_sandbox",
    about="Lists deliveries with their attempts, and sends them again.",
)
_DELIVERIES = select(delivery, raised_event.c.event_type).join(
    raised_event, raised_event.c.id == delivery.c.raised_id
)
"""Deliveries with the type of their event."""
# A waiting request occupies one of the few threads of the server.
FLUSH_SECONDS = 10
EVENT_LOG_GROUP = OperationGroup("_sandbox/raised", prefix="/_sandbox/raised", about="Lists raised events.")
TRIGGER_GROUP = OperationGroup("_sandbox/trigger", prefix="/_sandbox/trigger", about="Raises any event.")


class DeliveryAttempt(SandboxResource, register=False):
    """One attempt, in the machine's time."""

    number: Annotated[Integer, Field(examples=[1])]
    """Number of the attempt, from 1, across resends."""
    started_at: UtcDatetime
    """When the attempt began."""
    milliseconds: Annotated[Integer, Field(examples=[12])]
    """Duration in milliseconds."""
    status: Annotated[Integer | None, Field(examples=[200])] = None
    """Status of the response, if there was one."""
    error: Annotated[StrictStr | None, Field(examples=["timed_out"])] = None
    """Why the attempt failed, as one of a fixed set of words."""
    fault: Annotated[StrictStr | None, Field(examples=["corrupt"])] = None
    """The injected faults that struck the attempt."""
    answer: Annotated[StrictStr | None, Field(examples=["{}"])] = None
    """The beginning of the response's body, if it is text."""


class DeliveryShown(SandboxResource, register=False):
    """The delivery of one event to one subscription."""

    id: StrictStr
    """Id of the delivery, the same in each attempt."""
    raised_id: StrictStr
    """Id of the event."""
    event_type: StrictStr
    """The event's type."""
    subscription_id: StrictStr
    """Id of the subscription."""
    url: StrictStr
    """URL that it is sent to."""
    state: Annotated[
        StrictStr, Field(description=f"One of {', '.join(outbox.STATES)}.", examples=["delivered"])
    ]
    next_attempt_at: UtcDatetime | None = None
    """When it is sent next, in the machine's time; none: never."""
    held: StrictBool
    """True while the fault `reorder` holds it for a later delivery."""
    attempts: ListOf[DeliveryAttempt]
    """The attempts, oldest first."""


class DeliveryPage(CountedPage, SandboxResource, register=False):
    """A page of deliveries."""

    deliveries: ListOf[DeliveryShown]
    """The deliveries of this page."""


class DeliveryQuery(PageQuery, SandboxResource, register=False):
    """A filter of deliveries."""

    state: Annotated[StrictStr | None, Field(examples=["failed"])] = None
    """Only those in this state."""
    event_type: StrictStr | None = None
    """Only those of this type."""
    subscription_id: StrictStr | None = None
    """Only those of this subscription."""
    raised_id: StrictStr | None = None
    """Only those of this event."""


class Flush(Resource, register=False):
    """The limit of the wait."""

    timeout_seconds: Annotated[
        ExactDecimal | None,
        Field(description=f"Seconds to wait, at most {MAX_FLUSH_SECONDS}.", examples=[FLUSH_SECONDS]),
    ] = None


class Flushed(SandboxResource, register=False):
    """The deliveries that are not sent yet."""

    due: Integer
    """Number of deliveries due now: 0, unless the wait timed out."""
    pending: Integer
    """Number of deliveries to be sent now or later."""
    next_attempt_at: UtcDatetime | None = None
    """When the first of them is due."""


@DELIVERIES_GROUP.operation("GET", "/deliveries")
def list_all(call: Call[DeliveryQuery]) -> DeliveryPage:
    """List the deliveries with their attempts, oldest first."""
    request = call.request
    # A misspelled state would look like a log without such deliveries.
    check_choice(request.state, outbox.STATES, "state")
    where = matching(
        (delivery.c.state, request.state),
        (raised_event.c.event_type, request.event_type),
        (delivery.c.subscription_id, request.subscription_id),
        (delivery.c.raised_id, request.raised_id),
    )
    page = requested_page(call.tx, request, _DELIVERIES.where(*where), delivery.c.seq)
    return DeliveryPage(deliveries=_shown(call.tx, page.items), **page.fields())


@DELIVERIES_GROUP.operation("GET", "/deliveries/{deliveryId}")
def get(call: Call[None]) -> DeliveryShown:
    """Get a delivery with its attempts."""
    return _shown(call.tx, [_find(call)])[0]


@DELIVERIES_GROUP.operation("POST", "/deliveries/{deliveryId}/resend")
def resend(call: Call[None]) -> DeliveryShown:
    """Send a delivery again at once, under the same id, with the whole schedule of retries."""
    found = _find(call)
    # The sender selects by the URLs of subscriptions: without one it would never send the delivery.
    if not call.tx.any(subscription, subscription.c.id == found.subscription_id):
        raise invalid_request("its subscription was ended: subscribe again", code="subscription_ended")
    outbox.send_again(call.tx, found.id)
    # Read again: `found` is from before the change.
    return _shown(call.tx, [_find(call)])[0]


def _flush(request: Flush, services: Services) -> int:
    seconds = FLUSH_SECONDS if request.timeout_seconds is None else float(request.timeout_seconds)
    if not 0 <= seconds <= MAX_FLUSH_SECONDS:
        raise invalid_request(f"timeoutSeconds is 0 to {MAX_FLUSH_SECONDS}", "timeoutSeconds")
    return services.flush(seconds)


@DELIVERIES_GROUP.operation("POST", "/flush", writes=False, waits=_flush)
def flush(call: Call[Flush]) -> Flushed:
    """Wait until no delivery is due now. It does not wait for later retries and delayed deliveries."""
    figures = func.count().label("pending"), func.min(delivery.c.due_at).label("next_attempt_at")
    unsent = select(*figures).where(delivery.c.due_at.is_not(None))
    return shown(Flushed, call.tx.execute(unsent).one(), due=call.waited)


def _find(call: Call[Any]) -> Row[Any]:
    wanted = _DELIVERIES.where(delivery.c.id == call.path["deliveryId"])
    found = call.tx.execute(wanted).first()
    if found is None:
        raise not_found("delivery")
    return found


def _shown(tx: Transaction, rows: Sequence[Row[Any]]) -> list[DeliveryShown]:
    # One query for the attempts of all deliveries on the page.
    attempts = outbox.attempts_of(tx, [row.id for row in rows])
    return [
        shown(
            DeliveryShown,
            row,
            next_attempt_at=row.due_at,
            attempts=[shown(DeliveryAttempt, one) for one in attempts[row.id]],
        )
        for row in rows
    ]


class RaisedQuery(PageQuery, SandboxResource, register=False):
    """A filter of events."""

    event_type: StrictStr | None = None
    """Only those of this type."""


class RaisedEvent(SandboxResource, register=False):
    """A raised event."""

    id: StrictStr
    """Id of the event."""
    event_type: StrictStr
    """Type of the event, as in X-Webhook-Type."""
    raised_at: UtcDatetime
    """When it was raised, in the service's time."""
    body: Annotated[JsonObject, Field(examples=[{}])]
    """The body that is sent."""


class RaisedPage(CountedPage, SandboxResource, register=False):
    """A page of events."""

    raised: ListOf[RaisedEvent]
    """The events of this page."""


@EVENT_LOG_GROUP.operation("GET", "", name="list_all")
def list_events(call: Call[RaisedQuery]) -> RaisedPage:
    """List the raised events, oldest first."""
    request = call.request
    # A misspelled type would look like an event that was never raised.
    outbox.check_event_type(request.event_type)
    query = select(raised_event).where(*matching((raised_event.c.event_type, request.event_type)))
    page = requested_page(call.tx, request, query, raised_event.c.seq)
    events = [shown(RaisedEvent, row, body=strict_json.loads(row.body)) for row in page.items]
    return RaisedPage(raised=events, **page.fields())


class Overrides(Resource, register=False):
    """Fields of the event that replace the sample's."""

    # Without fields of its own: each event type has others, and extra fields are allowed.


class Triggered(SandboxResource, register=False):
    """The event that was raised."""

    raised_id: StrictStr
    """Id of the event in the sandbox's log."""


@TRIGGER_GROUP.operation("POST", "/{eventType}", name="trigger")
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
