"""Webhooks. Source: spec, "Endpoints", Webhooks: listing and removing subscriptions is not shown."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.events import Event
from billhook.resources import WebhookSubscription

__all__ = ["SUBSCRIBE", "Webhooks"]

# Whether a second subscription is the same as the first, or sends everything twice, is not shown.
SUBSCRIBE = ApiOperation("POST", "/webhook", repeatable=False)


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
        """POST /webhook: send events of one type, named or by its class of billhook.events, to an address.

        Raises RuleBroken for a threshold of a type that has none. The specification does not show the
        answer: it comes as plain values, {} if there is none.
        """
        name = event_type if isinstance(event_type, str) else event_type.type
        thresholds = {"threshold": threshold, "recurring_threshold": recurring_threshold}
        wanted = {key: value for key, value in thresholds.items() if value is not None}
        subscription = {"callback_url": callback_url, "event_type": name, **wanted}
        return self._session.call_untyped(SUBSCRIBE, encode_body(WebhookSubscription, subscription))
