"""Events about customers and the portal. Source: spec, "Events"."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field, StrictBool, StrictStr

from billhook.events.base import Event
from billhook.events.fields import CustomerName, ExternalId, NameOfCustomer, RaisedAt
from billhook.wire import WireModel
from billhook.wire.fields import Aliases, CustomerId

__all__ = [
    "AnonymousCustomer",
    "CustomerCreated",
    "CustomerPortalLinkSent",
    "IntegrationEntity",
    "NewCustomer",
    "NewCustomerWithoutContract",
]


class AnonymousCustomer(Event):
    """Usage arrived under an alias that no customer has, so an anonymous customer was created.

    Source: spec, "Events", rule 5.
    """

    id: Annotated[StrictStr, Field(description="Id of the new, anonymous customer.", examples=["cus_9001"])]
    name: Annotated[StrictStr, Field(description="Name assigned to the customer.", examples=["acme-trial"])]
    external_id: ExternalId = None
    aliases: Aliases


class IntegrationEntity(WireModel):
    """A customer's counterpart in another system. Source: spec, "Events", CustomerCreated."""

    integration_provider: Annotated[
        StrictStr, Field(description="Name of the other system.", examples=["Salesforce"])
    ]
    integration_external_id: Annotated[
        StrictStr, Field(description="Id of the entity in that system.", examples=["0015g00000XyZ"])
    ]
    sync_status: Annotated[StrictStr, Field(description="Synchronization status.", examples=["Synced"])]


class NewCustomer(WireModel):
    """A customer as told when it was created. Source: spec, "Events", CustomerCreated and ContractCreated."""

    date: RaisedAt
    customer_id: CustomerId
    name: NameOfCustomer
    external_id: ExternalId = None
    aliases: Aliases
    integration_entities: Annotated[
        list[IntegrationEntity],
        FailFast(),
        Field(description="Counterparts of the customer in other systems."),
    ]


class CustomerCreated(NewCustomer, Event):
    """A customer was added.

    Source: spec, "Events".
    """


class NewCustomerWithoutContract(Event):
    """A customer is new and not under contract.

    Source: spec, "Events".
    """

    date: RaisedAt
    customer_id: CustomerId
    customer_name: CustomerName


class CustomerPortalLinkSent(Event):
    """A link to the portal went out to a customer, or could not be sent.

    Source: spec, "Events".
    """

    customer_id: CustomerId
    is_successful: Annotated[StrictBool, Field(description="Whether the link was sent.", examples=[False])]
    email: Annotated[
        StrictStr | None,
        Field(description="Email address of the recipient.", examples=["billing@acme.example"]),
    ]
    date: RaisedAt
    error_message: Annotated[
        StrictStr | None,
        Field(
            description="Error message; present only when isSuccessful is false.",
            examples=["Mailbox unavailable"],
        ),
    ] = None
