"""Contracts. Source: spec, "Endpoints", Contracts."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict
from sqlalchemy import ColumnElement, select

from billhook.resources import ContractPage, ContractQuery, ContractResponse, NewContract
from billhook.sandbox.billing import contract_life, contracts
from billhook.sandbox.storage.tables.billing import contract
from billhook.sandbox.storage.tables.entities import customer
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("contracts", prefix="/contracts")


class SentContract(NewContract, register=False):
    """The request of POST /contracts, as the service reads it: with a planId, products are ignored.

    The client refuses both together, for they are "mutually exclusive" as well. Source: spec, Contract.
    """

    model_config = ConfigDict(title="NewContract")

    @classmethod
    def from_wire(cls, data: object) -> Self:
        """As NewContract does, with what a plan stands for left out whatever is in it."""
        if isinstance(data, dict) and data.get("planId"):
            data = {name: value for name, value in data.items() if name not in _OF_NO_PLAN}
        return super().from_wire(data)


_OF_NO_PLAN = ("products", "productGroups")


@GROUP.operation("POST", "", takes=SentContract, gives=ContractResponse)
def create(call: Call[SentContract]) -> ContractResponse:
    """Make a contract of a plan, or of products of its own; with a planId, products are ignored."""
    made = contract_life.create(call.tx, call.given)
    return ContractResponse(contract=contracts.shown(call.tx, [made])[0])


@GROUP.operation("GET", "", takes=ContractQuery, gives=ContractPage)
def list_all(call: Call[ContractQuery]) -> ContractPage:
    """List the contracts, oldest first; without those that were deleted."""
    given = call.given
    where: list[ColumnElement[bool]] = [contract.c.deleted_at.is_(None)]
    if given.customer_id is not None:
        where.append(contract.c.customer_id == given.customer_id)
    if given.customer_external_id is not None:
        owner = customer.c.external_id == given.customer_external_id
        where.append(contract.c.customer_id == select(customer.c.id).where(owner).scalar_subquery())
    page = contracts.CONTRACTS.page(call.tx, limit_of(given), given.cursor, *where)
    return ContractPage(contracts=contracts.shown(call.tx, page.items), **page.fields())


@GROUP.operation("GET", "/{contractId}", gives=ContractResponse)
def get(call: Call[None]) -> ContractResponse:
    """Get the contract with this id or externalId. The specification implies it, and does not show it."""
    found = contracts.find(call.tx, call.path["contractId"])
    return ContractResponse(contract=contracts.shown(call.tx, [found])[0])


@GROUP.operation("DELETE", "/{contractId}", gives=ContractResponse)
def delete(call: Call[None]) -> ContractResponse:
    """Delete the contract with this id or externalId."""
    deleted = contract_life.delete(call.tx, contracts.find(call.tx, call.path["contractId"]))
    return ContractResponse(contract=contracts.shown(call.tx, [deleted])[0])
