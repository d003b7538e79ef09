"""Contracts. Source: spec, "Endpoints", Contracts."""

from __future__ import annotations

from sqlalchemy import ColumnElement, select

from billhook.resources import ContractPage, ContractQuery, ContractResponse, NewContract
from billhook.sandbox.billing import contract_life, contracts
from billhook.sandbox.storage.tables.billing import contract
from billhook.sandbox.storage.tables.entities import customer
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("contracts", prefix="/contracts")


@GROUP.operation("POST", "", takes=NewContract, gives=ContractResponse)
def create(call: Call[NewContract]) -> ContractResponse:
    """Make a contract of a plan, or of products of its own."""
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


@GROUP.operation("DELETE", "/{contractId}", gives=ContractResponse)
def delete(call: Call[None]) -> ContractResponse:
    """Delete the contract with this id or externalId."""
    deleted = contract_life.delete(call.tx, contracts.find(call.tx, call.path["contractId"]))
    return ContractResponse(contract=contracts.shown(call.tx, [deleted])[0])
