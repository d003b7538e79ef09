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
from billhook.resources.customers import ProductIntegration


class CreditGrant(Resource):
    """Credits put into the pool of a credit product.

    Source: spec, "Resources and their fields", CreditGrant.
    """

    name: StrictStr | None = Field(default=None, description="Name of the grant.", examples=["Starter pack"])
    credit_product_id: StrictStr | None = Field(
        default=None, description="Id of the credit product.", examples=["crp_2"]
    )
    balance_kind: CreditKindWord | None = Field(
        default=None,
        description="Type of credit counted in the pool: Monetary or Unit.",
        examples=["Monetary"],
    )
    grant_amount: ExactDecimal | None = Field(
        default=None, description="Credits granted.", examples=[Decimal("500.00")]
    )
    price: ExactDecimal | None = Field(
        default=None, description="Price of the credits.", examples=[Decimal("450.00")]
    )
    schedule: StrictStr | None = Field(default=None, description="Interval at which credits are granted.")
    expiration_date: UtcDatetime | None = Field(
        default=None, description="Expiry date of the credits.", examples=["2027-01-31T00:00:00Z"]
    )
    expiration_policy: StrictStr | None = Field(default=None, description="Expiry rule of the credits.")
    apply_automatically: StrictBool | None = Field(
        default=None, description="Whether credits are applied automatically."
    )
    external_integrations: MaybeListOf[ProductIntegration] = Field(
        default=None, description="Counterparts at other providers."
    )


class CreditTopUp(Resource):
    """The request of POST /credits/top-up: an invoice for credits, granted when it is approved.

    Source: spec, "Endpoints", POST /credits/top-up.
    """

    customer_id: CustomerId
    credit_grant: CreditGrant = Field(description="Credits to grant, and their price.")

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

    credit_amount: ExactDecimal = Field(
        description="Amount of credits to deduct.", examples=[Decimal("25.00")]
    )
    customer_id: CustomerId


class LedgerIntegration(Resource):
    """A ledger entry's counterpart in another system.

    Source: spec, "Resources and their fields", Credit ledger entry, integrationEntities.
    """

    updated_at: UtcDatetime | None = Field(
        default=None, description="Time of the last change.", examples=["2026-01-15T09:31:00Z"]
    )
    integration_provider: StrictStr | None = Field(
        default=None, description="Name of the other system.", examples=["NetSuite"]
    )
    integration_external_id: StrictStr | None = Field(
        default=None, description="Id in that system.", examples=["4711"]
    )
    subsidiary_id: StrictStr | None = Field(default=None, description="Id of the subsidiary.")
    sync_status: StrictStr | None = Field(
        default=None, description="Synchronization status.", examples=["Synced"]
    )
    metadata: JsonObject | None = Field(
        default=None, description="Additional information.", examples=[{"attempt": 1}]
    )
    raw_synced_data: JsonObject | None = Field(
        default=None, description="Exchanged data.", examples=[{"memo": "top-up"}]
    )


class CreditLedgerEntry(Resource):
    """A change of a customer's credits.

    Source: spec, "Resources and their fields", Credit ledger entry.
    """

    id: Annotated[StrictStr, READ_ONLY] = Field(description="Id of the entry.", examples=["cle_81"])
    created_at: Annotated[UtcDatetime, READ_ONLY] = Field(
        description="Creation time.", examples=["2026-01-15T09:30:00Z"]
    )
    type: StrictStr | None = Field(default=None, description="Type of change.")
    amount: ExactDecimal | None = Field(
        default=None, description="Change of the balance, in credits.", examples=[Decimal("-25.00")]
    )
    balance_after_entry: ExactDecimal | None = Field(
        default=None, description="Balance after the change, in credits.", examples=[Decimal("475.00")]
    )
    invoice_id: StrictStr | None = Field(
        default=None, description="Id of the related invoice.", examples=["inv_3007"]
    )
    erp_id: StrictStr | None = Field(default=None, description="Id in the ERP system.")
    credit_note_number: StrictStr | None = Field(
        default=None, description="Credit note number.", examples=["CN-12"]
    )
    contract_id: StrictStr | None = Field(
        default=None, description="Id of the related contract.", examples=["con_2001"]
    )
    integration_entities: MaybeListOf[LedgerIntegration] = Field(
        default=None, description="Counterparts in other systems."
    )


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

    entries: ListOf[CreditLedgerEntry] = Field(description="Ledger entries of this page.")
    has_more: StrictBool = Field(
        default=False, description="Whether there is another page.", examples=[False]
    )
    total: ExactDecimal | None = Field(
        default=None, description="Number of entries on all pages.", examples=[1]
    )
