"""Contracts. Source: spec, "Resources and their fields", Contract; "Endpoints", Contracts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from billhook.errors import FieldConflict, FieldMissing
from billhook.resources.base import READ_ONLY, WRITE_ONLY, Resource, Stored
from billhook.resources.contract_products import ContractProduct, ProductGroup
from billhook.resources.credits import CreditGrant
from billhook.resources.custom_fields import CustomFieldInput, CustomFieldValue
from billhook.resources.paging import CountedPage, PageQuery
from billhook.wire.fields import CustomerId, Flag, ListOf, MaybeListOf, Moment, Text, recognised

__all__ = ["Contract", "ContractPage", "ContractQuery", "ContractResponse", "ContractStatus", "NewContract"]


class ContractStatus(StrEnum):
    """The states that are listed."""

    IN_REVIEW = "InReview"
    ACTIVE = "Active"


class _Terms(Resource, register=False):
    """What a new contract and a stored one have in common."""

    start_date: Annotated[
        Moment, Field(description="When the contract begins.", examples=["2026-02-01T00:00:00Z"])
    ]
    customer_id: CustomerId
    # No example: a sample has products, and a plan excludes them.
    plan_id: Annotated[
        Text | None, Field(description="Id of the plan to use as it is, instead of products.", examples=[])
    ] = None
    name: Annotated[
        Text | None, Field(description="Name; needed without a plan.", examples=["Acme annual 2026"])
    ] = None
    crm_opportunity_id: Annotated[Text | None, Field(description="Id of the opportunity in the CRM.")] = None
    end_date: Annotated[
        Moment | None, Field(description="When the contract ends.", examples=["2027-01-31T00:00:00Z"])
    ] = None
    signature_date: Annotated[
        Moment | None, Field(description="When it was signed.", examples=["2026-01-14T00:00:00Z"])
    ] = None
    products: Annotated[MaybeListOf[ContractProduct], Field(description="What it sells.")] = None
    credit_grants: Annotated[
        MaybeListOf[CreditGrant], Field(description="Credits that usage products may draw down.")
    ] = None
    product_groups: Annotated[
        MaybeListOf[ProductGroup], Field(description="Products with one line item for each group.")
    ] = None
    account_manager: Annotated[Text | None, Field(description="Who looks after it.")] = None
    should_pro_rate_invoices: Annotated[
        Flag | None,
        Field(
            description="Pro-rate its invoices? False if omitted.", deprecated="the service has deprecated it"
        ),
    ] = None
    auto_renew_contract: Annotated[Flag | None, Field(description="Renew it by itself? True if omitted.")] = (
        None
    )
    custom_fields: Annotated[
        MaybeListOf[CustomFieldInput], WRITE_ONLY, Field(description="Values of custom fields, to be set.")
    ] = None
    custom_field_values: Annotated[
        MaybeListOf[CustomFieldValue], READ_ONLY, Field(description="Values of custom fields, as they are.")
    ] = None
    status: Annotated[
        Annotated[Text, AfterValidator(recognised(ContractStatus))] | None,
        Field(description="State: InReview, Active, or another.", examples=["Active"]),
    ] = None
    purchase_order: Annotated[Text | None, Field(description="Number of the purchase order.")] = None
    currency: Annotated[Text | None, Field(description="Currency code.", examples=["USD"])] = None
    is_trial: Annotated[
        Flag | None,
        Field(description="Is it a trial, and are its invoices? False if omitted.", examples=[False]),
    ] = None
    external_id: Annotated[
        Text | None,
        Field(description="Your own id of it, which may stand for the service's.", examples=["agr-77"]),
    ] = None


class NewContract(_Terms):
    """The request of POST /contracts: a plan, or a name and products.

    Source: spec, "Resources and their fields", Contract; "Endpoints", POST /contracts.
    """

    @model_validator(mode="after")
    def _plan_or_products(self) -> NewContract:
        if not self.plan_id:
            if not self.name:
                raise FieldMissing("name is required when planId is not provided: give one of them", "name")
            return self
        inline = {"products": self.products, "productGroups": self.product_groups}
        given = [name for name, value in inline.items() if value]
        if given:
            raise FieldConflict(
                f"planId and {' and '.join(given)} are mutually exclusive, for the plan is used as is: "
                "give one of them",
                "planId",
                *given,
            )
        return self


class Contract(Stored, _Terms):
    """A contract as the service keeps it.

    Source: spec, "Resources and their fields", Contract.
    """

    deleted_at: Annotated[
        Moment | None,
        READ_ONLY,
        Field(description="When it was deleted, if it was.", examples=["2026-03-01T12:00:00Z"]),
    ] = None


class ContractResponse(Resource):
    """The response of the operations on one contract.

    Source: spec, "Endpoints", Contracts.
    """

    contract: Annotated[Contract, Field(description="The contract.")]


class ContractQuery(PageQuery):
    """The query of GET /contracts.

    Source: spec, "Endpoints", GET /contracts.
    """

    customer_id: Annotated[
        Text | None, Field(description="Only contracts of this customer.", examples=["cus_1042"])
    ] = None
    # No example: a sample has customerId, which excludes it.
    customer_external_id: Annotated[
        Text | None,
        Field(description="Only contracts of the customer with this id of your own.", examples=[]),
    ] = None

    @model_validator(mode="after")
    def _one_customer(self) -> ContractQuery:
        if self.customer_id is not None and self.customer_external_id is not None:
            raise FieldConflict(
                "at most one of customerId and customerExternalId may be given",
                "customerId",
                "customerExternalId",
            )
        return self


class ContractPage(CountedPage):
    """The response of GET /contracts.

    Source: spec, "Endpoints", GET /contracts.
    """

    contracts: Annotated[ListOf[Contract], Field(description="The contracts of this page.")]
