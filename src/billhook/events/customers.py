"""Events about customers and the portal. Source: spec, "Events"."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field

from billhook.events.base import Event, Shape
from billhook.events.fields import (
    Aliases,
    CustomerId,
    CustomerName,
    ExternalId,
    Flag,
    NameOfCustomer,
    RaisedAt,
    Text,
)

__all__ = [
    "AnonymousCustomer",
    "CustomerCreated",
    "CustomerPortalLinkSent",
    "IntegrationEntity",
    "NewCustomer",
    "NewCustomerWithoutContract",
]


class AnonymousCustomer(Event):
    """Usage came in under an alias nobody has, so a customer was made up for it.

    Source: spec, "Events", rule 5.
    """

    id: Annotated[Text, Field(description="Id of the new, anonymous customer.", examples=["cus_9001"])]
    name: Annotated[Text, Field(description="Name given to the customer.", examples=["acme-trial"])]
    external_id: ExternalId = None
    aliases: Aliases


class IntegrationEntity(Shape):
    """A customer's counterpart in another system. Source: spec, "Events", CustomerCreated."""

    integration_provider: Annotated[Text, Field(description="The other system.", examples=["Salesforce"])]
    integration_external_id: Annotated[
        Text, Field(description="Id in that system.", examples=["0015g00000XyZ"])
    ]
    sync_status: Annotated[Text, Field(description="How far the two are in step.", examples=["Synced"])]


class NewCustomer(Shape):
    """A customer as told when it was created. Source: spec, "Events", CustomerCreated and ContractCreated."""

    date: RaisedAt
    customer_id: CustomerId
    name: NameOfCustomer
    external_id: ExternalId = None
    aliases: Aliases
    integration_entities: Annotated[
        list[IntegrationEntity],
        FailFast(),
        Field(description="The customer's counterparts in other systems."),
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
    is_successful: Annotated[Flag, Field(description="Was the link sent?", examples=[False])]
    email: Annotated[
        Text | None, Field(description="Address the link is for.", examples=["billing@acme.example"])
    ]
    date: RaisedAt
    error_message: Annotated[
        Text | None,
        Field(
            description="Why it failed; only when isSuccessful is false.", examples=["Mailbox unavailable"]
        ),
    ] = None
