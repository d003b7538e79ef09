"""How an invoice was paid. Source: spec, "Resources and their fields", Invoice, paymentInfo."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource
from billhook.wire.fields import Number, Text

__all__ = ["DepositTo", "PaymentInfo"]


class DepositTo(Resource):
    """The account a payment went to.

    Source: spec, "Resources and their fields", Invoice, paymentInfo.
    """

    id: Annotated[Text | None, Field(description="Id of the account.", examples=["dep_1"])] = None
    name: Annotated[Text | None, Field(description="Name of the account.", examples=["Checking"])] = None
    integration: Annotated[Text | None, Field(description="The system it is in.", examples=["NetSuite"])] = (
        None
    )


class PaymentInfo(Resource):
    """How an invoice was paid.

    Source: spec, "Resources and their fields", Invoice, paymentInfo.
    """

    transaction_id: Annotated[
        Text | None, Field(description="Id of the transaction.", examples=["txn_90"])
    ] = None
    date: Annotated[
        Text | None,
        Field(
            description="When it was paid; the form is not stated.",
            examples=["2026-01-15T09:29:41Z"],
        ),
    ] = None
    payment_method: Annotated[Text | None, Field(description="How.", examples=["Card"])] = None
    payment_method_id: Annotated[
        Text | None, Field(description="Id of the card, account or the like.", examples=["pm_6"])
    ] = None
    amount: Annotated[Number | None, Field(description="How much.", examples=[Decimal("1249.90")])] = None
    currency: Annotated[Text | None, Field(description="Currency code of it.", examples=["USD"])] = None
    status: Annotated[Text | None, Field(description="State of the payment.")] = None
    note: Annotated[Text | None, Field(description="A remark.")] = None
    customer_id: Annotated[Text | None, Field(description="Who paid.", examples=["cus_1042"])] = None
    deposit_to: Annotated[DepositTo | None, Field(description="Where it went.")] = None
