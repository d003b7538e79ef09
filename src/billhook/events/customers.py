"""Events about customers, their contracts and the portal. Source: spec, "Events"."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import FailFast, Field, StrictBool, StrictStr

from billhook.events.base import (
    ContractId,
    ContractName,
    CustomerName,
    Event,
    ExternalId,
    NameOfCustomer,
    RaisedAt,
)
from billhook.fields import WireModel
from billhook.fields.model import optional
from billhook.fields.types import Aliases, CustomerId, UtcDatetime
from billhook.fields.unstated import FLAG_IN_TEXT, LIST_IN_TEXT


class AnonymousCustomer(Event):
    """Usage arrived under an alias that no customer has, so an anonymous customer was created.

    Source: spec, "Events", rule 5.
    """

    identify = ("id", "external_id")

    id: StrictStr = Field(description="Id of the new, anonymous customer.", examples=["cus_9001"])
    name: StrictStr = Field(description="Name assigned to the customer.", examples=["acme-trial"])
    external_id: ExternalId = None
    aliases: Aliases


class IntegrationEntity(WireModel):
    """A customer's counterpart in another system. Source: spec, "Events", CustomerCreated."""

    integration_provider: StrictStr = Field(description="Name of the other system.", examples=["Salesforce"])
    integration_external_id: StrictStr = Field(
        description="Id of the entity in that system.", examples=["0015g00000XyZ"]
    )
    sync_status: StrictStr = Field(description="Synchronization status.", examples=["Synced"])


class NewCustomer(WireModel):
    """A customer as told when it was created. Source: spec, "Events", CustomerCreated and ContractCreated."""

    date: RaisedAt
    customer_id: CustomerId
    name: NameOfCustomer
    external_id: ExternalId = None
    aliases: Annotated[Aliases, LIST_IN_TEXT]
    integration_entities: Annotated[list[IntegrationEntity], FailFast()] = Field(
        description="Counterparts of the customer in other systems."
    )


class CustomerCreated(NewCustomer, Event):
    """A customer was added.

    Source: spec, "Events".
    """

    identify = ("customer_id", "external_id")


class NewCustomerWithoutContract(Event):
    """A customer is new and not under contract.

    Source: spec, "Events".
    """

    identify = ("customer_id",)

    date: RaisedAt
    customer_id: CustomerId
    customer_name: CustomerName


class CustomerPortalLinkSent(Event):
    """A link to the portal went out to a customer, or could not be sent.

    Source: spec, "Events".
    """

    identify = ("customer_id",)

    customer_id: CustomerId
    is_successful: StrictBool = Field(description="Whether the link was sent.", examples=[False])
    email: StrictStr | None = Field(
        description="Email address of the recipient.", examples=["billing@acme.example"]
    )
    date: RaisedAt
    error_message: StrictStr | None = optional(
        "Error message; present only when isSuccessful is false.", "Mailbox unavailable"
    )


_IsTrial = Annotated[StrictBool, Field(description="Whether the contract is a trial.", examples=[False])]


class _EndOfContract(Event, register=False):
    """What the two events about the end of a contract say, in the same words.

    Source: spec, "Events".
    """

    identify: ClassVar[tuple[str, ...]] = ("contract_id",)

    date: RaisedAt
    contract_end_date: UtcDatetime = Field(
        description="End of the contract.", examples=["2026-02-14T00:00:00Z"]
    )
    contract_name: ContractName
    contract_id: ContractId
    customer_name: CustomerName


class UpcomingRenewal(_EndOfContract):
    """A contract will soon come up for renewal.

    Source: spec, "Events". The body is shaped like ContractExpired's: only the header tells them apart.
    """

    is_trial: _IsTrial


class ContractExpired(_EndOfContract):
    """A contract has ended.

    Source: spec, "Events". The body is shaped like UpcomingRenewal's: only the header tells them apart.
    """

    is_trial: Annotated[_IsTrial, FLAG_IN_TEXT]


class ContractCreated(Event):
    """A contract was added.

    Source: spec, "Events".
    """

    identify = ("contract_id", "customer_id")

    date: RaisedAt
    contract_id: ContractId
    customer_id: CustomerId
    contract_name: ContractName
    status: StrictStr = Field(description="Status of the contract.", examples=["Active"])
    start_date: UtcDatetime = Field(description="Start of the contract.", examples=["2026-02-01T00:00:00Z"])
    end_date: UtcDatetime | None = optional("End of the contract, if any.", "2027-01-31T00:00:00Z")
    customer: NewCustomer = Field(description="The customer, with the fields of CustomerCreated.")
