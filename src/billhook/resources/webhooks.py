"""Asking for webhooks. Source: spec, "Endpoints", Webhooks."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, model_validator

from billhook.errors import FieldConflict
from billhook.resources.base import Resource
from billhook.wire.fields import Number, Text

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
        Text, Field(description="Where to send them.", examples=["https://shop.example/webhooks/billing"])
    ]
    event_type: Annotated[
        Text, Field(description="The type of event, as in X-Webhook-Type.", examples=[_WITH_THRESHOLD[0]])
    ]
    threshold: Annotated[
        Number | None, Field(description="Send them from here on.", examples=[Decimal(80)])
    ] = None
    recurring_threshold: Annotated[
        Number | None, Field(description="Its meaning is not stated.", examples=[Decimal(10)])
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
