"""Subscriptions: seeing them, ending them, and trying whether they can be reached."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Row

from billhook.resources import PageQuery, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.refusals import not_found
from billhook.sandbox.sending import subscriptions
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import ListOf, Moment, Number, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/subscriptions", prefix="/_sandbox/subscriptions")


class Subscription(Resource, register=False):
    """Who asked for which events."""

    id: Annotated[Text, Field(description="Its id.")]
    callback_url: Annotated[Text, Field(description="Where they are sent.")]
    event_type: Annotated[Text, Field(description="Their type.")]
    threshold: Annotated[Number | None, Field(description="The percentage from which they are sent.")] = None
    recurring_threshold: Annotated[
        Number | None, Field(description="After how many percent more they are sent again.")
    ] = None
    created_at: Annotated[Moment, Field(description="When it was first asked for.")]


class SubscriptionPage(CountedPage, register=False):
    """A page of subscriptions."""

    subscriptions: Annotated[ListOf[Subscription], Field(description="The subscriptions of this page.")]


class Pinged(Resource, register=False):
    """What is being sent."""

    raised_id: Annotated[Text, Field(description="Id of the event in the sandbox's log.")]
    delivery_id: Annotated[Text, Field(description="Id of its delivery, signed where the scheme has one.")]


@GROUP.operation("GET", "", takes=PageQuery, gives=SubscriptionPage)
def list_all(call: Call[PageQuery]) -> SubscriptionPage:
    """List the subscriptions, oldest first."""
    page = subscriptions.page(call.tx, limit_of(call.given), call.given.cursor)
    return SubscriptionPage(subscriptions=[_shown(row) for row in page.items], **page.fields())


@GROUP.operation("DELETE", "/{subscriptionId}", gives=Subscription)
def remove(call: Call[None]) -> Subscription:
    """End a subscription; what is not yet delivered to it is cancelled."""
    found = _find(call)
    subscriptions.cancel(call.tx, found.id)
    return _shown(found)


@GROUP.operation("POST", "/{subscriptionId}/ping", gives=Pinged)
def ping(call: Call[None]) -> Pinged:
    """Send a PingTest, whatever type was asked for."""
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
    facts = {name: getattr(row, name) for name in names}
    return Subscription(**{name: fact for name, fact in facts.items() if fact is not None})
