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
    """Subscribe a URL to a type of event. Repeating a request returns the same subscription.

    Other thresholds make another subscription. A new subscription to PingTest receives one at once.
    """
    request = call.request
    if request.event_type not in EVENT_TYPES:
        raise invalid_request(f"eventType is not one of the {len(EVENT_TYPES)} types", "eventType")
    # The sender checks the URL again before each attempt; here the caller learns of a mistake.
    try:
        parse_callback_url(request.callback_url, allow_private=call.tx.options.allow_private)
    except ValueError as error:
        raise invalid_request(str(error), "callbackUrl") from None
    thresholds = {"threshold": request.threshold, "recurringThreshold": request.recurring_threshold}
    for param, threshold in thresholds.items():
        # Any usage would cross a threshold of zero.
        if threshold is not None and threshold <= 0:
            raise invalid_request(f"{param} is a percentage above zero", param)
    subscription_id = subscriptions.subscribe(
        call.tx, request.callback_url, request.event_type, request.threshold, request.recurring_threshold
    )
    # Nothing else raises PingTest: its subscription would stay silent.
    if request.event_type == PingTest.type:
        subscriptions.ping(call.tx, subscription_id, request.callback_url)
    return Subscribed(id=subscription_id)
