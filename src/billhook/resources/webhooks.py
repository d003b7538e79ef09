"""Asking for webhooks. Source: spec, "Endpoints", Webhooks."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictStr, model_validator

from billhook.errors import FieldConflict
from billhook.resources.base import Resource
from billhook.wire.fields import ExactDecimal

__all__ = ["WebhookSubscription"]

_WITH_THRESHOLD = (
    "CommitmentUsageCrossed",
    "CurrencyCommitmentUsageCrossed",
    "CreditPoolThresholdCrossed",
)


class WebhookSubscription(Resource):
    """The request of POST /webhook: send events of one type to an address.

    Source: spec, "Endpoints", POST /webhook.
    """

    callback_url: Annotated[
        StrictStr,
        Field(
            description="URL that receives the events.", examples=["https://shop.example/webhooks/billing"]
        ),
    ]
    event_type: Annotated[
        StrictStr,
        Field(description="Event type, as in X-Webhook-Type.", examples=[_WITH_THRESHOLD[0]]),
    ]
    threshold: Annotated[
        ExactDecimal | None,
        Field(description="Threshold from which events are sent, in percent.", examples=[Decimal(80)]),
    ] = None
    recurring_threshold: Annotated[
        ExactDecimal | None,
        Field(description="Recurring threshold; its meaning is not stated.", examples=[Decimal(10)]),
    ] = None

    @model_validator(mode="after")
    def _threshold_applies(self) -> WebhookSubscription:
        values = {"threshold": self.threshold, "recurringThreshold": self.recurring_threshold}
        given = [name for name, value in values.items() if value is not None]
        if given and self.event_type not in _WITH_THRESHOLD:
            raise FieldConflict(
                f"threshold and recurringThreshold apply to {', '.join(_WITH_THRESHOLD)} only: "
                f"leave {' and '.join(given)} out for {self.event_type}",
                *given,
            )
        return self
