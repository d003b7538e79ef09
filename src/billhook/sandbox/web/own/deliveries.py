"""The log of deliveries, and sending one again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import ColumnElement, Row

from billhook.resources import PageQuery, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.refusals import invalid_request, not_found
from billhook.sandbox.sending import log, subscriptions
from billhook.sandbox.storage.tables.sending import delivery, raised
from billhook.sandbox.transaction import Transaction
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import Flag, Integer, ListOf, Moment, Number, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/deliveries", prefix="/_sandbox")

FLUSH_SECONDS = 10
MOST_FLUSH_SECONDS = 60


class DeliveryAttempt(Resource, register=False):
    """One try, by the machine's time."""

    number: Annotated[Integer, Field(description="From 1, over all schedules.", examples=[1])]
    started_at: Annotated[Moment, Field(description="When it began.")]
    milliseconds: Annotated[Integer, Field(description="How long it took.", examples=[12])]
    status: Annotated[
        Integer | None, Field(description="The answer's status, if one came.", examples=[200])
    ] = None
    error: Annotated[
        Text | None, Field(description="Why it is no success: one of a few words.", examples=["timed_out"])
    ] = None
    fault: Annotated[
        Text | None,
        Field(description="The fault that struck it, on request; of several, all.", examples=["corrupt"]),
    ] = None
    answer: Annotated[
        Text | None, Field(description="How the answer's body begins, where it is text.", examples=["{}"])
    ] = None


class DeliveryShown(Resource, register=False):
    """One event to one subscription."""

    id: Annotated[Text, Field(description="Its id: the same in each attempt.")]
    raised_id: Annotated[Text, Field(description="Id of the event.")]
    event_type: Annotated[Text, Field(description="The event's type.")]
    subscription_id: Annotated[Text, Field(description="Id of the subscription.")]
    url: Annotated[Text, Field(description="Where it is sent.")]
    state: Annotated[Text, Field(description=f"One of {', '.join(log.STATES)}.", examples=["delivered"])]
    next_attempt_at: Annotated[
        Moment | None, Field(description="When it is sent next, by the machine's time; none: no more.")
    ] = None
    held: Annotated[Flag, Field(description="Does it wait for a later one, by the fault `reorder`?")]
    attempts: Annotated[ListOf[DeliveryAttempt], Field(description="What was tried, oldest first.")]


class DeliveryPage(CountedPage, register=False):
    """A page of deliveries."""

    deliveries: Annotated[ListOf[DeliveryShown], Field(description="The deliveries of this page.")]


class DeliveryQuery(PageQuery, register=False):
    """Which deliveries are wanted."""

    state: Annotated[Text | None, Field(description="Only those in this state.", examples=["failed"])] = None
    event_type: Annotated[Text | None, Field(description="Only those of this type.")] = None
    subscription_id: Annotated[Text | None, Field(description="Only those of this subscription.")] = None
    raised_id: Annotated[Text | None, Field(description="Only those of this event.")] = None


class Flush(Resource, register=False):
    """How long to wait."""

    timeout_seconds: Annotated[
        Number | None, Field(description=f"At most {MOST_FLUSH_SECONDS}.", examples=[FLUSH_SECONDS])
    ] = None


class Flushed(Resource, register=False):
    """What is still to be sent."""

    due: Annotated[Integer, Field(description="How many are due now: none, unless time was short.")]
    pending: Annotated[Integer, Field(description="How many are to be sent now or later.")]
    next_attempt_at: Annotated[Moment | None, Field(description="When the first of them is due.")] = None


@GROUP.operation("GET", "/deliveries", takes=DeliveryQuery, gives=DeliveryPage)
def list_all(call: Call[DeliveryQuery]) -> DeliveryPage:
    """List the deliveries with their attempts, oldest first."""
    given = call.given
    if given.state not in (None, *log.STATES):
        raise invalid_request(f"state is one of {', '.join(log.STATES)}", "state")
    columns: list[tuple[ColumnElement[Any], str | None]] = [
        (delivery.c.state, given.state),
        (raised.c.event_type, given.event_type),
        (delivery.c.subscription_id, given.subscription_id),
        (delivery.c.raised_id, given.raised_id),
    ]
    where = [column == value for column, value in columns if value is not None]
    page = log.deliveries(call.tx, limit_of(given), given.cursor, *where)
    return DeliveryPage(deliveries=_shown(call.tx, page.items), **page.fields())


@GROUP.operation("GET", "/deliveries/{deliveryId}", gives=DeliveryShown)
def get(call: Call[None]) -> DeliveryShown:
    """Get a delivery with its attempts."""
    return _shown(call.tx, [_find(call)])[0]


@GROUP.operation("POST", "/deliveries/{deliveryId}/resend", gives=DeliveryShown)
def resend(call: Call[None]) -> DeliveryShown:
    """Send a delivery again and at once, under the same id, with the whole schedule of retries."""
    found = _find(call)
    if subscriptions.find(call.tx, found.subscription_id) is None:
        raise invalid_request("its subscription was ended: subscribe again", code="subscription_ended")
    log.send_again(call.tx, found.id)
    return _shown(call.tx, [_find(call)])[0]


# It waits for what others write: a write lock held here would stand in their way.
@GROUP.operation("POST", "/flush", takes=Flush, gives=Flushed, writes=False)
def flush(call: Call[Flush]) -> Flushed:
    """Wait until nothing is due now; what comes later, by the schedule or a fault, is not waited for."""
    seconds = FLUSH_SECONDS if call.given.timeout_seconds is None else float(call.given.timeout_seconds)
    if not 0 <= seconds <= MOST_FLUSH_SECONDS:
        raise invalid_request(f"timeoutSeconds is 0 to {MOST_FLUSH_SECONDS}", "timeoutSeconds")
    due = call.sandbox.sender.flush(seconds)
    number, due_at = log.pending(call.tx)
    told = {} if due_at is None else {"next_attempt_at": due_at}
    return Flushed(due=due, pending=number, **told)


def _find(call: Call[Any]) -> Row[Any]:
    found = log.delivery_of(call.tx, call.path["deliveryId"])
    if found is None:
        raise not_found("delivery")
    return found


def _shown(tx: Transaction, rows: Sequence[Row[Any]]) -> list[DeliveryShown]:
    attempts = log.attempts_of(tx, [row.id for row in rows])
    return [
        DeliveryShown(
            **_facts(row, "id", "raised_id", "event_type", "subscription_id", "url", "state", "held"),
            **({} if row.due_at is None else {"next_attempt_at": row.due_at}),
            attempts=[_attempt(one) for one in attempts[row.id]],
        )
        for row in rows
    ]


def _attempt(row: Row[Any]) -> DeliveryAttempt:
    names = ("number", "started_at", "milliseconds", "status", "error", "fault", "answer")
    return DeliveryAttempt(**_facts(row, *names))


def _facts(row: Row[Any], *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(row, name)) is not None}
