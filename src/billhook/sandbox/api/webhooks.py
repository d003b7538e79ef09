"""Webhook subscriptions. Source: spec, "Endpoints", Webhooks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.events import EVENT_TYPES, PingTest
from billhook.resources import Resource, WebhookSubscription
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.webhooks import subscriptions
from billhook.sandbox.webhooks.addresses import parse_callback_url

__all__ = ["WEBHOOKS_GROUP"]

WEBHOOKS_GROUP = OperationGroup("webhooks")


class Subscribed(Resource, register=False):
    """The response to POST /webhook, which the specification does not describe."""

    id: Annotated[StrictStr, Field(description="Id of the subscription.", examples=["sub_4f0e"])]


@WEBHOOKS_GROUP.operation("POST", "/webhook", takes=WebhookSubscription, gives=Subscribed)
def subscribe(call: Call[WebhookSubscription]) -> Subscribed:
    """Subscribe a URL to a type of event; repeated with the same thresholds, it is the same subscription.

    Other thresholds make another subscription. A subscription to PingTest is sent one at once.
    """
    given = call.given
    if given.event_type not in EVENT_TYPES:
        raise invalid_request(f"eventType is not one of the {len(EVENT_TYPES)} types", "eventType")
    try:
        parse_callback_url(given.callback_url, allow_private=call.tx.options.allow_private)
    except ValueError as error:
        raise invalid_request(str(error), "callbackUrl") from None
    thresholds = {"threshold": given.threshold, "recurringThreshold": given.recurring_threshold}
    for param, threshold in thresholds.items():
        if threshold is not None and threshold <= 0:
            raise invalid_request(f"{param} is a percentage above zero", param)
    subscription_id = subscriptions.subscribe(
        call.tx, given.callback_url, given.event_type, given.threshold, given.recurring_threshold
    )
    if given.event_type == PingTest.type:
        subscriptions.ping(call.tx, subscription_id, given.callback_url)
    return Subscribed(id=subscription_id)
