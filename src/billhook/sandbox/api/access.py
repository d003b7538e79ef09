"""What a client sets up: its login, and webhook subscriptions. Source: spec, "Endpoints", Auth; Webhooks."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictStr

from billhook.events import EVENT_TYPES, PingTest
from billhook.fields.strict_json import datetime_text
from billhook.resources import LoginRequest, LoginResponse, Resource, WebhookSubscription
from billhook.sandbox.errors import invalid_request, not_authenticated
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.options import MAX_LOGIN_BYTES
from billhook.sandbox.tokens import ACCESS_SECONDS, is_active
from billhook.sandbox.webhooks import outbox
from billhook.sandbox.webhooks.addresses import parse_callback_url

AUTH_GROUP = OperationGroup("auth")
WEBHOOKS_GROUP = OperationGroup("webhooks")


@AUTH_GROUP.operation(
    "POST", "/login", takes=LoginRequest, gives=LoginResponse, open=True, reads_bytes=MAX_LOGIN_BYTES
)
def login(call: Call[LoginRequest]) -> LoginResponse:
    """Exchange the API token for an access token that is valid for one hour."""
    if not is_active(call.tx, call.request.refresh_token):
        raise not_authenticated(
            "the refreshToken is not the API token that is active: it is another, or was revoked"
        )
    # The sandbox's time: a moved clock expires access tokens, too.
    token, ends_at = call.services.issue_access_token(call.tx.now)
    return LoginResponse(
        access_token=token, expires_in=Decimal(ACCESS_SECONDS), expires_at=datetime_text(ends_at)
    )


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
    subscription_id = outbox.subscribe(
        call.tx, request.callback_url, request.event_type, request.threshold, request.recurring_threshold
    )
    # Nothing else raises PingTest: its subscription would stay silent.
    if request.event_type == PingTest.type:
        outbox.ping_subscription(call.tx, subscription_id, request.callback_url)
    return Subscribed(id=subscription_id)
