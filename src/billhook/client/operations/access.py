"""What a client sets up: its login, and webhook subscriptions.

Source: spec, "Endpoints", Auth; Webhooks, which shows no listing or removing of subscriptions.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.events import Event
from billhook.resources import WebhookSubscription

__all__ = ["SUBSCRIBE", "Auth", "Webhooks"]

# Not repeatable: the specification does not show whether a second request makes a second subscription.
SUBSCRIBE = ApiOperation("POST", "/webhook", repeatable=False)


class Auth(ApiGroup):
    """The login. Every other operation logs in by itself when it needs a token."""

    def login(self) -> datetime:
        """Fetch a new access token now, to check the credentials; return when it expires (UTC).

        The token stays in the client. Calls POST /login. Raises AuthenticationFailed, or another ApiError.
        """
        return self._session.log_in()


class Webhooks(ApiGroup):
    """Subscriptions to events."""

    def subscribe(
        self,
        callback_url: str,
        event_type: str | type[Event],
        *,
        threshold: Decimal | int | float | None = None,
        recurring_threshold: Decimal | int | float | None = None,
    ) -> dict[str, Any]:
        """Subscribe a URL to one type of event: its name, or its class in billhook.events.

        Calls POST /webhook. Returns the response as plain values, {} if it is empty: the specification does
        not show it. Raises RuleBroken for a threshold of a type that has none.
        """
        name = event_type if isinstance(event_type, str) else event_type.type
        # Null and absent may differ for the service: only given thresholds are sent.
        thresholds = {"threshold": threshold, "recurring_threshold": recurring_threshold}
        present = {key: value for key, value in thresholds.items() if value is not None}
        subscription = {"callback_url": callback_url, "event_type": name, **present}
        return self._session.call_untyped(SUBSCRIBE, encode_body(WebhookSubscription, subscription))
