"""Listing, ending and pinging subscriptions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StrictStr
from sqlalchemy import Row

from billhook.resources import PageQuery, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.errors import not_found
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.paging import page_limit
from billhook.sandbox.webhooks import subscriptions
from billhook.wire.fields import ExactDecimal, ListOf, UtcDatetime

__all__ = ["SUBSCRIPTIONS_GROUP"]

SUBSCRIPTIONS_GROUP = OperationGroup("_sandbox/subscriptions", prefix="/_sandbox/subscriptions")


class Subscription(Resource, register=False):
    """A subscription of a URL to a type of event."""

    id: Annotated[StrictStr, Field(description="Id of the subscription.")]
    callback_url: Annotated[StrictStr, Field(description="URL that the events are sent to.")]
    event_type: Annotated[StrictStr, Field(description="Type of the events.")]
    threshold: Annotated[ExactDecimal | None, Field(description="Percentage from which events are sent.")] = (
        None
    )
    recurring_threshold: Annotated[
        ExactDecimal | None, Field(description="Percentage points after which an event is sent again.")
    ] = None
    created_at: Annotated[UtcDatetime, Field(description="When it was created.")]


class SubscriptionPage(CountedPage, register=False):
    """A page of subscriptions."""

    subscriptions: Annotated[ListOf[Subscription], Field(description="The subscriptions of this page.")]


class Pinged(Resource, register=False):
    """The event and delivery of a ping."""

    raised_id: Annotated[StrictStr, Field(description="Id of the event in the sandbox's log.")]
    delivery_id: Annotated[
        StrictStr, Field(description="Id of its delivery; schemes with a message id sign it.")
    ]


@SUBSCRIPTIONS_GROUP.operation("GET", "", takes=PageQuery, gives=SubscriptionPage)
def list_all(call: Call[PageQuery]) -> SubscriptionPage:
    """List the subscriptions, oldest first."""
    page = subscriptions.page(call.tx, page_limit(call.request), call.request.cursor)
    return SubscriptionPage(subscriptions=[_shown(row) for row in page.items], **page.fields())


@SUBSCRIPTIONS_GROUP.operation("DELETE", "/{subscriptionId}", gives=Subscription)
def remove(call: Call[None]) -> Subscription:
    """Delete a subscription; its pending deliveries are cancelled."""
    found = _find(call)
    subscriptions.cancel(call.tx, found.id)
    # The row as it was: there is no other way to see it any more.
    return _shown(found)


@SUBSCRIPTIONS_GROUP.operation("POST", "/{subscriptionId}/ping", gives=Pinged)
def ping(call: Call[None]) -> Pinged:
    """Send a PingTest, for any subscribed type."""
    found = _find(call)
    raised_id, delivery_id = subscriptions.ping(call.tx, found.id, found.callback_url)
    return Pinged(raised_id=raised_id, delivery_id=delivery_id)


def _find(call: Call[Any]) -> Row[Any]:
    found = subscriptions.find(call.tx, call.path["subscriptionId"])
    if found is None:
        raise not_found("subscription")
    return found


def _shown(row: Row[Any]) -> Subscription:
    names = ("id", "callback_url", "event_type", "threshold", "recurring_threshold", "created_at")
    # Null columns are left out: a field that is set to None is sent as null.
    columns = {name: getattr(row, name) for name in names}
    return Subscription(**{name: value for name, value in columns.items() if value is not None})
