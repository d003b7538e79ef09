"""Credits: grants, deductions, top-ups and the ledger.

Source: spec, "Resources and their fields"; "Endpoints", Credits.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr, model_validator

from billhook.errors import FieldMissing
from billhook.fields.model import optional
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
from billhook.resources.base import READ_ONLY, CreatedAt, Page, PageQuery, Resource
from billhook.resources.customers import ProductIntegration


class CreditGrant(Resource):
    """Credits put into the pool of a credit product.

    Source: spec, "Resources and their fields", CreditGrant.
    """

    name: StrictStr | None = optional("Name of the grant.", "Starter pack")
    credit_product_id: StrictStr | None = optional("Id of the credit product.", "crp_2")
    balance_kind: CreditKindWord | None = optional(
        "Type of credit counted in the pool: Monetary or Unit.", "Monetary"
    )
    grant_amount: ExactDecimal | None = optional("Credits granted.", Decimal("500.00"))
    price: ExactDecimal | None = optional("Price of the credits.", Decimal("450.00"))
    schedule: StrictStr | None = optional("Interval at which credits are granted.")
    expiration_date: UtcDatetime | None = optional("Expiry date of the credits.", "2027-01-31T00:00:00Z")
    expiration_policy: StrictStr | None = optional("Expiry rule of the credits.")
    apply_automatically: StrictBool | None = optional("Whether credits are applied automatically.")
    external_integrations: MaybeListOf[ProductIntegration] = optional("Counterparts at other providers.")


TOP_UP_NEEDS = ("name", "creditProductId", "balanceKind", "grantAmount", "schedule")
"""The fields of the grant that a top-up needs."""


class CreditTopUp(Resource):
    """The request of POST /credits/top-up: an invoice for credits, granted when it is approved.

    Source: spec, "Endpoints", POST /credits/top-up.
    """

    customer_id: CustomerId
    credit_grant: CreditGrant = Field(description="Credits to grant, and their price.")

    @model_validator(mode="after")
    def _grant_is_whole(self) -> CreditTopUp:
        given = self.credit_grant.model_dump(by_alias=True)
        missing = [name for name in TOP_UP_NEEDS if given[name] is None]
        if missing:
            raise FieldMissing(
                f"the grant needs {', '.join(TOP_UP_NEEDS)}: give {', '.join(missing)}",
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

    updated_at: UtcDatetime | None = optional("Time of the last change.", "2026-01-15T09:31:00Z")
    integration_provider: StrictStr | None = optional("Name of the other system.", "NetSuite")
    integration_external_id: StrictStr | None = optional("Id in that system.", "4711")
    subsidiary_id: StrictStr | None = optional("Id of the subsidiary.")
    sync_status: StrictStr | None = optional("Synchronization status.", "Synced")
    metadata: JsonObject | None = optional("Additional information.", {"attempt": 1})
    raw_synced_data: JsonObject | None = optional("Exchanged data.", {"memo": "top-up"})


class CreditLedgerEntry(Resource):
    """A change of a customer's credits.

    Source: spec, "Resources and their fields", Credit ledger entry.
    """

    id: Annotated[StrictStr, READ_ONLY] = Field(description="Id of the entry.", examples=["cle_81"])
    created_at: CreatedAt
    type: StrictStr | None = optional("Type of change.")
    amount: ExactDecimal | None = optional("Change of the balance, in credits.", Decimal("-25.00"))
    balance_after_entry: ExactDecimal | None = optional(
        "Balance after the change, in credits.", Decimal("475.00")
    )
    invoice_id: StrictStr | None = optional("Id of the related invoice.", "inv_3007")
    erp_id: StrictStr | None = optional("Id in the ERP system.")
    credit_note_number: StrictStr | None = optional("Credit note number.", "CN-12")
    contract_id: StrictStr | None = optional("Id of the related contract.", "con_2001")
    integration_entities: MaybeListOf[LedgerIntegration] = optional("Counterparts in other systems.")


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
    total: ExactDecimal | None = optional("Number of entries on all pages.", 1)
