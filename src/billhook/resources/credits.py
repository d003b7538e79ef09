"""Credits: granting and deducting them. Source: spec, "Resources and their fields"; "Endpoints", Credits."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, model_validator

from billhook.errors import FieldMissing
from billhook.resources.base import Resource
from billhook.resources.integrations import ProductIntegration
from billhook.wire.fields import CustomerId, Flag, InvoiceId, MaybeListOf, Moment, Number, Text

__all__ = ["CreditDeduction", "CreditGrant", "CreditTopUp", "CreditTopUpResponse"]


class CreditGrant(Resource):
    """Credits put into the pool of a credit product.

    Source: spec, "Resources and their fields", CreditGrant.
    """

    name: Annotated[Text | None, Field(description="Name of the grant.", examples=["Starter pack"])] = None
    credit_product_id: Annotated[
        Text | None, Field(description="Id of the credit product.", examples=["crp_2"])
    ] = None
    balance_kind: Annotated[Text | None, Field(description="What is counted in the pool.")] = None
    grant_amount: Annotated[
        Number | None, Field(description="Credits granted.", examples=[Decimal("500.00")])
    ] = None
    price: Annotated[
        Number | None, Field(description="What is charged for them.", examples=[Decimal("450.00")])
    ] = None
    schedule: Annotated[Text | None, Field(description="How often they are granted.")] = None
    expiration_date: Annotated[
        Moment | None, Field(description="When they expire.", examples=["2027-01-31T00:00:00Z"])
    ] = None
    expiration_policy: Annotated[Text | None, Field(description="What makes them expire.")] = None
    apply_automatically: Annotated[
        Flag | None, Field(description="Are they used without being asked for?")
    ] = None
    external_integrations: Annotated[
        MaybeListOf[ProductIntegration], Field(description="Counterparts at other providers.")
    ] = None


class CreditTopUp(Resource):
    """The request of POST /credits/top-up: an invoice for credits, granted when it is approved.

    Source: spec, "Endpoints", POST /credits/top-up.
    """

    customer_id: CustomerId
    credit_grant: Annotated[CreditGrant, Field(description="The credits, and their price.")]

    @model_validator(mode="after")
    def _grant_is_whole(self) -> CreditTopUp:
        grant = self.credit_grant
        needed = {
            "name": grant.name,
            "creditProductId": grant.credit_product_id,
            "balanceKind": grant.balance_kind,
            "grantAmount": grant.grant_amount,
            "schedule": grant.schedule,
        }
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            raise FieldMissing(
                f"the grant needs {', '.join(needed)}: give {', '.join(missing)}",
                *(f"creditGrant.{name}" for name in missing),
            )
        return self


class CreditTopUpResponse(Resource):
    """The response of POST /credits/top-up.

    Source: spec, "Endpoints", POST /credits/top-up.
    """

    invoice_id: InvoiceId
    customer_id: CustomerId


class CreditDeduction(Resource):
    """The request of POST /credits/deduct.

    Source: spec, "Endpoints", POST /credits/deduct.
    """

    credit_amount: Annotated[
        Number, Field(description="What is subtracted from the account.", examples=[Decimal("25.00")])
    ]
    customer_id: CustomerId
