"""The credit ledger. Source: spec, "Resources and their fields"; "Endpoints", Credits."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources.base import READ_ONLY, Resource
from billhook.resources.paging import Page, PageQuery
from billhook.wire.fields import CustomerId, Flag, JsonObject, ListOf, MaybeListOf, Moment, Number, Text

__all__ = ["CreditLedgerEntry", "CreditLedgerPage", "CreditLedgerQuery", "LedgerIntegration"]


class LedgerIntegration(Resource):
    """A ledger entry's counterpart in another system.

    Source: spec, "Resources and their fields", Credit ledger entry, integrationEntities.
    """

    updated_at: Annotated[
        Moment | None, Field(description="When it was last changed.", examples=["2026-01-15T09:31:00Z"])
    ] = None
    integration_provider: Annotated[
        Text | None, Field(description="The other system.", examples=["NetSuite"])
    ] = None
    integration_external_id: Annotated[
        Text | None, Field(description="Id in that system.", examples=["4711"])
    ] = None
    subsidiary_id: Annotated[Text | None, Field(description="Id of the subsidiary.")] = None
    sync_status: Annotated[
        Text | None, Field(description="How far the two are in step.", examples=["Synced"])
    ] = None
    metadata: Annotated[
        JsonObject | None, Field(description="What else is known of it.", examples=[{"attempt": 1}])
    ] = None
    raw_synced_data: Annotated[
        JsonObject | None, Field(description="What was exchanged.", examples=[{"memo": "top-up"}])
    ] = None


class CreditLedgerEntry(Resource):
    """A change of a customer's credits.

    Source: spec, "Resources and their fields", Credit ledger entry.
    """

    id: Annotated[Text, READ_ONLY, Field(description="Id of the entry.", examples=["cle_81"])]
    created_at: Annotated[
        Moment, READ_ONLY, Field(description="When it was made.", examples=["2026-01-15T09:30:00Z"])
    ]
    type: Annotated[Text | None, Field(description="Kind of change.")] = None
    amount: Annotated[Number | None, Field(description="The change.", examples=[Decimal("-25.00")])] = None
    balance_after_entry: Annotated[
        Number | None, Field(description="The balance from then on.", examples=[Decimal("475.00")])
    ] = None
    invoice_id: Annotated[
        Text | None, Field(description="Id of the invoice it belongs to.", examples=["inv_3007"])
    ] = None
    erp_id: Annotated[Text | None, Field(description="Id in the ERP system.")] = None
    credit_note_number: Annotated[
        Text | None, Field(description="Number of the credit note.", examples=["CN-12"])
    ] = None
    contract_id: Annotated[
        Text | None, Field(description="Id of the contract it belongs to.", examples=["con_2001"])
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

    entries: Annotated[ListOf[CreditLedgerEntry], Field(description="The entries of this page.")]
    has_more: Annotated[Flag, Field(description="Is there another page?", examples=[False])] = False
    total: Annotated[Number | None, Field(description="How many there are on all pages.", examples=[1])] = (
        None
    )
