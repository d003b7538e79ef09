"""Events about credit pools. Source: spec, "Events"."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr

from billhook.events.base import Event
from billhook.events.fields import PctUsage, RaisedAt, Threshold
from billhook.wire.fields import CustomerId, ExactDecimal, open_enum

__all__ = ["CreditKind", "CreditPoolDepleted", "CreditPoolIncreased", "CreditPoolThresholdCrossed"]


class CreditKind(StrEnum):
    """What a credit is counted in, as far as it is listed."""

    MONETARY = "Monetary"
    UNIT = "Unit"


class _CreditPoolEvent(Event, register=False):
    """What the three events have in common."""

    date: RaisedAt
    customer_id: CustomerId
    credit_pool_id: Annotated[StrictStr, Field(description="Id of the credit pool.", examples=["pool_12"])]
    credit_type_id: Annotated[StrictStr, Field(description="Id of the credit type.", examples=["crt_3"])]
    credit_kind: Annotated[
        StrictStr,
        AfterValidator(open_enum(CreditKind)),
        Field(description="Type of credit: Monetary, Unit, or another.", examples=["Monetary"]),
    ]


class CreditPoolDepleted(_CreditPoolEvent):
    """The last credit of a pool is used.

    Source: spec, "Events".
    """

    balance: Annotated[ExactDecimal, Field(description="Remaining credits: none.", examples=[Decimal(0)])]


class CreditPoolThresholdCrossed(_CreditPoolEvent):
    """Usage of a credit pool passed a threshold set for it.

    Source: spec, "Events".
    """

    threshold: Threshold
    pct_usage: PctUsage
    balance: Annotated[ExactDecimal, Field(description="Remaining credits.", examples=[Decimal("187.50")])]


class CreditPoolIncreased(_CreditPoolEvent):
    """Credits were put into a pool.

    Source: spec, "Events".
    """

    granted_amount: Annotated[ExactDecimal, Field(description="Credits added.", examples=[Decimal("500.00")])]
    previous_balance: Annotated[
        ExactDecimal, Field(description="Balance before, in credits.", examples=[Decimal("187.50")])
    ]
    balance: Annotated[
        ExactDecimal, Field(description="Balance after, in credits.", examples=[Decimal("687.50")])
    ]
