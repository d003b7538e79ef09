"""Logging in, and asking for webhooks. Source: spec, "Endpoints", Auth; Webhooks; "Authentication"."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StrictStr, model_validator

from billhook.errors import FieldConflict
from billhook.fields.model import optional
from billhook.fields.types import ExactDecimal
from billhook.resources.base import WRITE_ONLY, Resource

WITH_THRESHOLD = (
    "CommitmentUsageCrossed",
    "CurrencyCommitmentUsageCrossed",
    "CreditPoolThresholdCrossed",
)


class _Tokens(Resource, register=False):
    """Base of models with tokens: their repr and errors show neither tokens nor unknown fields."""

    model_config = ConfigDict(hide_input_in_errors=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [(name, value) for name, value in super().__repr_args__() if name in type(self).model_fields]


class LoginRequest(_Tokens):
    """The request of POST /login. Its token is in no `repr` and in no error.

    Source: spec, "Endpoints", POST /login.
    """

    refresh_token: Annotated[StrictStr, WRITE_ONLY] = Field(
        description="Long-lived API token, created in the dashboard.", repr=False
    )


class LoginResponse(_Tokens):
    """The response of POST /login. Its token is in no `repr` and in no error.

    Source: spec, "Endpoints", POST /login.
    """

    access_token: StrictStr = Field(
        description="Token for the header Authorization: Bearer; valid for one hour.", repr=False
    )
    expires_in: ExactDecimal = Field(
        description="Lifetime of the token; the unit is not stated.", examples=[Decimal(3600)]
    )
    # Text, as in the specification: a login must not fail because of the format of an unused field.
    expires_at: StrictStr = Field(
        description="Expiry time of the token; the format is not stated.", examples=["2026-01-15T10:30:00Z"]
    )


class WebhookSubscription(Resource):
    """The request of POST /webhook: send events of one type to an address.

    Source: spec, "Endpoints", POST /webhook.
    """

    callback_url: StrictStr = Field(
        description="URL that receives the events.", examples=["https://shop.example/webhooks/billing"]
    )
    event_type: StrictStr = Field(
        description="Event type, as in X-Webhook-Type.", examples=[WITH_THRESHOLD[0]]
    )
    threshold: ExactDecimal | None = optional(
        "Threshold from which events are sent, in percent.", Decimal(80)
    )
    recurring_threshold: ExactDecimal | None = optional(
        "Recurring threshold; its meaning is not stated.", Decimal(10)
    )

    @model_validator(mode="after")
    def _threshold_applies(self) -> WebhookSubscription:
        values = {"threshold": self.threshold, "recurringThreshold": self.recurring_threshold}
        given = [name for name, value in values.items() if value is not None]
        if given and self.event_type not in WITH_THRESHOLD:
            raise FieldConflict(
                f"threshold and recurringThreshold apply to {', '.join(WITH_THRESHOLD)} only: "
                f"leave {' and '.join(given)} out for {self.event_type}",
                *given,
            )
        return self
