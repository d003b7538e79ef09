"""Listing, ending and pinging subscriptions; injecting faults into their deliveries."""

from __future__ import annotations

import secrets
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, StrictStr
from sqlalchemy import ColumnElement, Row, insert, select

from billhook.fields.types import ExactDecimal, Integer, ListOf, PositiveInt, UtcDatetime
from billhook.resources import CountedPage, PageQuery, Resource
from billhook.sandbox.errors import check_choice, invalid_request, not_found
from billhook.sandbox.operations import Call, OperationGroup, SandboxResource
from billhook.sandbox.options import MAX_FAULT_SECONDS, MAX_TIMES
from billhook.sandbox.storage.database import Transaction, new_id
from billhook.sandbox.storage.repository import requested_page, shown
from billhook.sandbox.storage.tables import fault, subscription
from billhook.sandbox.webhooks import faults, outbox, signing_secrets
from billhook.sandbox.webhooks.faults import SPOILING, TIMED, FaultKind

SUBSCRIPTIONS_GROUP = OperationGroup(
    "_sandbox/subscriptions", prefix="/_sandbox/subscriptions", about="Lists, ends and pings subscriptions."
)
FAULTS_GROUP = OperationGroup(
    "_sandbox/faults", prefix="/_sandbox/faults", about="Injects faults into deliveries."
)


class Subscription(SandboxResource, register=False):
    """A subscription of a URL to a type of event."""

    id: StrictStr
    """Id of the subscription."""
    callback_url: StrictStr
    """URL that the events are sent to."""
    event_type: StrictStr
    """Type of the events."""
    threshold: ExactDecimal | None = None
    """Percentage from which events are sent."""
    recurring_threshold: ExactDecimal | None = None
    """Percentage points after which an event is sent again."""
    created_at: UtcDatetime
    """When it was created."""


class SubscriptionPage(CountedPage, SandboxResource, register=False):
    """A page of subscriptions."""

    subscriptions: ListOf[Subscription]
    """The subscriptions of this page."""


class Pinged(SandboxResource, register=False):
    """The event and delivery of a ping."""

    raised_id: StrictStr
    """Id of the event in the sandbox's log."""
    delivery_id: StrictStr
    """Id of its delivery; schemes with a message id sign it."""


@SUBSCRIPTIONS_GROUP.operation("GET", "")
def list_all(call: Call[PageQuery]) -> SubscriptionPage:
    """List the subscriptions, oldest first."""
    page = requested_page(call.tx, call.request, select(subscription), subscription.c.seq)
    return SubscriptionPage(subscriptions=[shown(Subscription, row) for row in page.items], **page.fields())


@SUBSCRIPTIONS_GROUP.operation("DELETE", "/{subscriptionId}")
def remove(call: Call[None]) -> Subscription:
    """Delete a subscription; its pending deliveries are cancelled."""
    found = _find(call)
    outbox.cancel_subscription(call.tx, found.id)
    # The row as it was: there is no other way to see it any more.
    return shown(Subscription, found)


@SUBSCRIPTIONS_GROUP.operation("POST", "/{subscriptionId}/ping")
def ping(call: Call[None]) -> Pinged:
    """Send a PingTest, for any subscribed type."""
    found = _find(call)
    raised_id, delivery_id = outbox.ping_subscription(call.tx, found.id, found.callback_url)
    return Pinged(raised_id=raised_id, delivery_id=delivery_id)


def _find(call: Call[Any]) -> Row[Any]:
    wanted = select(subscription).where(subscription.c.id == call.path["subscriptionId"])
    found = call.tx.execute(wanted).first()
    if found is None:
        raise not_found("subscription")
    return found


class NewFault(SandboxResource, register=False):
    """A fault to inject. It strikes each delivery once at most; all but `lose` let it arrive in the end."""

    fault: Annotated[StrictStr, Field(description=f"One of {', '.join(FaultKind)}.", examples=["duplicate"])]
    event_type: StrictStr | None = None
    """Only with events of this type."""
    subscription_id: StrictStr | None = None
    """Only with this subscription."""
    probability: Annotated[ExactDecimal | None, Field(examples=[Decimal("0.5")])] = None
    """Share of deliveries that it strikes, above 0 and up to 1; 1 by default."""
    times: Annotated[PositiveInt | None, Field(examples=[3])] = None
    """Number of deliveries to strike; none: all."""
    seconds: Annotated[
        ExactDecimal | None,
        Field(description=f"Seconds of delay (5 by default) and reorder (10), at most {MAX_FAULT_SECONDS}."),
    ] = None
    seed: Annotated[Integer | None, Field(examples=[1])] = None
    """The same seed strikes the same deliveries."""


class Fault(NewFault, SandboxResource, register=False):
    """An active fault."""

    id: StrictStr
    """Id of the fault."""
    struck: Integer
    """Number of deliveries struck so far."""
    created_at: UtcDatetime
    """When it was created."""


class FaultQuery(Resource, register=False):
    """Which faults to remove."""

    fault: Annotated[
        StrictStr | None,
        Field(description=f"Only those of this kind: {', '.join(FaultKind)}.", examples=["duplicate"]),
    ] = None


class FaultList(SandboxResource, register=False):
    """All active faults."""

    faults: ListOf[Fault]
    """In the order in which they are applied."""


@FAULTS_GROUP.operation("POST", "", name="add")
def add_fault(call: Call[NewFault]) -> Fault:
    """Inject a fault from now on. Of several that match a delivery, the oldest strikes first."""
    tx, request = call.tx, call.request
    _check_fault(tx, request)
    kind = FaultKind(request.fault)
    # Stored, also a random one, so that GET shows how to repeat this run.
    seed = next(
        one
        for one in (request.seed, tx.options.effective_random_seed, secrets.randbits(31))
        if one is not None
    )
    names = {"event_type", "subscription_id", "probability", "times", "seconds"}
    defaults = {"probability": Decimal(1), "seconds": TIMED.get(kind)}
    values = {**defaults, **request.model_dump(include=names, exclude_none=True)}
    made = insert(fault).values(id=new_id("flt"), kind=kind, seed=str(seed), created_at=tx.now, **values)
    return _fault(tx.execute(made.returning(fault)).one())


@FAULTS_GROUP.operation("GET", "", name="list_all")
def list_faults(call: Call[None]) -> FaultList:
    """List the active faults, and how often each struck."""
    return _faults(call.tx)


@FAULTS_GROUP.operation("DELETE", "", name="clear")
def clear_faults(call: Call[FaultQuery]) -> FaultList:
    """Remove all faults, or those of one kind. Responds with the removed faults.

    Deliveries that `reorder` holds are sent at once.
    """
    kind = call.request.fault
    check_choice(kind, FaultKind, "fault")
    # Read before they are deleted: `struck` is the result of a test.
    where = () if kind is None else (fault.c.kind == kind,)
    removed = _faults(call.tx, *where)
    faults.clear(call.tx, kind)
    return removed


def _faults(tx: Transaction, *where: ColumnElement[bool]) -> FaultList:
    rows = tx.execute(select(fault).where(*where).order_by(fault.c.seq))
    return FaultList(faults=[_fault(row) for row in rows])


def _check_fault(tx: Transaction, request: NewFault) -> None:
    check_choice(request.fault, FaultKind, "fault")
    kind = FaultKind(request.fault)
    outbox.check_event_type(request.event_type)
    # A fault for an unknown subscription would never strike.
    known = subscription.c.id == request.subscription_id
    if request.subscription_id is not None and not tx.any(subscription, known):
        raise invalid_request("there is no such subscription", "subscriptionId")
    if request.probability is not None and not 0 < request.probability <= 1:
        raise invalid_request("probability is over 0, and 1 at most", "probability")
    if request.times is not None and request.times > MAX_TIMES:
        raise invalid_request(f"times is {MAX_TIMES} at most; leave it out to strike all", "times")
    if request.seconds is not None and kind not in TIMED:
        raise invalid_request(f"seconds are for {' and '.join(TIMED)} only: leave them out", "seconds")
    if request.seconds is not None and not 0 < request.seconds <= MAX_FAULT_SECONDS:
        raise invalid_request(f"seconds are over 0, and {MAX_FAULT_SECONDS} at most", "seconds")
    # Such a delivery arrives in the end: a spoiled attempt needs one after it.
    if kind in SPOILING and not tx.options.retry_seconds:
        raise invalid_request("nothing would come after it: the sandbox has no retries", "fault")
    # Receivers can refuse an old delivery only by the signed time.
    if kind is FaultKind.STALE and not signing_secrets.current_signer(tx).scheme.signs_time:
        name = tx.options.scheme.name
        raise invalid_request(f"{name} signs no time here: no delivery can be stale", "fault")


def _fault(row: Row[Any]) -> Fault:
    return shown(Fault, row, fault=row.kind, seed=int(row.seed))
