"""Asking for webhooks. Source: spec, "Endpoints", Webhooks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.events import EVENT_TYPES, PingTest
from billhook.resources import Resource, WebhookSubscription
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.sending import subscriptions
from billhook.sandbox.sending.addresses import target_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import Text

__all__ = ["GROUP"]

GROUP = Group("webhooks")


class Subscribed(Resource, register=False):
    """The answer to POST /webhook: the specification does not show it."""

    id: Annotated[Text, Field(description="Id of the subscription.", examples=["sub_4f0e"])]


@GROUP.operation("POST", "/webhook", takes=WebhookSubscription, gives=Subscribed)
def subscribe(call: Call[WebhookSubscription]) -> Subscribed:
    """Send events of one type to an address; asked for again with the same thresholds, it is the same.

    With other thresholds it is one more. A subscription to PingTest is sent one at once.
    """
    given = call.given
    if given.event_type not in EVENT_TYPES:
        raise invalid_request(f"eventType is not one of the {len(EVENT_TYPES)} types", "eventType")
    try:
        target_of(given.callback_url, allow_private=call.tx.options.allow_private)
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
