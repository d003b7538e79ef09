"""Credits: grants, deductions, top-ups and the ledger.

Source: spec, "Resources and their fields"; "Endpoints", Credits.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr, model_validator

from billhook.errors import FieldMissing
from billhook.fields.types import (
    CreditKindWord,
    CustomerId,
    ExactDecimal,
    InvoiceId,
    JsonObject,
    ListOf,
    MaybeListOf,
    UtcDatetime,
)
from billhook.resources.base import READ_ONLY, Page, PageQuery, Resource
from billhook.resources.integrations import ProductIntegration


class CreditGrant(Resource):
    """Credits put into the pool of a credit product.

    Source: spec, "Resources and their fields", CreditGrant.
    """

    name: Annotated[StrictStr | None, Field(description="Name of the grant.", examples=["Starter pack"])] = (
        None
    )
    credit_product_id: Annotated[
        StrictStr | None, Field(description="Id of the credit product.", examples=["crp_2"])
    ] = None
    balance_kind: Annotated[
        CreditKindWord | None,
        Field(description="Type of credit counted in the pool: Monetary or Unit.", examples=["Monetary"]),
    ] = None
    grant_amount: Annotated[
        ExactDecimal | None, Field(description="Credits granted.", examples=[Decimal("500.00")])
    ] = None
    price: Annotated[
        ExactDecimal | None, Field(description="Price of the credits.", examples=[Decimal("450.00")])
    ] = None
    schedule: Annotated[StrictStr | None, Field(description="Interval at which credits are granted.")] = None
    expiration_date: Annotated[
        UtcDatetime | None,
        Field(description="Expiry date of the credits.", examples=["2027-01-31T00:00:00Z"]),
    ] = None
    expiration_policy: Annotated[StrictStr | None, Field(description="Expiry rule of the credits.")] = None
    apply_automatically: Annotated[
        StrictBool | None, Field(description="Whether credits are applied automatically.")
    ] = None
    external_integrations: Annotated[
        MaybeListOf[ProductIntegration], Field(description="Counterparts at other providers.")
    ] = None


class CreditTopUp(Resource):
    """The request of POST /credits/top-up: an invoice for credits, granted when it is approved.

    Source: spec, "Endpoints", POST /credits/top-up.
    """

    customer_id: CustomerId
    credit_grant: Annotated[CreditGrant, Field(description="Credits to grant, and their price.")]

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
        ExactDecimal, Field(description="Amount of credits to deduct.", examples=[Decimal("25.00")])
    ]
    customer_id: CustomerId


class LedgerIntegration(Resource):
    """A ledger entry's counterpart in another system.

    Source: spec, "Resources and their fields", Credit ledger entry, integrationEntities.
    """

    updated_at: Annotated[
        UtcDatetime | None, Field(description="Time of the last change.", examples=["2026-01-15T09:31:00Z"])
    ] = None
    integration_provider: Annotated[
        StrictStr | None, Field(description="Name of the other system.", examples=["NetSuite"])
    ] = None
    integration_external_id: Annotated[
        StrictStr | None, Field(description="Id in that system.", examples=["4711"])
    ] = None
    subsidiary_id: Annotated[StrictStr | None, Field(description="Id of the subsidiary.")] = None
    sync_status: Annotated[
        StrictStr | None, Field(description="Synchronization status.", examples=["Synced"])
    ] = None
    metadata: Annotated[
        JsonObject | None, Field(description="Additional information.", examples=[{"attempt": 1}])
    ] = None
    raw_synced_data: Annotated[
        JsonObject | None, Field(description="Exchanged data.", examples=[{"memo": "top-up"}])
    ] = None


class CreditLedgerEntry(Resource):
    """A change of a customer's credits.

    Source: spec, "Resources and their fields", Credit ledger entry.
    """

    id: Annotated[StrictStr, READ_ONLY, Field(description="Id of the entry.", examples=["cle_81"])]
    created_at: Annotated[
        UtcDatetime, READ_ONLY, Field(description="Creation time.", examples=["2026-01-15T09:30:00Z"])
    ]
    type: Annotated[StrictStr | None, Field(description="Type of change.")] = None
    amount: Annotated[
        ExactDecimal | None,
        Field(description="Change of the balance, in credits.", examples=[Decimal("-25.00")]),
    ] = None
    balance_after_entry: Annotated[
        ExactDecimal | None,
        Field(description="Balance after the change, in credits.", examples=[Decimal("475.00")]),
    ] = None
    invoice_id: Annotated[
        StrictStr | None, Field(description="Id of the related invoice.", examples=["inv_3007"])
    ] = None
    erp_id: Annotated[StrictStr | None, Field(description="Id in the ERP system.")] = None
    credit_note_number: Annotated[
        StrictStr | None, Field(description="Credit note number.", examples=["CN-12"])
    ] = None
    contract_id: Annotated[
        StrictStr | None, Field(description="Id of the related contract.", examples=["con_2001"])
    ] = None
    integration_entities: Annotated[
        MaybeListOf[LedgerIntegration], Field(description="Counterparts in other systems.")
    ] = None


class CreditLedgerQuery(PageQuery):
    """The query of GET /credits.

    Source: spec, "Endpoints", GET /credits.
    """

    customer_id: CustomerId


class CreditLedgerPage(Page):
    """The response of GET /credits. Only `entries` is stated for it: without `hasMore`, there is more where
    there is a `nextCursor`.

    Source: spec, "Endpoints", GET /credits, and the pagination shape.
    """

    entries: Annotated[ListOf[CreditLedgerEntry], Field(description="Ledger entries of this page.")]
    has_more: Annotated[StrictBool, Field(description="Whether there is another page.", examples=[False])] = (
        False
    )
    total: Annotated[
        ExactDecimal | None, Field(description="Number of entries on all pages.", examples=[1])
    ] = None
