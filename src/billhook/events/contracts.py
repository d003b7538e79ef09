"""Events about contracts. Source: spec, "Events"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from billhook.events.base import Event
from billhook.events.customers import NewCustomer
from billhook.events.fields import ContractId, ContractName, CustomerName, RaisedAt
from billhook.wire.fields import CustomerId, UtcDatetime

__all__ = ["ContractCreated", "ContractExpired", "UpcomingRenewal"]

_EndDate = Annotated[
    UtcDatetime, Field(description="End of the contract.", examples=["2026-02-14T00:00:00Z"])
]
_IsTrial = Annotated[StrictBool, Field(description="Whether the contract is a trial.", examples=[False])]


class UpcomingRenewal(Event):
    """A contract will soon come up for renewal.

    Source: spec, "Events". The body is shaped like ContractExpired's: only the header tells them apart.
    """

    date: RaisedAt
    contract_end_date: _EndDate
    contract_name: ContractName
    contract_id: ContractId
    customer_name: CustomerName
    is_trial: _IsTrial


class ContractExpired(Event):
    """A contract has ended.

    Source: spec, "Events". The body is shaped like UpcomingRenewal's: only the header tells them apart.
    """

    date: RaisedAt
    contract_end_date: _EndDate
    contract_name: ContractName
    contract_id: ContractId
    customer_name: CustomerName
    is_trial: _IsTrial


class ContractCreated(Event):
    """A contract was added.

    Source: spec, "Events".
    """

    date: RaisedAt
    contract_id: ContractId
    customer_id: CustomerId
    contract_name: ContractName
    status: Annotated[StrictStr, Field(description="Status of the contract.", examples=["Active"])]
    start_date: Annotated[
        UtcDatetime, Field(description="Start of the contract.", examples=["2026-02-01T00:00:00Z"])
    ]
    end_date: Annotated[
        UtcDatetime | None,
        Field(description="End of the contract, if any.", examples=["2027-01-31T00:00:00Z"]),
    ] = None
    customer: Annotated[NewCustomer, Field(description="The customer, with the fields of CustomerCreated.")]
